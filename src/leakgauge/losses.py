"""Losses: ``(outputs, labels) → one number per example``, by name or from the user's own code."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from leakgauge import guards
from leakgauge.expr import PATH, Part, Reading, load, read, register
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
    """A loss by name (``cross_entropy``), path (``my_package.module:loss``) or expression (with its parentheses)."""
    loss: Loss = load(text, where="loss") if PATH.fullmatch(text) else read_loss(text, own_code=True).get()
    return loss


def read_loss(text: str, *, own_code: bool = False) -> Reading:
    """What the text of a loss says, with all its faults; a bare path is left alone."""
    if PATH.fullmatch(text):
        return Reading(text, own=(text,))
    return read(text if "(" in text or ":" in text else f"{text}()", "loss", where="task.loss", own_code=own_code)
