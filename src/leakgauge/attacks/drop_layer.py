"""The attack on Soteria: match what the defense did not touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary import Adversary, Reconstruction, cosine, signed_adam, through
from leakgauge.adversary.joining import joined
from leakgauge.attacks.calling import CheckedAttack, Options
from leakgauge.defenses.update.soteria import Soteria, linear_layers
from leakgauge.errors import ModelError
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.priors import tv, uniform
from leakgauge.task import Task
from leakgauge.types import Candidate, Tree

Leave = Literal["weight", "columns"]


@register("attack", "drop_layer")
@dataclass(frozen=True, repr=False)
class DropLayer(CheckedAttack):
    """Inverting gradients without what Soteria pruned.

    ``leave="weight"`` leaves the defended layer's weight out of the cosine (the published attack);
    ``leave="columns"`` only its zero columns, which everybody can see. Where ``layer`` is None, it is not known: for
    every observation each linear layer is tried for ``scout`` steps, and the one with the least residual
    ``1 − cos`` of the matched tensors is taken, since a tensor that was pruned and is still matched leaves one.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022, section 5. https://arxiv.org/abs/2111.04706
    """

    models_defense: ClassVar[Literal["one"]] = "one"

    layer: str | None = None
    leave: Leave = "weight"
    steps: int = 4000
    scout: int = 100
    lr: float = 0.1
    tv_weight: float = 4e-4
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.layer is not None:
            Soteria(self.layer)  # refuses what is no name
        with guards.together():
            guards.choice(self.leave, "leave", "drop_layer", get_args(Leave))
            for name in ("steps", "scout", "restarts"):
                guards.count(getattr(self, name), name, "drop_layer")
            guards.positive(self.lr, "lr", "drop_layer")
            guards.non_negative(self.tv_weight, "tv_weight", "drop_layer")

    def fits(self, params: Tree) -> None:
        """Refuse a model without the layer, before anything runs."""
        if self.layer is not None:
            Soteria(self.layer).fits(params)

    def against(self, layer: str, *, images: bool = True) -> Adversary:
        """The adversary of Soteria on ``layer``, for a task under that protection."""
        return Adversary(
            likelihood=cosine(drop=(Soteria(layer).weight,)) if self.leave == "weight" else through(cosine()),
            prior=self.tv_weight * tv() if images else uniform(),
            solver=signed_adam(lr=self.lr, steps=self.steps),
            restarts=self.restarts,
        )

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        if self.layer is not None:
            return self._assuming(self.layer, task, observations, options)
        layers = self.find(task, observations, **options)
        groups = {layer: [i for i, f in enumerate(layers) if f == layer] for layer in dict.fromkeys(layers)}
        reconstructions = [
            self._assuming(layer, task, [observations[i] for i in at], options) for layer, at in groups.items()
        ]
        order = [i for at in groups.values() for i in at]
        return joined(reconstructions, [order.index(i) for i in range(len(order))])

    def find(self, task: Task, observations: Sequence[Observation], **options: Any) -> list[str]:
        """The layer that was defended, for every observation: the one with the least residual."""
        layers = linear_layers(task.params)
        if not layers:
            raise ModelError("the model has no linear layer", where="drop_layer", remedy="attack with adaptive()")
        residuals = torch.stack([self.residual(layer, task, observations, **options) for layer in layers])
        return [layers[i] for i in residuals.argmin(0).tolist()]

    def residual(self, layer: str, task: Task, observations: Sequence[Observation], **options: Any) -> Tensor:
        """``1 − cos`` of what is matched if ``layer`` was defended, after ``scout`` steps, ``[n]``."""
        reconstruction = replace(self, steps=self.scout, restarts=1)._assuming(layer, task, observations, options)
        prior = self.against(layer, images=task.domain.kind == "image").prior
        return prior(Candidate(reconstruction.inputs, reconstruction.labels)) - reconstruction.log_posterior

    def _assuming(
        self, layer: str, task: Task, observations: Sequence[Observation], options: Options
    ) -> Reconstruction:
        adversary = self.against(layer, images=task.domain.kind == "image")
        return adversary(task.protect(Soteria(layer)), observations, **options)
