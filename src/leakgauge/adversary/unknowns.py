"""Unknowns: what the solver moves, as blocks with a start, a decoder and a log prior each.

Inputs, soft labels, learning rates, latent noise and masks are one thing: raw numbers ``[N, …]`` that the solver moves
freely, and the values they stand for. A law with bounded support is searched through a sigmoid, a positive one through
an exponential, so that every solver may use it, boxed or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.types import Law, Tree
from leakgauge.updates.trees import rows

INPUTS, SOFT_LABELS, CODES = "inputs", "labels", "codes"

INSIDE = 0.01
"""A start keeps this share of the support's width from its ends, where a sigmoid has no slope."""


def same(raw: Tensor) -> Tensor:
    return raw


@dataclass(frozen=True)
class Block:
    """One unknown of N problems: ``start [N, …]``, raw → value, box of the raw numbers, log prior of the values."""

    start: Tensor
    decode: Callable[[Tensor], Tensor] = same
    box: tuple[float, float] | None = None
    log_prior: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def of_law(
        cls, law: Law, shape: tuple[int, ...], like: Tensor, weight: float, start: Tensor | None = None
    ) -> Block:
        """A nuisance under its law, begun at the law's mean or, inside its support, at ``start``; ``weight`` scales its
        log prior.

        The prior is relative to that of the mean: a constant such as that of a uniform law would drown a residual of
        1e-8 in the rounding of float32.
        """
        low, high = law.support
        offset = law.log_density(torch.tensor(law.mean, dtype=like.dtype, device=like.device))
        begin = torch.full(shape, law.mean, dtype=like.dtype, device=like.device)
        if start is not None:
            margin = INSIDE * (high - low) if math.isfinite(high - low) else 0.0
            begin = start.to(begin).clamp(low + margin, high - margin)
        raw = _encoder(low, high)(begin)

        def log_prior(value: Tensor) -> Tensor:
            return weight * rows(law.log_density(value) - offset).sum(1)

        return cls(raw, _decoder(low, high), None, log_prior)


@dataclass(frozen=True)
class Unknowns:
    """All blocks of N problems, by name."""

    blocks: Mapping[str, Block] = field(default_factory=dict)

    @property
    def start(self) -> dict[str, Tensor]:
        return {name: block.start for name, block in self.blocks.items()}

    @property
    def box(self) -> dict[str, tuple[float, float]]:
        return {name: block.box for name, block in self.blocks.items() if block.box is not None}

    def decode(self, raw: Tree) -> dict[str, Tensor]:
        """The values behind the raw numbers."""
        return {name: block.decode(raw[name]) for name, block in self.blocks.items()}

    def log_prior(self, values: Tree) -> Tensor | float:
        """The sum of the blocks' own log priors, ``[N]``; 0 where none has one."""
        terms = [block.log_prior(values[name]) for name, block in self.blocks.items() if block.log_prior is not None]
        return torch.stack(terms).sum(0) if terms else 0.0


def _decoder(low: float, high: float) -> Callable[[Tensor], Tensor]:
    if math.isfinite(low) and math.isfinite(high):
        return lambda raw: low + (high - low) * raw.sigmoid()
    return (lambda raw: low + raw.exp()) if math.isfinite(low) else same


def _encoder(low: float, high: float) -> Callable[[Tensor], Tensor]:
    """The inverse of the decoder; a certain number is reached from anywhere."""
    if low == high:
        return torch.zeros_like
    if math.isfinite(low) and math.isfinite(high):
        return lambda value: ((value - low) / (high - low)).logit()
    return (lambda value: (value - low).log()) if math.isfinite(low) else same
