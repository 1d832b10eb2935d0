"""Distances in the representation of a network: what the client's own model makes of a picture."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from leakgauge.errors import DomainError, ModelError
from leakgauge.expr import Part, register
from leakgauge.meaning import Meaning
from leakgauge.metrics.base import MetricPart, same_shape
from leakgauge.types import Domain, Kind


@torch.no_grad()
def representations(model: nn.Module, inputs: Tensor) -> Tensor:
    """What enters the model's last linear layer, ``[n, features]``, in eval mode; the model itself is left alone."""
    network = copy.deepcopy(model).eval()
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelError("the model has no linear layer", where="representation_mse", remedy="use mse or psnr")
    caught: list[Tensor] = []

    def catch(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        caught.append(arguments[0].flatten(1))

    with linear[-1].register_forward_pre_hook(catch):
        for some in inputs.split(256):
            network(some)
    return torch.cat(caught) if caught else inputs.new_zeros(0, linear[-1].in_features)


@register("metric", "representation_mse")
@dataclass(frozen=True, repr=False)
class RepresentationMse(MetricPart):
    """Mean squared error between what enters the last linear layer of the client's model (GGL's MSE-R).

    ``(1/F) Σ (f(x̂) − f(x))²``, in the unit of the features: compare adversaries on one model by it, never models.
    An untrained network's features say little about what people see. An audit gives it the model as the client begins;
    in Python say ``RepresentationMse().through(model)``. Non-finite reconstructions count as mid-grey or zero.

    References:
        Li et al., Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage, 2022.
        https://arxiv.org/abs/2203.15696
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image", "table")
    meaning: ClassVar[Meaning] = Meaning(
        "representation_mse",
        "representation mse",
        "mean squared error of the features before the last layer: 0 is the same to the client's model",
        threshold=0.01,
        direction="lower",
        worst=None,
        best=0.0,
        digits=4,
    )

    model: nn.Module | None = None
    box: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return Part.__repr__(replace(self, model=None, box=None))  # an expression says how to measure, not what

    def on(self, domain: Domain) -> Self:
        return replace(super().on(domain), box=domain.box)

    def through(self, model: nn.Module) -> Self:
        """The same metric through the features of a model."""
        return replace(self, model=model)

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        same_shape(reconstruction, original, self.name)
        return (self._features(reconstruction) - self._features(original)).square().mean(1)

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        ours, theirs = self._features(reconstructions), self._features(originals)
        gaps = torch.cdist(ours, theirs, compute_mode="donot_use_mm_for_euclid_dist")
        return gaps.square() / max(1, ours.shape[1])

    def _features(self, records: Tensor) -> Tensor:
        if self.model is None:
            raise DomainError("it was given no model", where=self.name, remedy="say RepresentationMse().through(model)")
        low, high = self.box or (-torch.inf, torch.inf)
        grey = 0.5 if self.box else 0.0
        seen = torch.where(records.isfinite(), records.detach(), grey).clamp(low, high)
        # in float64, so that a score does not depend on its neighbours
        return representations(copy.deepcopy(self.model).double(), seen.double())
