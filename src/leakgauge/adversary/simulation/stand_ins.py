"""Stand-ins: what the adversary puts in the place of a part that says nothing of itself.

Each is an update-stage part with the label of the one that it stands for, so that addresses stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from leakgauge.adversary.simulation.rearrangement import Rearrangement
from leakgauge.defenses import EntryDensity, RandomPrune, UpdatePart
from leakgauge.errors import DomainError
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates
from leakgauge.updates import Batch, masked

Entries = Callable[[Tensor], Tensor]
"""A differentiable map of the entries of N updates, ``[N, P]``."""


@dataclass(frozen=True, repr=False, eq=False)
class StandIn(UpdatePart):
    """What the adversary knows of ``stands_for`` from simulating it; ``sentence`` says it in the ledger.

    One for a ``whole`` chain has no nuisances: nothing that is granted of its parts is used.
    """

    stands_for: UpdatePart
    sentence: str = field(default="", kw_only=True)
    whole: bool = field(default=False, kw_only=True)

    def __repr__(self) -> str:
        return repr(self.stands_for)

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return () if self.whole else self.stands_for.nuisances

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        out = self.stands_for.release(update, context, generator=generator)
        return Release(out.observed) if self.whole else out


@dataclass(frozen=True, repr=False, eq=False)
class Rearranged(StandIn):
    """A map that only renames, scales or shifts entries."""

    how: Rearrangement = field(kw_only=True)

    def apply(self, update: Updates, known: Known) -> Batch:
        return mapped(update, self.how)

    def undone(self, observed: Tree) -> dict[str, Tensor] | None:
        return trees_of(self.how.undone(entries_of(observed)), observed) if self.how.is_bijection else None


@dataclass(frozen=True, repr=False, eq=False)
class Dropped(StandIn):
    """A rearrangement that drops a ``share`` of the entries at random.

    They are zero, which shows. Where noise follows, it is summed out, as if each had been dropped by itself.
    """

    how: Rearrangement = field(kw_only=True)
    share: float = field(kw_only=True)

    def visible(self, observed: Tree) -> dict[str, Tree]:
        return {"survivors": {name: (value != 0).to(value) for name, value in observed.items()}}

    def apply(self, update: Updates, known: Known) -> Batch | None:
        return mapped(update, self.how).mapped(masked, known["survivors"]) if "survivors" in known else None

    def before(self, density: EntryDensity) -> EntryDensity | None:
        return RandomPrune(p=self.share).before(density) if self.how.is_identity else None


@dataclass(frozen=True, repr=False, eq=False)
class Traced(StandIn):
    """A deterministic map that is differentiated as it is, or whose slope is taken straight through."""

    how: Entries = field(kw_only=True)

    def apply(self, update: Updates, known: Known) -> Batch:
        return mapped(update, self.how)


@dataclass(frozen=True, repr=False, eq=False)
class Estimated(StandIn):
    """A random release: ``o_e ~ N(μ_e(u), v_e)``, with mean and variance from simulated releases of known updates.

    ``log p(o | u) = −½ Σ_e [(o_e − μ_e(u))² / v_e + log 2π v_e]``. The variance is the mean over known updates.
    In ``shared`` directions ``[P, r]`` of the whitened update the noise may have any size: they are left out.
    """

    how: Entries = field(kw_only=True)
    variance: Tensor = field(kw_only=True)
    shared: Tensor = field(kw_only=True)

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        batch = _formed(update)
        means = self.how(entries_of(batch.dense()))
        rows = batch.sharing.rows(means.device)
        # in double: what the shared directions hide can be far larger than what is left of it
        received = self._left(entries_of(observed).to("cpu", torch.float64)).to(means)
        away = (received[rows] - self._left(means)).square()
        return -0.5 * (away.sum(1) + (2 * math.pi * self.variance.to(means)).log().sum())

    def _left(self, entries: Tensor) -> Tensor:
        """Entries ``[N, P]`` in standard deviations, without the shared directions."""
        white, shared = entries / self.variance.to(entries).sqrt(), self.shared.to(entries)
        return white - white @ shared @ shared.T


@dataclass(frozen=True, repr=False, eq=False)
class Impulsive(StandIn):
    """A random release that replaces or shifts a few entries by far more than the others.

    ``log p(o | u) = −Σ_e log[π s_e (1 + (o_e − μ_e(u))² / s_e²)]``: a Cauchy law with the ``scale`` s of the entries
    that were left alone. Under a normal law of the same variance the few would hide them all.
    """

    how: Entries = field(kw_only=True)
    scale: Tensor = field(kw_only=True)

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        batch = _formed(update)
        means = self.how(entries_of(batch.dense()))
        scale = self.scale.to(means)
        away = (entries_of(observed).to(means)[batch.sharing.rows(means.device)] - means) / scale
        return -(away.square().log1p().sum(1) + (math.pi * scale).log().sum())


@dataclass(frozen=True, repr=False, eq=False)
class Flipped(StandIn):
    """A rearrangement after which every entry has a random sign, −1 with probability ``share``.

    ``log p(o | u) = Σ_e log[(1 − p) N(o_e; μ_e(u), s_e²) + p N(o_e; −μ_e(u), s_e²)]``: the size of an entry is sent as
    it is, and s is small beside it.
    """

    how: Entries = field(kw_only=True)
    scale: Tensor = field(kw_only=True)
    share: Tensor = field(kw_only=True)

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        batch = _formed(update)
        means = self.how(entries_of(batch.dense()))
        scale, share = self.scale.to(means), self.share.to(means)
        received = entries_of(observed).to(means)[batch.sharing.rows(means.device)]
        same, turned = (-0.5 * ((received - sign * means) / scale).square() for sign in (1, -1))
        either = torch.logaddexp(same + (1 - share).log(), turned + share.log())
        return (either - scale.log()).sum(1) - 0.5 * means.shape[1] * math.log(2 * math.pi)


def mapped(update: Updates, how: Entries) -> Batch:
    """N updates with their entries mapped all together."""
    batch = _formed(update)
    dense = batch.dense()
    return replace(Batch.of(trees_of(how(entries_of(dense)), dense)), sharing=batch.sharing)


def _formed(update: Updates) -> Batch:
    if not isinstance(update, Batch):
        raise DomainError(f"cannot form the updates of a {type(update).__name__}", where="simulation")
    return update


def entries_of(stack: Tree) -> Tensor:
    """``[N, P]`` from named tensors ``[N, …]``, in the order of the sorted names."""
    return torch.cat([stack[name].reshape(len(stack[name]), -1) for name in sorted(stack)], 1)


def trees_of(entries: Tensor, like: Tree) -> dict[str, Tensor]:
    """Named tensors ``[N, …]`` from ``[N, P]``, with the names in the order of ``like``."""
    names = sorted(like)
    pieces = dict(zip(names, entries.split([like[name][0].numel() for name in names], 1), strict=True))
    return {name: pieces[name].reshape(len(entries), *value.shape[1:]).to(value.dtype) for name, value in like.items()}
