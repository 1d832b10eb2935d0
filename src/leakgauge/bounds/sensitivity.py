"""How far the records of a client can move what the noise is added to: the sensitivity of a chain of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from leakgauge import guards
from leakgauge.bounds.epsilon import Unit
from leakgauge.defenses import Clip, Identity, Protection, RandomPrune, UpdatePart, VonMisesFisher, parts_of
from leakgauge.defenses.protection import STAGES

Sizes = int | Mapping[str, int]
"""p, the entries of an update; or the entries of each of its tensors."""


@dataclass(frozen=True)
class Reach:
    """The set of updates that can reach the noise (its sensitivity).

    ``radius`` is that of a ball around 0 that contains them, ``one`` how far one unit can move the update (removal:
    to the zero contribution); ``layers`` are the balls of layers clipped separately; ``keep`` is the probability that
    an entry survives pruning. Radii are infinite where nothing clips.
    """

    dim: int
    radius: float = math.inf
    one: float = math.inf
    layers: tuple[tuple[int, float], ...] = ()
    keep: float = 1.0
    unit: Unit = "client"

    @property
    def l1(self) -> float:
        """``‖u‖₁ ≤ √p ‖u‖₂``, layer by layer where layers are clipped separately."""
        whole = math.sqrt(self.dim) * self.radius
        return min(whole, math.fsum(math.sqrt(n) * r for n, r in self.layers)) if self.layers else whole

    @property
    def one_l1(self) -> float:
        """The same for one unit."""
        return min(self.l1, math.sqrt(self.dim) * self.one)


def reach_of(
    whole: Protection, noise: int, sizes: Sizes, batch: int, grants: frozenset[str], *, mean: bool
) -> Reach | str:
    """The sensitivity at the noise (given by its place in the chain), or a sentence why it is unbounded."""
    parts = parts_of(whole.update)
    leak = _goes_around(whole, parts, noise, grants)
    if leak:
        return leak
    dims = {"": sizes} if isinstance(sizes, int) else dict(sizes)
    reach = Reach(sum(guards.count(n, "sizes", "bound of a protection") for n in dims.values()))
    if isinstance(parts[noise], VonMisesFisher):
        return replace(reach, radius=1.0, one=1.0)  # every direction is possible, and clipping changes none
    for part in parts[:noise]:
        if isinstance(part, Clip) and math.isfinite(part.norm):
            if part.per == "layer" and isinstance(sizes, int):
                return f"{part!r} needs the sizes of the layers; give sizes by tensor name"
            reach = _clipped(reach, part, dims, batch, whole, mean)
        elif isinstance(part, RandomPrune):
            reach = replace(reach, keep=reach.keep * (1 - part.p))
        elif not part.shrinks and math.isfinite(reach.radius):
            return f"{part!r} may increase the norm of the update between clipping and {parts[noise]!r}; put it first"
        elif not isinstance(part, Clip | Identity):
            # it may jump where a record moves its input a little (a threshold does), and carry from entry to entry: of
            # what is known only the length is left, and the whole ball is one unit's
            reach = replace(reach, one=reach.radius, layers=(), keep=1.0, unit="client")
    if math.isinf(reach.radius):
        return (
            f"nothing clips the update before {parts[noise]!r}, so its sensitivity to a record is unbounded; "
            "put clip(norm=…) before it"
        )
    return reach


def _goes_around(whole: Protection, parts: tuple[UpdatePart, ...], noise: int, grants: frozenset[str]) -> str | None:
    """What reveals the record without passing through the noise."""
    for part in parts[noise + 1 :]:
        if not part.closed:
            return (
                f"{part!r} acts after {parts[noise]!r} but is not post-processing: it may use the record; put it first"
            )
    early = [part for stage in STAGES[:3] for part in getattr(whole, stage)]
    for part in (*early, *parts[:noise]):
        told = sorted({name.rpartition(".")[2] for name in part.nuisances} & grants)
        if told and not isinstance(part, RandomPrune):  # its mask was drawn without a look at the record
            return f"the granted {told[0]} of {part!r} may depend on the record and bypasses the noise"
    return None


def _clipped(reach: Reach, part: Clip, dims: Mapping[str, int], batch: int, whole: Protection, mean: bool) -> Reach:
    if part.per == "layer":
        layers: dict[str, int] = {}
        for name, n in dims.items():
            layer = name.rpartition(".")[0]
            layers[layer] = layers.get(layer, 0) + n
        radius = min(reach.radius, part.norm * math.sqrt(len(layers)))
        return replace(
            reach, radius=radius, one=min(reach.one, radius), layers=tuple((n, part.norm) for n in layers.values())
        )
    if part.per == "example":
        radius = part.norm if mean else batch * part.norm
        # where records are mixed before, every example may hold the record
        one = radius if whole.input else radius / batch
        return replace(reach, radius=radius, one=one, unit="client" if whole.input else "record")
    radius = min(reach.radius, part.norm)
    return replace(reach, radius=radius, one=min(reach.one, radius))
