"""The law of promises: what a part says about itself for proofs is what it does.

A promise is about every update; a law can only try some. The tries are chosen to be the ones that break promises:
tiny and huge updates, pairs on opposite sides of zero, an example taken out of a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Generator, Tensor

from leakgauge.defenses import GaussianNoise, LaplaceNoise, NoiseLaw, Sensitivity, UpdatePart, VonMisesFisherNoise
from leakgauge.defenses.update.vmf_sample import sample_gaps
from leakgauge.testing.parts import ExampleContext, example_update
from leakgauge.types import Tree
from leakgauge.updates import trees

SLACK = 1 + 1e-12  # float64 norms of a few dozen entries
ENTRIES, LEAST = 400_000, 1e-7
"""Draws of a noise, and the chance that a right law is refused: a scale wrong by two percent is found."""


def promises_are_kept(part: UpdatePart, *, seed: int = 1) -> None:
    """What proofs rest on: ``post_processing``, ``sensitivity`` and ``noise_law`` hold for the updates of an example.

    Post-processing releases the same whatever the client; an update, and the way from it to the update without a unit,
    are no longer than the sensitivity says; noise of a promised law is drawn from it, also at another size.
    """
    for scale in (1e-3, 1.0, 1e3):
        update = {name: scale * value for name, value in example_update(seed=seed).items()}
        if part.post_processing and not part.per_example:
            other = ExampleContext({name: value.flip(0) for name, value in update.items()})
            same = _equal(_released(part, update, seed), _released(part, update, seed, other))
            assert same, f"{part!r} promises to be post-processing, but looks at the client"
        _norms_are_kept(part, update, seed)
        _distances_are_kept(part, update, seed)
    law = part.noise_law
    if law is not None:
        _law_is_kept(part, law, seed)
        louder = part.with_noise(2 * law.size)
        promised = None if louder is None else louder.noise_law
        if louder is not None:
            size = 0.0 if promised is None else promised.size
            assert math.isclose(size, 2 * law.size), f"{part!r}.with_noise({2 * law.size:g}) has noise of size {size:g}"


def _released(part: UpdatePart, update: Tree, seed: int, context: ExampleContext | None = None) -> dict[str, Tensor]:
    return part.release(update, context or ExampleContext(update), generator=Generator().manual_seed(seed)).observed


def _equal(first: Tree, second: Tree) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


def _norms_are_kept(part: UpdatePart, update: Tree, seed: int) -> None:
    """No update is longer than ``radius``, no layer longer than its own."""
    before = _sensitivity(update).clipped(_norm(update))
    after, released = part.sensitivity(before), _released(part, update, seed)
    length = _norm(released)
    assert length <= after.radius * SLACK, (
        f"{part!r} promises a norm of at most {after.radius:g}, but one is {length:g}"
    )
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in update))
    for layer, (_, radius) in zip(layers, after.layers, strict=False):
        length = _norm({name: value for name, value in released.items() if name.rpartition(".")[0] == layer})
        assert length <= radius * SLACK, f"{part!r} promises {radius:g} for the layer {layer!r}, but it has {length:g}"


def _distances_are_kept(part: UpdatePart, update: Tree, seed: int) -> None:
    """Taking a unit away moves the update by at most ``l2``: a client to zero, a record to what the others sent."""
    if part.per_example:
        first, second = _released(part, update, seed), _released(part, update, seed, OneExample(update))
        _check(part, part.sensitivity(_sensitivity(update)), first, second)
        return
    for share in (0.0, 0.9, -0.5):
        rest = {name: share * value for name, value in update.items()}
        size = (1 - share) * _norm(update)
        before = Sensitivity(_sizes(update), 2, radius=_norm(update), l2=size, unit="record" if share else "client")
        after = part.sensitivity(before)
        if after.unit == before.unit:
            _check(part, after, _released(part, update, seed), _released(part, rest, seed))


def _check(part: UpdatePart, after: Sensitivity, first: Tree, second: Tree) -> None:
    moved = _norm({name: value - second[name] for name, value in first.items()})
    # two releases round apart: by an epsilon of their own size, which may be larger than the way between them
    room = after.l2 * SLACK + 1e-15 * _norm(first)
    assert moved <= room, f"{part!r} promises that one {after.unit} moves {after.l2:g} at most, but it moves {moved:g}"


def _law_is_kept(part: UpdatePart, law: NoiseLaw, seed: int) -> None:
    generator = Generator().manual_seed(seed)
    match law:
        case GaussianNoise(std=size):
            chance = _fit(part, stats.norm(scale=size).cdf, size, generator)
        case LaplaceNoise(scale=size):
            chance = _fit(part, stats.laplace(scale=size).cdf, size, generator)
        case VonMisesFisherNoise(concentration=concentration):
            chance = _fit_cosines(part, concentration, seed)
        case _:
            return  # a law of somebody else's has a test of its own
    assert chance > LEAST, f"{part!r} promises {law!r}, but draws something else (p = {chance:.1e})"


def _fit(part: UpdatePart, cdf: object, size: float, generator: Generator) -> float:
    update = {"layer.weight": size * torch.linspace(-3, 3, ENTRIES, dtype=torch.float64)}
    noise = part.release(update, None, generator=generator).observed["layer.weight"] - update["layer.weight"]
    return float(stats.kstest(noise.numpy(), cdf).pvalue)


def _fit_cosines(part: UpdatePart, concentration: float, seed: int, draws: int = 3000) -> float:
    """The cosines between updates and releases against draws from the law itself."""
    update = example_update(seed=seed)
    generators = (Generator().manual_seed(seed + i) for i in range(draws))
    cosines = [_cosine(update, part.release(update, None, generator=g).observed) for g in generators]
    gaps = sample_gaps(sum(_sizes(update).values()), concentration, draws, np.random.default_rng(seed))
    return float(stats.ks_2samp(cosines, 1 - gaps).pvalue)


def _cosine(first: Tree, second: Tree) -> float:
    dot = sum(float((value * second[name]).sum()) for name, value in first.items())
    return dot / (_norm(first) * _norm(second))


def _norm(tree: Tree) -> float:
    return float(trees.norm(tree))


def _sizes(update: Tree) -> dict[str, int]:
    return {name: value.numel() for name, value in update.items()}


def _sensitivity(update: Tree) -> Sensitivity:
    return Sensitivity(_sizes(update), batch=2)


@dataclass(frozen=True)
class OneExample(ExampleContext):
    """The same client without its second example: it contributes zeros."""

    def per_example(self) -> dict[str, Tensor]:
        return {
            name: each * torch.tensor([1.0, 0.0]).to(each).view(2, *[1] * (each.dim() - 1))
            for name, each in super().per_example().items()
        }
