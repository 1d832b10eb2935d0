"""What a rule returns: how many examples of each class, how sure, and what else it might be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, repr=False)
class Counts:
    """The examples of each class in a batch, ``[classes]``, with a confidence.

    ``confidence`` is the expected share of the labels that is right, in [0, 1]. ``alternatives`` are other counts, the
    likelier first, each with its weight beside the best one (at most 1); an attack with restarts tries them.
    """

    counts: Tensor
    confidence: float
    alternatives: tuple[tuple[Tensor, float], ...] = ()
    unrounded: Tensor | None = None

    def __repr__(self) -> str:
        """Without the labels, which are private."""
        return (
            f"Counts({int(self.counts.sum())} examples, {len(self.counts)} classes, confidence={self.confidence:.3g})"
        )

    @property
    def numbers(self) -> Tensor:
        """The counts before they were rounded, where a likelihood gave them."""
        return self.counts.double() if self.unrounded is None else self.unrounded

    @property
    def labels(self) -> Tensor:
        """The labels ``[batch]`` in ascending order."""
        return spelled(self.counts)

    def hypotheses(self, number: int, least: float = 0.05) -> list[Tensor]:
        """Labels ``[batch]`` of ``number`` hypotheses: the best, the likely alternatives, then the best again."""
        likely = [counts for counts, weight in self.alternatives if weight >= least]
        every = [self.counts, *likely][:number]
        return [spelled(counts) for counts in [*every, *[self.counts] * (number - len(every))]]


def spelled(counts: Tensor) -> Tensor:
    """Counts ``[classes]`` as labels ``[batch]`` in ascending order."""
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts.long())


def whole(numbers: Tensor, batch: int) -> Tensor:
    """The non-negative whole numbers that sum to ``batch`` and lie nearest to ``numbers``, row by row ``[…, classes]``.

    First the nearest point of the simplex, then the largest remainders are rounded up.
    """
    real = _onto_simplex(numbers, batch)
    low = real.floor()
    missing = (batch - low.sum(-1, keepdim=True)).round()
    place = (low - real).argsort(dim=-1, stable=True).argsort(dim=-1)
    return low + (place < missing)


def _onto_simplex(numbers: Tensor, total: float) -> Tensor:
    """The nearest point with non-negative entries that sum to ``total``."""
    ordered = numbers.sort(-1, descending=True).values
    excess = (ordered.cumsum(-1) - total) / torch.arange(1, numbers.shape[-1] + 1, device=numbers.device)
    used = (ordered > excess).sum(-1, keepdim=True).clamp(min=1)
    return (numbers - excess.gather(-1, used - 1)).clamp(min=0)


def overlap(one: Tensor, others: Tensor | Sequence[Tensor]) -> Tensor:
    """The share of labels that counts have in common, ``[C]`` and ``[n, C]`` → ``[n]``."""
    table = others if isinstance(others, Tensor) else torch.stack(list(others))
    return torch.minimum(one, table).sum(-1) / one.sum().clamp(min=1)
