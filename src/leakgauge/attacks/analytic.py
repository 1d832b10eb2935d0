"""Analytic inversion of a linear layer with a bias: ``x = (∂ℓ/∂W_i) / (∂ℓ/∂b_i)``.

For ``z = W x + b`` and one example, ``∂ℓ/∂W = δ xᵀ`` and ``∂ℓ/∂b = δ``: every row with ``δ_i ≠ 0`` is a copy of
the input, times ``δ_i``. No optimisation, no prior, exact to numerical precision, whatever positive scale the
update was given. With more than one example the rows mix: see the caveat of :class:`Analytic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.labels import labels_of
from leakgauge.attacks.calling import CheckedAttack, Options
from leakgauge.errors import DomainError, ModelError
from leakgauge.expr import register
from leakgauge.models import denormalised
from leakgauge.observation import Observation
from leakgauge.task import Task
from leakgauge.types import Tree

TRIALS = 3
AGREEMENT = 1e-2
"""How far a drawn record and what is read of it may lie apart: rounding of float32, divided by small numbers."""


@register("attack", "analytic")
@dataclass(frozen=True, repr=False)
class Analytic(CheckedAttack):
    """Read the input of the first layer off its gradient.

    ``how="row"`` divides the row with the largest ``|∂ℓ/∂b_i|``; ``how="all"`` is the least-squares answer over all
    rows, ``x = Σ_i δ_i (∂ℓ/∂W_i) / Σ_i δ_i²``, accumulated in float64, which averages rounding errors out.
    Needs a first layer that is linear, has a bias and sees the raw input; exact for a batch of 1. For a larger
    batch the result is the mixture that row sees, said as it is. A normalisation (`models.normalised`) is undone.

    References:
        Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, 2018.
        https://doi.org/10.1109/TIFS.2017.2787987; used against PRECODE by Balunović et al., 2022.
    """

    version: ClassVar[int] = 2

    how: Literal["row", "all"] = "all"

    def __post_init__(self) -> None:
        if self.how not in ("row", "all"):
            raise DomainError(f'how must be "row" or "all", got {self.how!r}', where="analytic")

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        """Invert every observation; the candidate's residual is not computed, hence no log posterior."""
        layer = first_linear(task)
        rows = [self._invert(o.rounds[0].observed, layer) for o in observations]
        inputs = denormalised(task.model, torch.stack(rows).view(len(rows), 1, *task.domain.shape))
        labels = [labels_of(task, observation) for observation in observations]
        batch = max(o.batch for o in observations)
        return Reconstruction(
            inputs.expand(len(rows), batch, *task.domain.shape).clone(),
            torch.stack(labels),
            inputs.new_zeros(len(rows)),
            status=("exact" if batch == 1 else "mixture",) * len(rows),
        )

    def _invert(self, observed: Tree, layer: str) -> Tensor:
        weight, bias = observed[f"{layer}weight"], observed[f"{layer}bias"]
        if self.how == "row":
            i = bias.abs().argmax()
            return weight[i] / bias[i]
        return input_of(observed, layer)


def input_of(observed: Tree, layer: str) -> Tensor:
    """``Σ_i δ_i (∂ℓ/∂W_i) / Σ_i δ_i²`` in float64: the input of a linear layer with a bias, for one example.

    ``layer`` is the prefix of its two tensors.
    """
    weight, delta = observed[f"{layer}weight"].double(), observed[f"{layer}bias"].double()
    return delta @ weight / delta.square().sum()


def inverts(task: Task) -> bool:
    """Whether the first layer is linear on the raw input, with a bias."""
    try:
        first_linear(task)
    except ModelError:
        return False
    return True


def first_linear(task: Task) -> str:
    """The prefix of the first layer, if it is linear with a bias on the raw input."""
    names = list(task.params)
    weight = names[0]
    prefix = weight.removesuffix("weight")
    shape = task.params[weight].shape
    if not weight.endswith("weight") or len(shape) != 2 or shape[1] != task.domain.size:
        raise ModelError(
            f"the first layer, {weight!r} of shape {tuple(shape)}, is not linear on {task.domain.size} raw inputs",
            where="analytic",
            remedy="attack with inverting_gradients() or adaptive()",
        )
    if f"{prefix}bias" not in task.params:
        raise ModelError(
            f"the first layer {prefix.rstrip('.')!r} has no bias",
            where="analytic",
            remedy="attack with inverting_gradients()",
        )
    if not _shows_record(task, prefix):
        raise ModelError(
            f"the gradient of {prefix.rstrip('.')!r} is not that of the raw input alone: the layer is used twice, or "
            "comes after something else",
            where="analytic",
            remedy="attack with inverting_gradients() or adaptive()",
        )
    return prefix


def _shows_record(task: Task, layer: str) -> bool:
    """Whether the ratio of weight and bias is the record, tried on drawn ones: names and shapes do not tell."""
    params, names = task.params, [f"{layer}weight", f"{layer}bias"]
    chance = torch.Generator().manual_seed(0)
    tried = []
    for _ in range(TRIALS):
        record = torch.rand((1, *task.domain.shape), generator=chance).to(params[names[0]])
        live = {name: params[name].clone().requires_grad_() for name in names}
        with torch.enable_grad():
            try:
                outputs = functional_call(task.working, ({**params, **live}, task.buffers), (record,))
            except ValueError:  # a batch norm in train mode takes no single record: what is read is a mixture anyway
                return True
            weighed = (outputs * torch.randn(outputs.shape, generator=chance).to(outputs)).sum()
        observed = dict(zip(names, torch.autograd.grad(weighed, list(live.values()), allow_unused=True), strict=True))
        if any(value is None for value in observed.values()):
            return False
        if float(observed[names[1]].abs().max()) > 0:
            seen = denormalised(task.model, input_of(observed, layer).view_as(record).to(record))
            tried.append(float((seen - record).norm() / record.norm()))
    return bool(tried) and max(tried) < AGREEMENT
