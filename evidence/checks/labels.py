"""Labels read off updates, on test images; settings were chosen on train images.

Every number is the share of the labels that was found (the overlap of two multisets). Beside it stands what guessing
uniform counts would have scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import leakgauge as lg
from evidence import Measurement, Number, at_least, at_most, check
from evidence.measurement import Bar
from leakgauge.adversary.labels import LabelReader
from leakgauge.adversary.labels.counts import overlap, whole
from leakgauge.metrics import mean_interval
from leakgauge.models.init import lecun_normal
from leakgauge.seeds import seed_of
from leakgauge.training import train
from leakgauge.types import Domain, Records, Threat

SIGNED = {"tanh": nn.Tanh, "SiLU": nn.SiLU, "GELU": nn.GELU}


def _cnn(domain: Domain, act: type[nn.Module] = nn.ReLU, *, bias: bool, seed: int) -> nn.Module:
    """The Bayes CNN with another activation, and with or without a last bias."""
    torch.manual_seed(seed)
    return lecun_normal(
        nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), act(), nn.AvgPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), act(), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 49, 100), act(), nn.Linear(100, domain.classes, bias=bias)),
        )
    )


def _batches(classes: int, batch: int, number: int, counts: Sequence[int] | None, seed: int) -> Records:
    """Batches of Fashion-MNIST test images with class counts, or skewed by a Dirichlet law of 0.3.

    With more than ten classes the labels are drawn without looking at the image, which an untrained network does not
    notice.
    """
    images = lg.data.load("fashion_mnist_sample").test
    generator = torch.Generator().manual_seed(seed_of(seed, classes, batch))
    labels = torch.cat([_labels(classes, batch, counts, generator) for _ in range(number)])
    draw = torch.randint(len(images), (len(labels),), generator=generator)
    if classes == images.domain.classes:
        own = [(images.labels == c).nonzero().flatten() for c in range(classes)]
        draw = torch.stack([own[c][i % len(own[c])] for c, i in zip(labels.tolist(), draw.tolist(), strict=True)])
    return Records(images.inputs[draw], labels, Domain("image", images.domain.shape, classes))


def _labels(classes: int, batch: int, counts: Sequence[int] | None, generator: torch.Generator) -> Tensor:
    if counts is not None:
        return torch.randperm(classes, generator=generator)[: len(counts)].repeat_interleave(torch.tensor(list(counts)))
    shares = torch._sample_dirichlet(torch.full((classes,), 0.3), generator=generator)
    return torch.multinomial(shares, batch, replacement=True, generator=generator)


@dataclass
class _Shares:
    """The shares of labels that were found, what a uniform guess has, and how sure the adversary was, by batch."""

    right: list[float] = field(default_factory=list)
    guess: list[float] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)

    def read(self, task: lg.Task, records: Records) -> None:
        observations = lg.observe(task, records, threat=Threat(labels="inferred"))
        reader = LabelReader.of(task, observations[0].rounds[0])
        for one, true in zip(observations, records.batches(task.recipe.batch), strict=True):
            counts = reader.counts(one.rounds[0], one.batch)
            truth = true.labels.bincount(minlength=task.domain.classes).double()
            even = whole(torch.full_like(truth, one.batch / len(truth)), one.batch)
            self.right.append(float(overlap(truth, counts.counts.unsqueeze(0))[0]))
            self.guess.append(float(overlap(truth, even.unsqueeze(0))[0]))
            self.sure.append(counts.confidence)

    def numbers(self, name: str, bar: Bar | None = None, *, honest: bool = False) -> dict[str, Number]:
        """``honest``: what the adversary states must not lie above the interval of what it had right."""
        mean = mean_interval(torch.tensor(self.right))
        guess = sum(self.guess) / len(self.guess)
        sure = sum(self.sure) / len(self.sure)
        return {
            name: Number(mean.mean, bar, (mean.low, mean.high)),
            f"{name}, uniform guess": Number(guess),
            f"{name}, own confidence": Number(sure, at_most(mean.high) if honest else None),
        }


@check("labels_single", rows="labels-without-bias", cost="fast")
def single() -> Measurement:
    """Labels of 100 single Fashion-MNIST images from updates of fresh CNNs without a last bias, signed features."""
    every: dict[str, Number] = {}
    for name, act in SIGNED.items():
        shares = _Shares()
        for seed in range(5):
            records = _batches(10, 1, 20, [1], seed)
            shares.read(lg.Task(_cnn(records.domain, act, bias=False, seed=seed), records.domain), records)
        every |= shares.numbers(name, at_least(0.99))
    return Measurement(every, detail="5 networks with LeCun initialisation, 20 images each")


@check("labels_repeated", rows="labels-without-bias", cost="fast")
def repeated() -> Measurement:
    """Labels of batches of 8 with one class five times, without a last bias."""
    every: dict[str, Number] = {}
    for name, act in {"ReLU": nn.ReLU, **SIGNED}.items():
        shares = _Shares()
        for seed in range(5):
            records = _batches(10, 8, 10, [5, 1, 1, 1], seed)
            task = lg.Task(_cnn(records.domain, act, bias=False, seed=seed), records.domain, lg.Recipe(batch=8))
            shares.read(task, records)
        every |= shares.numbers(name, at_least(0.9))
    return Measurement(every, detail="5 networks with LeCun initialisation, 10 batches each")


@check("labels_counted", rows="labels-of-batches", cost="minutes")
def counted() -> Measurement:
    """Labels of skewed batches of fresh CNNs with a last bias: 10 classes, and 100 classes up to a batch of 1,024."""
    every: dict[str, Number] = {}
    for classes, batch, number, bar in ((10, 64, 8, 0.95), (100, 256, 4, 0.98), (100, 1024, 1, None)):
        shares = _Shares()
        for seed in range(3):
            records = _batches(classes, batch, number, None, seed)
            network = _cnn(records.domain, bias=True, seed=seed)
            shares.read(lg.Task(network, records.domain, lg.Recipe(batch=batch)), records)
        every |= shares.numbers(f"{classes} classes, batch {batch}", None if bar is None else at_least(bar))
    return Measurement(every, detail="Dirichlet(0.3) batches, 3 networks with LeCun initialisation")


@check("labels_local_steps", rows="labels-of-batches", cost="minutes")
def local_steps() -> Measurement:
    """Labels of skewed batches of 64 from weight changes after five local steps."""
    every: dict[str, Number] = {}
    for rate, bar in ((0.01, 0.85), (0.1, 0.75)):
        shares = _Shares()
        for seed in range(3):
            records = _batches(10, 64, 6, None, seed)
            recipe = lg.Recipe(batch=64, shares="change", local_steps=5, learning_rate=rate)
            shares.read(lg.Task(_cnn(records.domain, bias=True, seed=seed), records.domain, recipe), records)
        every |= shares.numbers(f"learning rate {rate:g}", at_least(bar))
    return Measurement(every, detail="Dirichlet(0.3) batches, 3 networks with LeCun initialisation")


@check("labels_trained", rows="labels-trained", cost="minutes")
def trained() -> Measurement:
    """Labels of trained CNNs, with and without a last bias: no more is stated than was right."""
    every: dict[str, Number] = {}
    images = lg.data.load("fashion_mnist_sample").train
    for bias in (True, False):
        start = lg.Task(_cnn(images.domain, bias=bias, seed=0), images.domain)
        state = train(start, images, steps=300, batch=32, learning_rate=0.1, seed=0, keep=[300])[-1].state
        for batch, counts in ((1, [1]), (8, [5, 1, 1, 1]), (64, None)):
            shares, records = _Shares(), _batches(10, batch, 20 if batch < 64 else 8, counts, 0)
            task = lg.Task(start.model, records.domain, lg.Recipe(batch=batch)).at(state)
            shares.read(task, records)
            name = f"{'with' if bias else 'without'} a last bias, batch {batch}"
            every |= shares.numbers(name, honest=True)
    return Measurement(every, detail="300 steps of SGD at 0.1 on 1,000 Fashion-MNIST images; batch 64: Dirichlet(0.3)")
