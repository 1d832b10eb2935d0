"""Samples of what a part lets out, and the density that they should follow.

Three ways to draw: :class:`Releases` calls ``release`` many times on an update of one or two entries, and holds for any
part; :class:`Entries` calls it once on a wide tensor of equal entries, for parts that act on each entry by itself
given a statistic of the tensor, such as a threshold; :class:`Directions` is for noise on the unit sphere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.defenses import Chain, Quantise, UpdatePart
from leakgauge.types import Known, own_of
from leakgauge.updates import Batch, Stack

NAME = "layer.weight"
"""The one tensor of the updates that are drawn."""
CHUNK = 2**20
"""Entries of one call of ``log_density``: few enough to stay in the cache."""


def pieces(part: UpdatePart, known: Mapping[str, Any]) -> list[tuple[UpdatePart, dict[str, Any]]]:
    """The parts of a chain, or the part itself, each with what is known of it, by bare names."""
    if isinstance(part, Chain):
        return [(piece, own_of(known, label)) for label, piece in part.labelled.items()]
    return [(part, dict(known))]


@dataclass(frozen=True)
class Releases:
    """What many releases of one small update let out.

    ``values`` is ``[n, d]``, one row per release of ``update`` ``[d]``; ``known`` holds what was granted, the same
    in every row.
    """

    part: UpdatePart
    update: Tensor
    values: Tensor
    known: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def granted(
        cls, part: UpdatePart, update: Tensor, grant: frozenset[str], *, draws: int, seed: int
    ) -> Iterator[Releases]:
        """One sample for every value that the granted nuisances took (a mask of two entries takes four)."""
        generator = torch.Generator().manual_seed(seed)
        releases = [part.release({NAME: update}, None, generator=generator) for _ in range(draws)]
        values = torch.stack([out.observed[NAME] for out in releases])
        keys = [key for key in releases[0].drawn if _last(key) in grant]
        named = {key: torch.stack([out.drawn[key][NAME] for out in releases]) for key in keys}
        rows = torch.cat([values.new_zeros(draws, 1), *(value.flatten(1).to(values) for value in named.values())], 1)
        combinations, which = rows.unique(dim=0, return_inverse=True)
        if len(combinations) > 64:
            raise AssertionError(
                f"{part!r}: {len(combinations)} different values of {sorted(grant)} in {draws} releases"
            )
        for i in range(len(combinations)):
            at = which == i
            yield cls(part, update, values[at], {key: value[at][0] for key, value in named.items()})

    def log_density(self, observed: Tensor) -> Tensor:
        """``log p(observed | update)`` of rows ``[G, d]``."""
        known: Known = {key: {NAME: value.expand(len(observed), *value.shape)} for key, value in self.known.items()}
        update = Batch.of({NAME: self.update.expand_as(observed)})
        return self.part.log_density(Stack({NAME: observed}), update, known=known)

    def breaks(self) -> list[float]:
        """Where the density may have a kink or a jump."""
        return [0.0, *self.update.tolist()]

    def atoms(self) -> Tensor:
        return self.values.new_zeros(0)

    def __str__(self) -> str:
        conditions = "".join(f", {key} = {value.tolist()}" for key, value in self.known.items())
        return f"{self.part!r} on {self.update.tolist()}{conditions}"


@dataclass(frozen=True)
class Entries:
    """What one release of a wide update of equal entries let out.

    ``values`` is ``[n, 1]``, one row per entry (of those whose granted nuisances agree); statistics of the tensor,
    seen or granted, are in ``known`` as released, nuisances of the entry as one number each.
    """

    part: UpdatePart
    level: float
    width: int
    values: Tensor
    known: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def draw(cls, part: UpdatePart, level: float, *, entries: int, seed: int) -> Entries:
        return next(cls.granted(part, level, frozenset(), entries=entries, seed=seed))

    @classmethod
    def granted(
        cls, part: UpdatePart, level: float, grant: frozenset[str], *, entries: int, seed: int
    ) -> Iterator[Entries]:
        update = torch.full((entries,), level, dtype=torch.float64)
        release = part.release({NAME: update}, None, generator=torch.Generator().manual_seed(seed))
        observed = release.observed[NAME]
        visible = part.visible(Stack({NAME: observed.unsqueeze(0)}))
        statistics = {key: tree[NAME].flatten() for key, tree in visible.items() if tree[NAME].numel() == 1}
        granted = {key: tree[NAME].flatten() for key, tree in release.drawn.items() if _last(key) in grant}
        statistics.update({key: value for key, value in granted.items() if value.numel() == 1})
        masks = {key: value for key, value in granted.items() if value.numel() == entries > 1}
        rows = torch.stack([observed.new_zeros(entries), *(m.to(observed) for m in masks.values())], 1)
        combinations, which = rows.unique(dim=0, return_inverse=True)
        for i in range(len(combinations)):
            at = which == i
            own = {key: value[at][:1] for key, value in masks.items()}
            sample = cls(part, level, entries, observed[at].unsqueeze(1), {**statistics, **own})
            yield replace(sample, values=_snapped(sample.values, sample.atoms()))

    def log_density(self, observed: Tensor) -> Tensor:
        """``log p(o_e | update)`` of rows ``[G, 1]``: all entries get the same o, and an equal share of the whole."""
        width = self.width
        few = observed[:: max(1, len(observed) // 8)]
        if torch.allclose(self._share(few, 4), self._share(few, width), rtol=1e-9, atol=1e-9):
            width = 4  # the density of an entry does not depend on how many there are (clipping's does)
        return torch.cat([self._share(piece, width) for piece in observed.split(max(1, CHUNK // width))])

    def _share(self, observed: Tensor, width: int) -> Tensor:
        rows = len(observed)
        known: Known = {key: {NAME: value.expand(rows, 1)} for key, value in self.known.items()}
        update = Batch.of({NAME: observed.new_full((rows, width), self.level)})
        return self.part.log_density(Stack({NAME: observed.expand(rows, width)}), update, known=known) / width

    def breaks(self) -> list[float]:
        """Where the density may have a kink or a jump."""
        ends = [float(value) for value in self.known.values() if value.is_floating_point()]
        return [0.0, self.level, *ends, *(-end for end in ends)]

    def atoms(self) -> Tensor:
        """The levels of a rounding whose step is known."""
        levels = [self.values.new_zeros(0)]
        for piece, own in pieces(self.part, self.known):
            if isinstance(piece, Quantise) and "step" in own:
                levels.append(torch.arange(-piece.levels, piece.levels + 1) * own["step"])
        return torch.cat(levels)

    def __str__(self) -> str:
        conditions = "".join(f", {key} = {float(value):.3g}" for key, value in self.known.items())
        return f"{self.part!r} on {self.width} entries of {self.level}{conditions}"


@dataclass(frozen=True)
class Directions:
    """What many releases of an update of two or three entries let out on the unit sphere.

    ``values`` is ``[n, d − 1]``: the angle on the circle; on the sphere the height z and the longitude: there area is
    ``dz dφ`` (Archimedes), so that the density per area needs no factor.
    """

    part: UpdatePart
    update: Tensor
    values: Tensor
    known: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def granted(
        cls, part: UpdatePart, update: Tensor, grant: frozenset[str], *, draws: int, seed: int
    ) -> Iterator[Directions]:
        """As :meth:`Releases.granted`; a mask that leaves nothing is drawn too, and gives the uniform law."""
        for sample in Releases.granted(part, update, grant, draws=draws, seed=seed):
            away = float((sample.values.norm(dim=1) - 1).abs().max())
            assert away < 1e-6, f"{part!r} lets something out that is {away:.1e} off the unit sphere"
            yield cls(part, update, _coordinates(sample.values), sample.known)

    def log_density(self, coordinates: Tensor) -> Tensor:
        """``log p(o | update)`` of rows ``[G, d − 1]`` of coordinates; nothing lies beyond their ends."""
        limits = coordinates.new_tensor([1.0, math.pi][-coordinates.shape[1] :])
        inside = (coordinates.abs() <= limits).all(1)
        plain = Releases(self.part, self.update, self.values, self.known)
        values = plain.log_density(_points(coordinates.clamp(-limits, limits)))
        return torch.where(inside, values, -math.inf)

    def breaks(self) -> list[float]:
        """The ends of the coordinates, and the direction of the update."""
        return [-math.pi, -1.0, 0.0, 1.0, math.pi, *_coordinates(self.update.unsqueeze(0)).flatten().tolist()]

    def atoms(self) -> Tensor:
        return self.values.new_zeros(0)

    def __str__(self) -> str:
        return str(Releases(self.part, self.update, self.values, self.known))


def _coordinates(points: Tensor) -> Tensor:
    angle = torch.atan2(points[:, 1], points[:, 0]).unsqueeze(1)
    return torch.cat([points[:, 2:], angle], 1)


def _points(coordinates: Tensor) -> Tensor:
    *height, angle = coordinates.unbind(1)
    radius = torch.stack([1 - z.square() for z in height]).sum(0).clamp(min=0).sqrt() if height else 1.0
    return torch.stack([radius * angle.cos(), radius * angle.sin(), *height], 1)


def depends_on_statistics(part: UpdatePart) -> bool:
    """Whether a nuisance of the part is a statistic of the tensor rather than a matter of one entry."""
    update = torch.linspace(-1, 1, 7, dtype=torch.float64)
    release = part.release({NAME: update}, None, generator=torch.Generator().manual_seed(0))
    return any(tree[NAME].numel() != update.numel() for tree in release.drawn.values())


def _snapped(values: Tensor, atoms: Tensor) -> Tensor:
    """Values that are an atom but for rounding, as that atom."""
    for atom in atoms:
        values = torch.where((values - atom).abs() <= 1e-12 * atoms.abs().max(), atom, values)
    return values


def _last(key: str) -> str:
    return key.rpartition(".")[2]
