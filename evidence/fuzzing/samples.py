"""Valid files of every kind, from which the changes begin."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

SPEC = b"""leave_out = ["adaptive"]
seed = 3
[task]
model = "mlp(width=4, depth=1)"
data = "fashion_mnist_sample"
records = 8
[task.recipe]
batch = 1
learning_rate = 0.1
[checkpoints]
train_steps = [0, 2]
[defenses]
none = "identity()"
noisy = "clip(norm=1.0) | gaussian(std=0.01)"
[adversaries]
linear = ["analytic()", "dlg(steps=3)"]
[threat]
labels = "known"
[verdict]
significance = 0.05
"""
EXPRESSIONS = (
    b"clip(norm=1.0) | gaussian(std=0.1)",
    b"bayes(prior=1e-4*tv() + 0.1*pixel_range(), solver=adam(lr=0.5, steps=200))",
    b"mixup(k=4) | prune(p=0.9) | my.package:Part(a=[1, 2.5], b={'x': None}, c=-3)",
    b"adaptive(steps=60)",
)
WORDS = (
    *(
        b"clip gaussian laplace vmf topk prune quantise mixup instahide ats soteria precode lrp random_prune dlg idlg "
        b"analytic bayes adaptive adversary adam tv std norm p k keep levels policy layer steps lr prior solver lambda "
        b"__import__ os:system None True 1e999 -1 0 '' 'a'*9 () [] {} x.y:Z torch:os.system * ** | + := f'{x}' ... 1j "
        b"b'' "
    ).split(),
    b"9" * 30,
    b"await x",
    b"lambda: 0",
)
APP_WORDS = (
    b"LocalDpMod SVTPrivacy ClientApp PrivacyEngine make_private train mods evaluate num_rounds num-server-rounds path "
    b"args SENSITIVITY app model lambda yield class def return import from float int str list -1 1e999 0 nan "
).split()
KEYS = (
    b"task model data records recipe batch local_steps learning_rate momentum mode weights loss normalise replay "
    b"checkpoints train_steps seeds defended defenses none adversaries threat labels grants verdict recognisable "
    b"bound price tuning rounds client_records class_counts true nan inf 1979-05-27 inferred joint minibatch clients "
).split()


def saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def npz(pack: Callable[..., None] = np.savez, **arrays: object) -> bytes:
    out = io.BytesIO()
    pack(out, **arrays)
    return out.getvalue()


def picture(form: str, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(out, form)
    return out.getvalue()


@cache
def run_folder() -> dict[str, bytes]:
    """The files of a small signed audit."""
    from leakgauge.audit import audit
    from leakgauge.report import report
    from leakgauge.storage.signing import new_key, private_key, sign
    from leakgauge.study import Study

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        spec = SPEC.replace(b"train_steps = [0, 2]", b"train_steps = [2]").replace(b"noisy", b'"b<i>&"')
        (home / "spec.toml").write_bytes(spec)
        run = home / "run"
        audit(Study.load(home / "spec.toml"), run)
        report(run, formats=("md",))
        new_key(home / "key")
        sign(run, ("result.json", "report.md"), private_key(home / "key"))
        shutil.copy(home / "key.pub", run)
        files = (path for path in run.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {str(path.relative_to(run)): path.read_bytes() for path in files}


def priors() -> dict[str, bytes]:
    """A small generator, and a mixture of patches."""
    from leakgauge.priors.generators import decoder_network, write_prior

    decoder = decoder_network(2 + 3, (4,), (1, 4, 4), True)
    facts = {"family": "vae", "codes": 2, "classes": 3, "widths": [4], "shape": [1, 4, 4], "boxed": True}
    mixture = {"logits": torch.zeros(2), "means": torch.zeros(2, 4), "factors": torch.eye(4).repeat(2, 1, 1)}
    records = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return {
        "vae.safetensors": write_prior(dict(decoder.state_dict()), facts, records),
        "patches.safetensors": write_prior(mixture, {"family": "patches", "size": 2}, records),
    }


APP = {
    "client.py": b"""import numpy as np
from flwr.app import MetricRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod as Private, fixedclipping_mod
from torch import nn
np.random.seed(0)
SENSITIVITY = 1e-4
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
app = ClientApp(mods=[Private(1.0, SENSITIVITY, epsilon=2 * 5.0, delta=float(context.run_config["delta"]))])
@app.train(mods=[fixedclipping_mod])
def fit(message, context):
    return MetricRecord({"num-examples": len(context.data)})
""",
    "pyproject.toml": b"[tool.flwr.app.config]\nnum-server-rounds = 3\ndelta = 1e-5\n",
    "config_fed_client.json": b"""{"num_rounds": 2, "task_result_filters": [{"tasks": ["train"], "filters": [
{"path": "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy", "args": {"percentile": 10, "gamma": 0.01}},
{"path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy", "args": {"fraction": 0.1, "epsilon": 0.1}}]}]}""",
}


@cache
def few_cells() -> dict[str, bytes]:
    """The same with one cell of every kind: what a resumed audit reads of a cell does not depend on the others."""
    files, kinds = dict(run_folder()), set[str]()
    for name in sorted(name for name in files if name.startswith("cells/") and name.endswith(".json")):
        kind = json.loads(files[name])["kind"]
        if kind in kinds:
            files.pop(name)
            files.pop(name.replace(".json", ".safetensors"), None)
        kinds.add(kind)
    return files


def tar(content: bytes) -> bytes:
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("x/a-idx3")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
