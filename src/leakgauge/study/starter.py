"""The starter spec that ``leakgauge init`` writes: commented, and runnable as it is."""

from __future__ import annotations

PRESETS = {
    "quick": ("10", "inverting_gradients(steps=150)", 'standard(work="quick")'),
    "standard": ("20", "inverting_gradients(steps=1000)", "standard()"),
    "thorough": ("60", "inverting_gradients(steps=4800, restarts=2)", 'standard(work="thorough")'),
}

TEMPLATE = """\
# An audit: how much of your clients' private data can be read back out of the updates they send?
# Check it with `leakgauge check {name}`, run it with `leakgauge audit {name}`.

[task]
model = "bayes_cnn"                  # a name (`leakgauge list model`), or "my_package.module:factory"
# weights = "round12.safetensors"    # .safetensors, .npz or .pt; without it the model is untrained
loss = "cross_entropy"               # or "my_package.module:loss", one value per example
data = "fashion_mnist_sample"        # a name, an .npz, a folder of images, or "my_package.module:records"
# normalise = {{ mean = [0.286], std = [0.353] }}   # if your client normalises outside the model
records = {records}                         # updates that are attacked and reported

[task.recipe]                        # how one client computes one update
batch = 1
local_steps = 1
learning_rate = 0.1
mode = "eval"                        # or "train", if your client trains with batch statistics
# shares = "change"                  # if it sends weights after - before; the default for one step is its gradient

# [task.replay]                      # what your real client did, so that the set-up can be checked
# before = "r12.safetensors"
# after = "r12-client3.safetensors"
# batch = "known-batch.npz"

# [checkpoints]                      # leakage over training, with accuracy beside it
# train_steps = [0, 100, 500]        # 0 is the model as given
# defended = true                    # one training per defense, with it: shows what it costs in accuracy
# seeds = 3                          # trainings of each, so that the spread of the accuracy is known

[defenses]                           # name = expression (`leakgauge list defense`)
none = "identity()"
noisy = "gaussian(std=0.01)"
clipped = "clip(norm=1.0) | gaussian(std=0.01)"
pruned = "prune(p=0.9)"
# mixed = "mixup(k=4)"               # changes the records; mixes those of one client
# bottled = "precode()"              # changes the model

[adversaries]                        # every defense meets every adversary (`leakgauge list attack`)
generic = '{generic}'
standard = '{standard}'
# linear = "analytic()"              # if `leakgauge preflight` finds a first linear layer with a bias
# fixed = "adaptive(steps=1000)"     # models it, too, with settings as they are; takes less time
# tuned = ["adaptive(tv_weight=0.0001)", "adaptive(tv_weight=0.01)"]   # a list: tuned on records not reported

[threat]
labels = "known"                     # known | inferred | joint
grants = []                          # nuisances the adversary is told, for example ["random_prune.mask"]

[verdict]
recognisable = {{ ssim = 0.5 }}
significance = 0.05

# [price]                            # of a record, where clients mix records
# records = 5000                     # that one client of yours holds
# epochs = 50
"""


def starter(name: str, preset: str = "standard") -> str:
    """The text of a starter spec."""
    records, generic, standard = PRESETS[preset]
    return TEMPLATE.format(name=name, records=records, generic=generic, standard=standard)
