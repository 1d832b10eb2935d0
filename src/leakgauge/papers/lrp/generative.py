"""GGL with our generator: a search of the codes of a small autoencoder, on a client with each of six defenses.

The paper's generator is BigGAN on ImageNet; ours is trained on the public split of the client's own kind of data. Its
GGL estimates clipping and masks, and of LRP nothing; ``any scale`` is the same search with a likelihood that a hidden
scale does not stop.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge import data, models
from leakgauge.adversary import Adversary, Likelihood, Reconstruction, cosine
from leakgauge.adversary.estimated import Estimated
from leakgauge.adversary.solver import CmaEs
from leakgauge.metrics import lpips
from leakgauge.metrics.representations import RepresentationMse
from leakgauge.observation import Observation, observe
from leakgauge.papers.contract import Measured
from leakgauge.papers.conventions import signed_mse, signed_psnr
from leakgauge.priors.generators import Generator, Learned
from leakgauge.task import Task
from leakgauge.training.prior import train_vae
from leakgauge.types import Records
from leakgauge.updates.trees import norm

DEFENSES = {
    "none": "identity()",
    "noise 0.1": "gaussian(std=0.1)",
    "clipping 4": "clip(norm=4.0)",
    "clipping and noise": "clip(norm=4.0) | gaussian(std=0.1)",
    "pruning 90 %": "prune(p=0.9)",
    "Soteria 0.8": "soteria(layer='linear1', p=0.8)",
    "LRP": "lrp(share=2.0)",
}
CLIPPED, MASKED = ("clipping 4", "clipping and noise"), ("pruning 90 %", "Soteria 0.8")
GGL, ANY_SCALE = "GGL", "any scale"
METRICS = ("MSE", "PSNR", "LPIPS (VGG)", "LPIPS (AlexNet)", "MSE of representations")


@lru_cache(maxsize=2)
def generator(name: str, public: int, epochs: int, seed: int) -> Generator:
    """Trained on records of the train split; the attacked ones are of the test split."""
    dataset = data.load(name)
    trained = train_vae(dataset.sample(min(public, len(dataset.train)), seed=seed), epochs=epochs, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prior.safetensors"
        file.write_bytes(trained.content)
        prior = Learned(str(file))
        return Generator(prior.network, prior.codes, prior.classes)


def likelihood(attack: str, defense: str) -> Likelihood:
    """What the paper's GGL knows of each defense; without scale, whatever the defense."""
    if attack == ANY_SCALE:
        return cosine()
    return Estimated(mask=defense in MASKED, clip=defense in CLIPPED)


def setting(defense: str, name: str, model: str, records: int, seed: int) -> tuple[Task, Records, list[Observation]]:
    """The task as the adversary has it, in float64, the records, and what they sent under the defense."""
    dataset = data.load(name)
    network = models.normalised(models.build(model, dataset.domain, seed=seed), *dataset.moments())
    plain = Task(network, dataset.domain).to(dtype=torch.float64)
    drawn = dataset.sample(records, seed=seed + 7, split="test")
    private = Records(drawn.inputs.double(), drawn.labels, drawn.domain)
    return plain, private, observe(plain.protect(DEFENSES[defense]), private, seed=seed + 1)


def search(attack: str, defense: str, prior: Generator, steps: int) -> Adversary:
    """GGL: codes by CMA-ES."""
    return Adversary(likelihood(attack, defense), 1e-4 * prior, CmaEs(steps=steps))


def measure(
    defense: str,
    attack: str = GGL,
    prefix: str = "",
    name: str = "fashion_mnist",
    model: str = "bayes_cnn",
    records: int = 8,
    steps: int = 150,
    public: int = 20_000,
    epochs: int = 6,
    perceptual: bool = True,
    seed: int = 0,
) -> Measured:
    """The paper's five metrics in its conventions (see ``conventions``), and the pictures."""
    task, private, observed = setting(defense, name, model, records, seed)
    result: Reconstruction = search(attack, defense, generator(name, public, epochs, seed), steps)(
        task, observed, seed=seed
    )
    inputs, truth = result.inputs[:, 0].detach(), private.inputs
    scores = {
        "MSE": signed_mse(inputs, truth),
        "PSNR": signed_psnr(inputs, truth),
        "MSE of representations": RepresentationMse().through(task.model)(inputs, truth),
    }
    if perceptual:
        scores |= {"LPIPS (VGG)": perceived(inputs, truth, "vgg"), "LPIPS (AlexNet)": perceived(inputs, truth, "alex")}
    arm = defense if attack == GGL else f"{defense}, {attack}"
    length = fmean(float(norm(one.rounds[0].observed)) for one in observed)
    return Measured(
        {f"{prefix}{metric}, {arm}": score.tolist() for metric, score in scores.items()},
        {f"{prefix}MSE, {arm}": f"mean norm of what is sent: {length:.3g}"},
        pictures={"original": truth, f"{prefix}{arm}": inputs},
    )


def perceived(inputs: Tensor, truth: Tensor, net: str) -> Tensor:
    """LPIPS of pictures that are enlarged twice, where AlexNet needs more pixels than they have."""
    larger = (F.interpolate(one.double(), scale_factor=2, mode="bilinear") for one in (inputs, truth))
    return lpips(*larger, net=net)  # type: ignore[arg-type]
