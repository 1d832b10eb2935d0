"""Deterministic maps of an update: identity and clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart
from leakgauge.defenses.update.promises import Sensitivity
from leakgauge.errors import ModelError
from leakgauge.expr import register
from leakgauge.types import Context, Known, Release, Tree, Updates
from leakgauge.updates import trees


@register("defense", "identity")
@dataclass(frozen=True, repr=False)
class Identity(UpdatePart):
    """No defense: the update leaves as it is."""

    post_processing: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(dict(update))

    def apply(self, update: Updates, known: Known) -> Updates:
        return update

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity:
        return density

    @classmethod
    def neutral(cls) -> Self:
        return cls()


@register("defense", "clip")
@dataclass(frozen=True, repr=False)
class Clip(UpdatePart):
    """Scale an update down to a largest norm.

    ``u ↦ u · min(1, C / ‖u‖₂)``, with ``C = norm`` and the norm over all tensors, or over the weight and bias
    of each layer (``per="layer"``): a client's whole update, so that noise after it protects the **client**. With
    ``per="example"`` the update of every example is clipped before they are averaged, and noise protects a **record**:
    ``u ↦ Σ_i u_i min(1, C / ‖u_i‖₂) / L``; with ``gaussian(std=C σ / L)`` this is DP-SGD, and it stands first in its
    chain. Deterministic, hence without a density: let a chain contain noise.

    References:
        Abadi et al., Deep Learning with Differential Privacy, 2016 (per example). https://arxiv.org/abs/1607.00133
        McMahan et al., Learning Differentially Private Recurrent Language Models, 2018 (flat and per-layer
        clipping). https://arxiv.org/abs/1710.06963
    """

    norm: float
    per: Literal["update", "layer", "example"] = "update"
    post_processing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        with guards.together():
            if self.norm != math.inf:  # the neutral setting
                guards.positive(self.norm, "norm", "clip")
            guards.choice(self.per, "per", "clip", ("update", "layer", "example"))

    @property
    def per_example(self) -> bool:
        return self.per == "example"

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        if self.per == "example":
            return before.clipped_by_example(self.norm)
        return before.clipped(self.norm) if self.per == "update" else before.clipped_by_layer(self.norm)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        if self.per_example:
            return Release(dict(self._client(context).combined(self._each(self._client(context).per_example()))))
        squares = torch.stack([t.square().sum() for t in update.values()])
        factor = self._factor(squares, tuple(update))
        return Release({name: u * s for (name, u), s in zip(update.items(), factor, strict=True)})

    def _client(self, context: Context | None) -> Context:
        if context is None:
            raise ModelError(f"{self!r} needs the examples", where="clip", remedy="release through observe()")
        return context

    def _each(self, updates: Tree) -> dict[str, Tensor]:
        """The updates of B examples, ``[B, …]``, each clipped."""
        squares = torch.stack([u.reshape(len(u), -1).square().sum(1) for u in updates.values()], 1)
        factor = self._factor(squares, tuple(updates))[:, 0]
        return trees.mapped(lambda u: u * factor.view(-1, *[1] * (u.dim() - 1)), updates)

    def apply(self, update: Updates, known: Known) -> Updates:
        def clipped(one: Updates) -> Updates:
            return one.scaled(self._factor(one.square(), one.names))

        return update.each(clipped) if self.per_example else clipped(update)

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity | None:
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
