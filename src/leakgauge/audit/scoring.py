"""Scores of reconstructions, by the metrics of the domain: only here are they compared with the records."""

from __future__ import annotations

from torch import Tensor

from leakgauge.meaning import storable
from leakgauge.metrics import DomainMetrics, feature_errors
from leakgauge.types import Domain


def scores(measures: DomainMetrics, inputs: Tensor, truth: Tensor) -> dict[str, list[float]]:
    """Metric → one score per record."""
    return {name: list(map(storable, by.tolist())) for name, by in measures.scores(inputs, truth).items()}


def cross(measures: DomainMetrics, inputs: Tensor, truth: Tensor) -> dict[str, list[list[float]]]:
    """Metric → unrelated update → its score against every record; batches ``[J, B, …]`` and ``[U, B, …]``."""
    table = measures.cross(inputs, truth)
    return {name: [list(map(storable, row)) for row in by.tolist()] for name, by in table.items()}


def errors_by_feature(domain: Domain, inputs: Tensor, truth: Tensor) -> list[list[float]]:
    """Per record the error of each feature of a table, see :func:`~leakgauge.metrics.feature_errors`; else nothing."""
    if domain.kind != "table":
        return []
    errors = feature_errors(inputs, truth, domain.features)
    return [list(map(storable, row)) for row in errors.tolist()]
