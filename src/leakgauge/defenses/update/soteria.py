"""Soteria: prune the gradient of one linear layer where its input tells most about the record."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart
from leakgauge.defenses.update.promises import Sensitivity
from leakgauge.errors import DomainError, ModelError, nearest
from leakgauge.expr import register
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates
from leakgauge.updates import masked, trees

Features = Literal["all", "live"]
Pull = Callable[[Tensor], tuple[Tensor, ...]]
_TOGETHER = 64  # directions or features at once; more only costs memory


@register("defense", "soteria")
@dataclass(frozen=True, repr=False)
class Soteria(UpdatePart):
    """Zero the columns of one linear layer's weight gradient, chosen by the slopes of its input features.

    With r the layer's input, ``s_i = Σ_b ‖∂r_{b,i}/∂x_b‖₂ / (r_{b,i} + epsilon)``; column i becomes zero where
    ``|s_i|`` is below the p-quantile of s. Bias, other layers, forward pass and loss stay as they are. One mask serves
    the whole batch, and it is visible: a pruned column is zero in every row.

    Caveat: a dead feature (``∂r_i/∂x = 0``, after a ReLU) has ``s_i = 0`` and is "pruned" first, though its column
    was zero anyway: where half the features are dead, a nominal p = 0.8 prunes 0.6 of the live ones. That is what the
    published code does (``features="all"``); ``features="live"`` takes the quantile over live features only.

    ``epsilon`` is 0.1 in the authors' attack code, 0 in their notebook, 1e-10 in GGL.

    References:
        Sun et al., Soteria: Provable Defense against Privacy Leakage in Federated Learning, 2021.
        https://arxiv.org/abs/2012.06043
    """

    layer: str
    p: float = 0.8
    epsilon: float = 0.1
    features: Features = "all"
    selects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        with guards.together():
            if not isinstance(self.layer, str):
                what = f"layer must be a name, got {self.layer!r}"
                guards.refuse(DomainError(what, where="soteria", remedy="say layer='linear1'"))
            guards.inside(self.p, "p", "soteria", 0.0, 1.0, closed_low=True)
            guards.non_negative(self.epsilon, "epsilon", "soteria")
            guards.choice(self.features, "features", "soteria", get_args(Features))

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before.norm_only()

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("mask", per="entry", visible=self._columns),)

    @property
    def weight(self) -> str:
        return f"{self.layer}.weight" if self.layer else "weight"

    def fits(self, params: Tree) -> None:
        if self.p == 0:
            return
        linear = linear_layers(params)
        if self.weight in params and self.layer not in linear:
            raise ModelError(
                f"layer {self.layer!r} is not linear (its weight has shape {tuple(params[self.weight].shape)})",
                where="soteria",
                remedy=f"defend one of {', '.join(linear)}" if linear else "this model has no linear layer",
            )
        if self.layer not in linear:
            raise ModelError(f"there is no layer {self.layer!r}", where="soteria", remedy=nearest(self.layer, linear))

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        mask = {name: torch.ones_like(u[(slice(0, 1),) * u.dim()]) for name, u in update.items()}
        if self.p > 0:
            self.fits(update)
            if context is None:
                raise ModelError(
                    f"{self!r} needs the layer's input", where="soteria", remedy="release through observe()"
                )
            survives = self.kept(context.representation(self.layer), self.slopes(context))
            mask[self.weight] = survives.to(update[self.weight]).unsqueeze(0)
        return Release(trees.mapped(torch.mul, update, mask), {"mask": mask})

    def kept(self, representation: Tensor, slopes: Tensor) -> Tensor:
        """Which features stay, ``[F]``; both arguments are ``[B, F]``."""
        ratio = slopes / (representation + self.epsilon)
        score = torch.where(slopes > 0, ratio, torch.zeros_like(ratio)).sum(0)  # without epsilon a dead one is 0/0
        live = score[(slopes > 0).any(0)] if self.features == "live" else score
        if not len(live):
            return torch.ones_like(score, dtype=torch.bool)
        return score.abs() >= live.quantile(self.p)

    def slopes(self, context: Context) -> Tensor:
        """``‖∂r_{b,i}/∂x_b‖₂``, ``[B, F]``."""
        return slope_norms(context.representation_of(self.layer), context.inputs())

    def _columns(self, observed: Tree) -> Tree:
        mask = {
            name: torch.ones_like(o[(slice(None), *(slice(0, 1),) * (o.dim() - 1))]) for name, o in observed.items()
        }
        if self.p > 0:
            columns = observed[self.weight]
            mask[self.weight] = (columns != 0).any(1, keepdim=True).to(columns)
        return mask

    def apply(self, update: Updates, known: Known) -> Updates | None:
        if self.p == 0:
            return update
        return update.mapped(masked, known["mask"]) if "mask" in known else None

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity | None:
        """Given its mask, a pruned column is zero for sure and the others are what they were."""
        if self.p == 0:
            return density
        if "mask" not in known:
            return None
        survives = known["mask"] > 0

        def log(u: Tensor, o: Tensor) -> Tensor:
            return torch.where(survives, density.log(u, o), torch.where(o == 0, 0.0, -math.inf))

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            pruned = torch.where((low < 0) & (high > 0), 0.0, -math.inf)
            return torch.where(survives, density.log_mass(u, low, high), pruned)

        return EntryDensity(log, log_mass, atom=True, lattice=density.lattice)

    @classmethod
    def neutral(cls) -> Self:
        return cls(layer="", p=0.0)


def linear_layers(params: Tree) -> list[str]:
    """The layers with a matrix for a weight."""
    matrices = (name for name, p in params.items() if name.rpartition(".")[2] == "weight" and p.dim() == 2)
    return [name.rpartition(".")[0] for name in matrices]


def slope_norms(fn: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """``‖∂fn(x)_{b,i}/∂x_b‖₂`` for a map from ``[B, …]`` to ``[B, F]``, a pass per input entry or per feature.

    Where records share a batch norm it is ``‖∂Σ_c fn(x)_{c,i}/∂x_b‖₂``, as in the published code.
    """
    values, pull = torch.func.vjp(fn, inputs)  # type: ignore[misc]
    if values.dim() != 2:
        raise ModelError(
            f"the layer's input has shape {tuple(values.shape)}, not [batch, features]",
            where="soteria",
            remedy="defend a linear layer on flat features",
        )
    if inputs[0].numel() < values.shape[1] and _apart(pull, values):
        try:
            return _pushed(fn, inputs)
        except RuntimeError:  # an operation that has no forward mode, or draws
            pass
    return _pulled(pull, values)


def _apart(pull: Pull, values: Tensor) -> bool:
    """Whether a record's features depend on no other record."""
    probe = torch.zeros_like(values)
    probe[0] = torch.linspace(1, 2, values.shape[1])  # uneven, so that nothing cancels
    return not pull(probe)[0][1:].any()


def _pushed(fn: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """A block of input directions per batched jvp."""

    def push(direction: Tensor) -> Tensor:
        return torch.func.jvp(fn, (inputs,), (direction.expand_as(inputs),))[1]  # type: ignore[no-any-return]

    size = inputs[0].numel()
    directions = torch.eye(size, dtype=inputs.dtype, device=inputs.device).view(size, *inputs.shape[1:])
    blocks = directions.split(max(1, 2 * _TOGETHER // len(inputs)))
    with warnings.catch_warnings():
        # torch's own decompositions, loaded on the first jvp, are scripted
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)
        squares = [torch.func.vmap(push)(block).square().sum(0) for block in blocks]
    return torch.stack(squares).sum(0).sqrt().detach()


def _pulled(pull: Pull, values: Tensor) -> Tensor:
    """A block of features per batched vjp."""
    norms = []
    for block in torch.eye(values.shape[1], dtype=values.dtype, device=values.device).split(_TOGETHER):
        (slopes,) = torch.func.vmap(pull)(block.unsqueeze(1).expand(-1, *values.shape))
        norms.append(slopes.flatten(2).norm(dim=2))
    return torch.cat(norms).T.detach()
