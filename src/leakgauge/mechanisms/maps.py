"""Deterministic maps of an update: identity and clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Generator, Tensor

from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.mechanisms.base import EntryDensity, UpdatePart
from leakgauge.types import Context, Release, Side, Tree, Updates


@register("mechanism", "identity")
@dataclass(frozen=True, repr=False)
class Identity(UpdatePart):
    """No defense: the update leaves as it is."""

    closed: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(dict(update))

    def apply(self, update: Updates, side: Side) -> Updates:
        return update

    def after(self, density: EntryDensity, side: Side) -> EntryDensity:
        return density

    @classmethod
    def neutral(cls) -> Self:
        return cls()


@register("mechanism", "clip")
@dataclass(frozen=True, repr=False)
class Clip(UpdatePart):
    """Scale an update down to a largest norm.

    ``u ↦ u · min(1, C / ‖u‖₂)``, with ``C = norm`` and the norm over all tensors, or over the weight and bias
    of each layer (``per="layer"``). This clips a client's whole update, not each example's gradient.
    Deterministic, hence without a density: let a chain contain noise.

    References:
        McMahan et al., Learning Differentially Private Recurrent Language Models, 2018 (flat and per-layer
        clipping). https://arxiv.org/abs/1710.06963
    """

    norm: float
    per: Literal["update", "layer"] = "update"
    closed: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise DomainError(f"norm must be positive, got {self.norm}", where="clip")
        if self.per not in ("update", "layer"):
            raise DomainError(f'per must be "update" or "layer", got {self.per!r}', where="clip")

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        squares = torch.stack([t.square().sum() for t in update.values()])
        factor = self._factor(squares, tuple(update))
        return Release({name: u * s for (name, u), s in zip(update.items(), factor, strict=True)})

    def apply(self, update: Updates, side: Side) -> Updates:
        return update.scaled(self._factor(update.square(), update.names))

    def after(self, density: EntryDensity, side: Side) -> EntryDensity | None:
        return None if math.isfinite(self.norm) else density

    def _factor(self, squares: Tensor, names: tuple[str, ...]) -> Tensor:
        """``min(1, C / ‖u‖)`` for every tensor; ``squares`` is ``[…, L]``."""
        layers = [name.rpartition(".")[0] if self.per == "layer" else "" for name in names]
        of = torch.tensor([sorted(set(layers)).index(layer) for layer in layers], device=squares.device)
        together = squares.new_zeros(*squares.shape[:-1], len(set(layers))).index_add(-1, of, squares)
        # an all-zero update is legal (frozen layers): clamp before the root, whose slope at zero is infinite
        norm = together.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
        return (self.norm / norm).clamp(max=1.0)[..., of] if math.isfinite(self.norm) else torch.ones_like(squares)

    @classmethod
    def neutral(cls) -> Self:
        return cls(norm=math.inf)
