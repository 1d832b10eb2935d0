"""How many labels an adversary got right."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.metrics.images import refuse_others
from leakgauge.metrics.matching import Matching


def label_accuracy(predicted: Tensor, truth: Tensor, matching: Matching | None = None) -> Tensor:
    """The share of records whose own label was found, ``[N, B] -> [N]``, position by position.

    With a ``matching`` of the images the predicted labels are first brought into the order of the truth: a
    label counts only if it came with the right image. Soft labels ``[N, B, classes]`` count by their
    largest entry; a soft label with a NaN is wrong.
    """
    guess = _hard(predicted, truth, "label_accuracy")
    if matching is not None:
        guess = matching.apply(guess)
    return (guess == truth).double().mean(1)


def label_counts_accuracy(predicted: Tensor, truth: Tensor) -> Tensor:
    """The share of the batch's labels found, whoever they belong to, ``[N, B] -> [N]``.

    ``Σ_c min(#predicted c, #true c) / B``: the overlap of the two multisets. What label inference from a batch's
    gradient can be asked for; never below :func:`label_accuracy`.
    """
    guess = _hard(predicted, truth, "label_counts_accuracy")
    classes = torch.cat([guess, truth], 1).unique()
    counts = [(labels.unsqueeze(2) == classes).sum(1) for labels in (guess, truth)]
    return torch.minimum(*counts).sum(1).double() / truth.shape[1]


def _hard(predicted: Tensor, truth: Tensor, where: str) -> Tensor:
    """Labels ``[N, B]``; −1, which is no label, for a soft label that is not finite."""
    refuse_others(where, predicted, truth, of="labels")
    if predicted.ndim == truth.ndim + 1:
        predicted = predicted.argmax(-1).where(predicted.isfinite().all(-1), -1)
    if truth.ndim != 2 or predicted.shape != truth.shape or not truth.shape[1]:
        raise DomainError(
            f"predicted labels {list(predicted.shape)} and true labels {list(truth.shape)} must both be [N, B]",
            where=where,
            remedy="give one label per record; view the labels of a single batch as [1, B]",
        )
    return predicted
