"""The mean of a round, in clear or as a secure sum."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from leakgauge.fl.sums import SecureSums, fixed_point, from_fixed_point
from leakgauge.types import Tree


def mean(changes: Mapping[int, Tree], weights: Mapping[int, float]) -> dict[str, Tensor]:
    """``Σ w_k u_k / Σ w_k`` in float64: with equal weights, the mean to the last bit but one of float32."""
    total = sum(weights.values())
    return {
        name: sum((weights[k] / total * tree[name].double() for k, tree in changes.items()), start=first.double() * 0)
        for name, first in next(iter(changes.values())).items()
    }


def secure_mean(
    sums: SecureSums, changes: Mapping[int, Tree], weights: Mapping[int, float], number: int
) -> dict[str, Tensor]:
    """The same by a secure sum of weighted changes and weights: the server sees neither of a single client."""
    like = next(iter(changes.values()))
    ordered = {k: {name: tree[name] for name in like} for k, tree in changes.items()}  # a sum knows no names
    encoded = {str(k): fixed_point(tree, len(changes), weight=weights[k]) for k, tree in ordered.items()}
    return from_fixed_point(sums.attempt(encoded, f"update {number}"), like)


def misfit(change: Tree, params: Tree) -> str | None:
    """Why an update cannot be averaged, in a few words; None if it can."""
    for name, p in params.items():
        if name not in change:
            return f"its update has no parameter {name!r}"
        if not isinstance(change[name], Tensor):  # an engine of somebody's own may hand over anything
            return f"{name!r} is a {type(change[name]).__name__}, not a tensor"
        if change[name].shape != p.shape:
            return f"{name!r} has shape {tuple(change[name].shape)}, the model's has {tuple(p.shape)}"
        if not bool(change[name].isfinite().all()):
            return f"{name!r} holds NaN or infinite values"
    strange = next((name for name in change if name not in params), None)
    return None if strange is None else f"the model has no parameter {strange!r}"
