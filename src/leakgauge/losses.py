"""Losses: ``(outputs, labels) → one number per example``, by name or from the user's own code."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from leakgauge import guards
from leakgauge.errors import ModelError, nearest
from leakgauge.expr import Part, load, names, parse, register
from leakgauge.types import Loss


@register("loss", "cross_entropy")
@dataclass(frozen=True, repr=False)
class CrossEntropy(Part):
    """``−Σ_c y_c log softmax(z)_c`` per example; labels are classes or probabilities.

    ``smoothing`` mixes the label with the uniform one, as ``torch.nn.CrossEntropyLoss`` does.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        guards.inside(self.smoothing, "smoothing", "cross_entropy", 0.0, 1.0, closed_low=True)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        log_p = outputs.log_softmax(-1)
        if labels.dim() == outputs.dim():
            y = labels.to(log_p)
            hit = (y * log_p).sum(-1)
        else:
            hit = log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return -(1 - self.smoothing) * hit - self.smoothing * log_p.mean(-1)


@register("loss", "squared_error")
@dataclass(frozen=True, repr=False)
class SquaredError(Part):
    """``½‖z − y‖²`` per example, with classes one-hot: the loss of a linear-Gaussian client."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if labels.dim() < outputs.dim():
            labels = nn.functional.one_hot(labels, outputs.shape[-1])
        return 0.5 * (outputs - labels.to(outputs)).square().sum(-1)


def loss_named(text: str) -> Loss:
    """A loss by name (``cross_entropy``), path (``my_package.module:loss``) or expression, which has parentheses."""
    loss: Loss
    if "(" in text:
        loss = parse(text, "loss", where="loss")
        return loss
    if ":" in text:
        loss = load(text, where="loss")
        return loss
    known = names("loss")
    if text not in known:
        raise ModelError(f"unknown loss {text!r}", where="recipe.loss", remedy=nearest(text, known))
    loss = known[text]()
    return loss
