"""What a part promises so that something can be proven: sensitivity, post-processing, and the law of its noise.

A bound needs noise of a known law, and a limit on how far a record can move what the noise is added to. A part says
both about itself (:class:`~leakgauge.defenses.UpdatePart`); one that says nothing gets no bound, and is never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from leakgauge import guards
from leakgauge.errors import NoBoundError

Unit = Literal["record", "client"]
"""What is protected: one example of the batch, or all that a client sends."""

Sizes = int | Mapping[str, int]
"""p, the entries of an update; or the entries of each of its tensors."""


class NoiseLaw:
    """The kind of noise a part adds. What is proven of a law stands in :func:`leakgauge.bounds.proof_of`."""

    @property
    def variance(self) -> float:
        """Of one entry; 0 where noise is not added entry by entry."""
        return 0.0

    @property
    def size(self) -> float:
        """The parameter that the noise is proportional to; 0 where it has none."""
        return 0.0


@dataclass(frozen=True)
class GaussianNoise(NoiseLaw):
    """Independent ``N(0, std²)`` added to every entry."""

    std: float

    def __post_init__(self) -> None:
        guards.positive(self.std, "std", "Gaussian noise")

    @property
    def variance(self) -> float:
        return self.std**2

    @property
    def size(self) -> float:
        return self.std


@dataclass(frozen=True)
class LaplaceNoise(NoiseLaw):
    """Independent Laplace noise of density ``exp(−|e|/scale) / (2 scale)`` added to every entry."""

    scale: float

    def __post_init__(self) -> None:
        guards.positive(self.scale, "scale", "Laplace noise")

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    @property
    def size(self) -> float:
        return self.scale


@dataclass(frozen=True)
class VonMisesFisherNoise(NoiseLaw):
    """A draw on the unit sphere of all entries, of density ``∝ exp(concentration · cos)`` around the update.

    Nothing but the direction of the update enters, so that no clipping is needed.
    """

    concentration: float

    def __post_init__(self) -> None:
        guards.non_negative(self.concentration, "concentration", "von Mises-Fisher noise")


@dataclass(frozen=True)
class Sensitivity:
    """Which updates can reach one place of a chain, and how far one unit can move them there.

    ``radius`` is the largest L2 norm, ``l2`` the distance to the update without one ``unit`` (a removed client sends
    zeros), ``layers`` the entries and radius of layers that are limited one by one, ``keep`` the chance that an entry
    survives random pruning. Infinite where nothing is promised. ``sizes``, ``batch``, ``averaged`` (or summed) and
    ``mixed`` (records were mixed at the input stage) describe the client and stay as they are.

    A part turns the sensitivity before it into the one after it with the verbs below.
    """

    sizes: Sizes
    batch: int = 1
    averaged: bool = True
    mixed: bool = False
    radius: float = math.inf
    l2: float = math.inf
    layers: tuple[tuple[int, float], ...] = ()
    keep: float = 1.0
    unit: Unit = "client"

    @property
    def dim(self) -> int:
        """p, the entries of an update."""
        return self.sizes if isinstance(self.sizes, int) else sum(self.sizes.values())

    @property
    def radius_l1(self) -> float:
        """``‖u‖₁ ≤ √p ‖u‖₂``, layer by layer where they are limited so."""
        whole = math.sqrt(self.dim) * self.radius
        return min(whole, math.fsum(math.sqrt(n) * r for n, r in self.layers)) if self.layers else whole

    @property
    def l1(self) -> float:
        """How far one unit moves an update in L1."""
        return min(self._diameters * self.radius_l1, math.sqrt(self.dim) * self.l2)

    @property
    def _diameters(self) -> int:
        """Radii between an update and the one without a unit: one if that is zero, two if other records remain."""
        return 2 if self.unit == "record" and self.batch > 1 else 1

    def clipped(self, norm: float) -> Sensitivity:
        """After scaling down to an L2 norm: a projection, which moves no two updates apart."""
        if not math.isfinite(norm):
            return self
        radius = min(self.radius, norm)
        return replace(self, radius=radius, l2=min(self.l2, self._diameters * radius))

    def clipped_by_layer(self, norm: float) -> Sensitivity:
        """After clipping the tensors of each layer together, each layer to the norm."""
        if not math.isfinite(norm):
            return self
        if isinstance(self.sizes, int):
            raise NoBoundError("clipping per layer needs the sizes of the layers", remedy="give sizes by tensor name")
        entries: dict[str, int] = {}
        for name, n in self.sizes.items():
            layer = name.rpartition(".")[0]
            entries[layer] = entries.get(layer, 0) + n
        whole = self.clipped(norm * math.sqrt(len(entries)))
        return replace(whole, layers=tuple((n, norm) for n in entries.values()))

    def clipped_by_example(self, norm: float) -> Sensitivity:
        """After clipping the update of every example, before they are put together: now the unit is a record."""
        if not math.isfinite(norm):
            return self
        radius = norm if self.averaged else self.batch * norm
        # where records were mixed before, every example may hold the record
        return replace(
            self,
            radius=radius,
            l2=radius if self.mixed else radius / self.batch,
            unit="client" if self.mixed else "record",
        )

    def pruned(self, keep: float) -> Sensitivity:
        """After setting entries to zero with probability ``1 − keep`` without looking at them."""
        return replace(self, keep=self.keep * keep)

    def norm_only(self) -> Sensitivity:
        """After a map that lengthens no update and promises nothing else.

        It may jump where a record moves its input a little (a threshold does) and carry from entry to entry: only the
        length is left, and all of it counts as one unit's.
        """
        return replace(self, l2=self.radius, layers=(), keep=1.0, unit="client")

    def unknown(self) -> Sensitivity:
        """After a part that promises nothing."""
        return Sensitivity(self.sizes, self.batch, self.averaged, self.mixed)
