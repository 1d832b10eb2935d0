"""The metrics of tables as values: the share of features, correct digits, and the error that matches rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.expr import Part, register
from leakgauge.meaning import Meaning
from leakgauge.metrics.base import MetricPart, same_shape
from leakgauge.metrics.features import feature_errors, plain, varying, weighted
from leakgauge.types import Domain, Feature, Kind

CHUNK = 1 << 22
"""Entries of a comparison of all pairs that are in memory at once."""


@dataclass(frozen=True, repr=False)
class TableMetric(MetricPart):
    """A metric of rows ``[n, columns]`` that knows their features; ``on(domain)`` tells it."""

    kinds: ClassVar[tuple[Kind, ...]] = ("table",)

    features: tuple[Feature, ...] = ()

    def __repr__(self) -> str:
        return Part.__repr__(replace(self, features=()))  # an expression says how to measure, not what

    def on(self, domain: Domain) -> Self:
        metric = super().on(domain)
        features = domain.features or plain(domain.size)
        varying(features)
        return replace(metric, features=features)

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        same_shape(reconstruction, original, self.name)
        return self._score(self.errors(reconstruction, original))

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        rows = [self._score(self.errors(one[:, None], originals)) for one in _chunks(reconstructions, originals)]
        return torch.cat(rows) if rows else torch.zeros(0, len(originals), dtype=torch.float64)

    def errors(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        """The errors of the features that vary, ``[…, features]``; see :func:`~leakgauge.metrics.feature_errors`."""
        features = self.features or plain(original.shape[-1])
        return feature_errors(reconstruction, original, features)[..., varying(features)]

    def _score(self, errors: Tensor) -> Tensor:
        raise NotImplementedError


@register("metric", "feature_share")
@dataclass(frozen=True, repr=False)
class FeatureShare(TableMetric):
    """The share of features that a reconstruction has right: it judges tables.

    A number is right within ``tolerance`` standard deviations of its column, a category if its largest entry is the
    right one. Another record's row has a number right with probability about ``tolerance / √π`` if it is normal (0.06
    at 0.1), and a category as often as two records agree: compare with :func:`~leakgauge.metrics.another_record`.

    References:
        Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, 2023 (with a tolerance of 0.319).
        https://arxiv.org/abs/2210.01785
    """

    meaning: ClassVar[Meaning] = Meaning(
        "feature_share",
        "share of features",
        "share of features recovered: numbers within a fraction of their standard deviation, categories exactly",
        threshold=0.75,
    )

    tolerance: float = 0.1

    def __post_init__(self) -> None:
        guards.positive(self.tolerance, "tolerance", "feature_share")

    def _score(self, errors: Tensor) -> Tensor:
        return (errors <= self.tolerance).double().mean(-1)


@register("metric", "digits")
@dataclass(frozen=True, repr=False)
class Digits(TableMetric):
    """Correct digits of the worst feature: ``max(0, −log₁₀ max_f |x̂_f − x_f| / spread_f)``; 0 if a category is wrong.

    From 3 on the row is recovered to numerical precision: every number to a thousandth of its standard deviation (an
    image's 60 dB are a thousandth of its range), every category.
    """

    meaning: ClassVar[Meaning] = Meaning(
        "digits",
        "correct digits",
        "correct digits of the worst feature, in standard deviations; 0 if a category is wrong",
        threshold=1.0,
        exact=3.0,
        best=None,
        digits=1,
    )

    def _score(self, errors: Tensor) -> Tensor:
        return (-errors.amax(-1).log10()).clamp(min=0)


@register("metric", "row_error")
@dataclass(frozen=True, repr=False)
class RowError(TableMetric):
    """Mean over the features of ``((x̂ − x) / spread)²``, for a category ``‖x̂ − x‖²/2``: it matches rows with records.

    Infinite for a row with a non-finite entry.
    """

    meaning: ClassVar[Meaning] = Meaning(
        "row_error",
        "row error",
        "mean squared error of the features, each in its standard deviation",
        threshold=0.01,
        exact=1e-6,
        direction="lower",
        worst=None,
        best=0.0,
        digits=4,
    )

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        same_shape(reconstruction, original, self.name)
        features = self.features or plain(original.shape[-1])
        gaps = weighted(reconstruction, features) - weighted(original, features)
        return _finite(gaps.square().sum(-1) / len(varying(features)))

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        features = self.features or plain(originals.shape[-1])
        ours, theirs = weighted(reconstructions, features), weighted(originals, features)
        gaps = torch.cdist(ours, theirs, compute_mode="donot_use_mm_for_euclid_dist")
        return _finite(gaps.square() / len(varying(features)))


def _finite(error: Tensor) -> Tensor:
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf)


def _chunks(reconstructions: Tensor, originals: Tensor) -> Iterator[Tensor]:
    """The reconstructions, so many at a time that their comparison with all originals fits into memory."""
    size = max(1, CHUNK // max(1, originals.numel()))
    for start in range(0, len(reconstructions), size):
        yield reconstructions[start : start + size]
