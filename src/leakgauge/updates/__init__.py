"""Arithmetic on named tensors, and the algebra of N candidates' updates: plain, factored, per example."""

from leakgauge.updates.batch import Batch, Examples
from leakgauge.updates.entrywise import (
    EntryMap,
    Entrywise,
    Sloped,
    Slopes,
    absolute_residual,
    excess,
    masked,
    product,
    soft_sign,
    squared,
    squared_residual,
)
from leakgauge.updates.factored import Factored
from leakgauge.updates.leaves import Dense, Leaf, Mapped, Sharing
from leakgauge.updates.trees import Stack, mapped, norm, square, stacked

__all__ = [
    "Batch",
    "Dense",
    "EntryMap",
    "Entrywise",
    "Examples",
    "Factored",
    "Leaf",
    "Mapped",
    "Sharing",
    "Sloped",
    "Slopes",
    "Stack",
    "absolute_residual",
    "excess",
    "mapped",
    "masked",
    "norm",
    "product",
    "soft_sign",
    "square",
    "squared",
    "squared_residual",
    "stacked",
]
