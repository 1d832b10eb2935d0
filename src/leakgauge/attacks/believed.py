"""What an adversary may believe of a protection whose own density it cannot have.

A belief is a chain that has a density and is near the true one; :class:`~leakgauge.adversary.Density` takes it as
``assumed``. Every part keeps its label, so that what is granted or read off keeps its address.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from leakgauge.defenses import Chain, Clip, Gaussian, Identity, Quantise, RandomPrune, UpdatePart, parts_of
from leakgauge.defenses.update.chain import is_noise
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.types import Tree
from leakgauge.updates import square


@dataclass(frozen=True, repr=False)
class Dropping(RandomPrune):
    """Pruning at random in the place of a hidden threshold, under the label of the part that it stands for."""

    stands_for: Thresholded

    def __repr__(self) -> str:
        return repr(RandomPrune(p=self.p))


def beliefs(update: UpdatePart, granted: Collection[str] = ()) -> list[UpdatePart]:
    """What may be believed in the place of a chain, the nearest first; nothing where nothing is known to help.

    Granted nuisances are used as they are. Where that still leaves no density, their parts are replaced as if nothing
    were granted.
    """
    chains = [believed(update, granted), *([believed(update)] if granted else [])]
    return [chain for i, chain in enumerate(chains) if chain != update and chain not in chains[:i]]


def believed(update: UpdatePart, granted: Collection[str] = ()) -> UpdatePart:
    """A chain with a density in the place of one without; the same chain where nothing is known to help.

    - A threshold hidden by later noise: entries are dropped at random, as many as the pruning drops.
    - Clipping after a hidden random mask: before it, at ``C / √(1 − p)``, since ``‖m ⊙ u‖² ≈ (1 − p) ‖u‖²``.
    - Gaussian noise twice in a row: once, at ``√(σ₁² + σ₂²)``.

    Parts whose nuisances are ``granted``, by address, stay as they are.
    """
    labels = Chain(parts_of(update)).labelled
    hidden = {
        label: part
        for label, part in labels.items()
        if not any(f"{label}.{nuisance.name}" in granted for nuisance in part.nuisances)
    }
    labelled = list(labels.items())
    noise = next((i for i, (_, part) in enumerate(labelled) if is_noise(part)), len(labelled))
    for i, (label, part) in enumerate(labelled[:noise]):
        if isinstance(part, Thresholded) and part != part.neutral() and label in hidden:
            labelled[i] = label, Dropping(p=1 - part.share, stands_for=part)
    for last in range(noise - 1, 0, -1):
        for i in range(last):
            (label, mask), (other, clip) = labelled[i : i + 2]
            whole = isinstance(clip, Clip) and clip.per == "update"
            if whole and isinstance(mask, RandomPrune) and label in hidden:
                assert isinstance(clip, Clip)
                labelled[i : i + 2] = [(other, replace(clip, norm=clip.norm / math.sqrt(1 - mask.p))), (label, mask)]
    parts = [part for _, part in labelled]
    for i in range(noise, len(parts) - 1):
        first, second = parts[i : i + 2]
        if isinstance(first, Gaussian) and isinstance(second, Gaussian):
            parts[i : i + 2] = [Identity(), Gaussian(std=math.hypot(first.std, second.std))]
    return Chain(tuple(parts)) if len(parts) > 1 else parts[0]


def without_small_noise(update: UpdatePart, observed: Sequence[Tree]) -> UpdatePart:
    """``noise | … | quantise`` without its noise where the observed steps are much larger; other chains unchanged.

    The density is then as steep as that of the rounding alone, and a candidate that is not nearly right finds no way.
    Chosen on a few train records of Fashion-MNIST.
    """
    parts = list(parts_of(update))
    laws = {i: law for i, part in enumerate(parts) if (law := part.noise_law) is not None and law.size > 0}
    rounding = next((i for i, part in enumerate(parts) if isinstance(part, Quantise)), None)
    if not laws or rounding is None or rounding < min(laws):
        return update
    noise, law = min(laws.items())
    chain = Chain(tuple(parts))
    address = f"{list(chain.labelled)[rounding]}.step"
    visible = [chain.visible({n: o.unsqueeze(0) for n, o in one.items()}) for one in observed]
    steps = torch.tensor([float(step) for known in visible for step in known.get(address, {}).values()])
    if not len(steps) or float(steps.median()) <= SMALL * law.size:
        return update
    return Chain((*parts[:noise], Identity(), *parts[noise + 1 :]))


SMALL = 15.0
"""Noise is ignored where the median quantisation step exceeds its size this many times."""


def received_norm(observed: Tree, noise: UpdatePart) -> float:
    """The norm of an update before noise: ``√(‖o‖² − E‖noise‖²)``, at least one deviation of that difference.

    After clipping it is the bound, or the norm of an update that was within it, which is as good.
    """
    entries = sum(o.numel() for o in observed.values())
    variance = 0.0 if noise.noise_law is None else noise.noise_law.variance
    least = variance * math.sqrt(2 * entries)
    return math.sqrt(max(float(square(observed)) - entries * variance, least, 1e-30))


def with_received_norm(update: UpdatePart, observed: Tree) -> UpdatePart:
    """``clip | noise`` with the bound that the received norm suggests; other chains as they are."""
    parts = parts_of(update)
    if len(parts) == 2 and isinstance(parts[0], Clip) and parts[0].per == "update" and is_noise(parts[1]):
        return Chain((replace(parts[0], norm=received_norm(observed, parts[1])), parts[1]))
    return update
