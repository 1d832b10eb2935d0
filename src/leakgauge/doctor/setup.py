"""How a client may have trained: the settings that the doctor tries, and how a spec writes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Channels = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel."""


@dataclass(frozen=True)
class Setup:
    """How a client may have trained: a recipe, and what else must agree between its files and our model.

    ``holds`` says what is in the file "after": the new weights, their change, or a gradient. ``sign`` is −1 where a
    change or gradient points the other way, ``swapped`` where "before" is really the later one. ``order`` lists the
    examples in the order of their use, ``names`` pairs ``(in the model, in the file)`` of parameters that stand under
    another name, in both files or only in "after" (``renamed``). ``shares`` says what a defense acts on, gradient or
    change of weights; without a defense it makes no difference.
    """

    mode: Literal["train", "eval"] = "eval"
    reduction: Literal["mean", "sum"] = "mean"
    smoothing: float = 0.0
    holds: Literal["weights", "change", "gradient"] = "weights"
    sign: int = 1
    swapped: bool = False
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    local_steps: int = 1
    minibatch: int | None = None
    shares: Literal["gradient", "change"] = "change"
    order: tuple[int, ...] | None = None
    normalise: Channels | None = None
    names: tuple[tuple[str, str], ...] = ()
    renamed: Literal["both", "after"] = "both"

    def text(self, *keys: str) -> str:
        """Settings as a spec writes them."""
        return ", ".join(f"{key} = {_written(getattr(self, key))}" for key in keys)

    def other_reduction(self, batch: int) -> Setup:
        """The same updates with a sum for a mean or the other way round, and rates to match."""
        size = self.minibatch or batch
        factor = 1 / size if self.reduction == "mean" else float(size)
        return replace(
            self,
            reduction="sum" if self.reduction == "mean" else "mean",
            learning_rate=self.learning_rate * factor,
            weight_decay=self.weight_decay / factor,
        )

    def differs(self, other: Setup) -> tuple[str, ...]:
        """The settings in which two set-ups differ."""
        return tuple(key for key in KEYS if getattr(self, key) != getattr(other, key))


KEYS = tuple(key for key in Setup.__dataclass_fields__ if key != "renamed")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[0][0], float):
        mean, std = (", ".join(f"{v:.4g}" for v in vs) for vs in value)
        return f"{{ mean = [{mean}], std = [{std}] }}"
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return ", ".join(f"{a} <-> {b}" for a, b in value if a < b or (b, a) not in value)
        return str([*value])
    return "none" if value is None else str(value)
