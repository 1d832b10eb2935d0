"""What all metrics share."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.expr import Part
from leakgauge.meaning import Meaning
from leakgauge.types import Domain, Kind


class MetricPart(Part):
    """A metric as a frozen value: ``ssim()``, ``feature_share(tolerance=0.05)``.

    A subclass says its ``meaning``, the ``kinds`` of records it compares, and ``__call__``; where a faster way exists,
    ``pairwise``, too. Laws: one score per record, never NaN; a record compared with itself gets the best score;
    the score of a record does not depend on its neighbours; ``pairwise`` is the loop over ``__call__``, to rounding.
    """

    meaning: ClassVar[Meaning]
    kinds: ClassVar[tuple[Kind, ...]]

    @property
    def name(self) -> str:
        return self.meaning.name

    @property
    def direction(self) -> Literal["higher", "lower"]:
        return self.meaning.direction

    @property
    def threshold(self) -> float:
        return self.meaning.threshold

    @property
    def exact(self) -> float | None:
        return self.meaning.exact

    def on(self, domain: Domain) -> Self:
        """The same metric, knowing the domain; a DomainError where it does not apply."""
        if domain.kind not in self.kinds:
            raise DomainError(
                f"{self.meaning.label} compares {' and '.join(self.kinds)} records, these are {domain.kind} records",
                where=self.name,
                remedy="leave the metric out, or name one of the domain",
            )
        return self

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        raise NotImplementedError

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        """Every reconstruction against every original, ``[m, n]``: one row after the other."""
        rows = [self(one.expand(originals.shape), originals) for one in reconstructions]
        return torch.stack(rows) if rows else torch.zeros(0, len(originals), dtype=torch.float64)


def same_shape(reconstruction: Tensor, original: Tensor, where: str) -> None:
    """Refuse a comparison of tensors of different shapes."""
    if reconstruction.shape != original.shape:
        raise DomainError(
            f"reconstruction {list(reconstruction.shape)} and original {list(original.shape)} differ in shape",
            where=where,
            remedy="give one reconstruction per record, in the record's shape",
        )
