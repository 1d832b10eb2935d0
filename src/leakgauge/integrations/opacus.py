"""DP-SGD through Opacus as a client: what a client that trains with Opacus sends, ready to be attacked and bounded.

    client = OpacusClient(norm=1.0, multiplier=1.1)
    seen = client.observe(task, records)                     # observations, as leakgauge.observe makes them
    defended = task.protect(client.protection(task.recipe))  # what an adversary who knows the client assumes
    adaptive()(defended, seen)
    bound_of_task(defended, delta=1e-5)                      # the unit is a record

The unit that is protected is a **record**: every example's gradient is clipped. To protect a **client**, clip and noise
its whole update instead: ``clip(norm=c) | gaussian(std=c*multiplier)``.

References:
    Yousefpour et al., Opacus: User-Friendly Differential Privacy Library in PyTorch, 2021. https://arxiv.org/abs/2109.12298
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leakgauge import guards
from leakgauge.bounds import Privacy
from leakgauge.client import Recipe
from leakgauge.defenses import Protection, clip, gaussian
from leakgauge.errors import DomainError, MissingExtraError, ModelError, ObservationError
from leakgauge.observation import Observation, Round
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Records, Threat

_WHERE = "opacus client"


@dataclass(frozen=True)
class OpacusClient:
    """A client that trains with Opacus: ``g = (Σ_i clip(g_i, C) + C σ z) / L`` in every local step.

    ``norm`` is C, ``multiplier`` is σ, ``rate`` the probability with which a record enters a batch (for ε only: the
    batches attacked are those given). What leaves is the noisy gradient of one step, or the change after several.
    """

    norm: float
    multiplier: float
    rate: float = 1.0

    def __post_init__(self) -> None:
        guards.positive(self.norm, "norm", _WHERE)
        guards.non_negative(self.multiplier, "multiplier", _WHERE)
        guards.inside(self.rate, "rate", _WHERE, 0.0, 1.0, closed_high=True)

    def protection(self, recipe: Recipe) -> Protection:
        """The same client as parts, for its adversary and its bound; one step only."""
        if recipe.local_steps > 1 or recipe.shares != "gradient":
            raise DomainError(
                "noise inside several local steps is no part of one update",
                where=_WHERE,
                remedy="attack the change with a matching loss; its ε is privacy()'s",
            )
        divided = recipe.batch if recipe.reduction == "mean" else 1
        std = self.norm * self.multiplier / divided
        return Protection(update=clip(norm=self.norm, per="example") | gaussian(std=std))

    def privacy(self, *, steps: int, delta: float, method: Literal["rdp", "prv"] = "rdp") -> Privacy:
        """ε at δ after so many steps, by Opacus's own accountant; one record added or removed."""
        guards.positive(self.multiplier, "multiplier", _WHERE)
        guards.inside(delta, "delta", _WHERE, 0.0, 1.0)
        count = guards.count(steps, "steps", _WHERE)
        with _quiet():
            accountant: Any = _opacus().accountants.create_accountant(method)
            accountant.history = [(self.multiplier, self.rate, count)]
            epsilon = float(accountant.get_epsilon(delta=delta))
        return Privacy(epsilon, delta, self.multiplier, self.rate, count, f"opacus {method}", "record", "add-or-remove")

    def observe(
        self, task: Task, records: Records, *, threat: Threat | None = None, seed: int = 0
    ) -> list[Observation]:
        """What clients with ``task.recipe.batch`` records each send after training with Opacus."""
        size = task.recipe.batch
        if len(records) < size:
            raise ObservationError(f"{len(records)} records do not fill a batch of {size}", where=_WHERE)
        knows = (threat or Threat()).mapping(task.nuisances)
        observations = []
        for number, batch in enumerate(records.batches(size)):
            sent = self._train(task, batch, torch.Generator().manual_seed(seed_of(seed, number, 0)))
            drawn = task.drawn_by_recipe(batch.labels)
            granted = {address: value for address, value in drawn.items() if knows[address] == "granted"}
            observations.append(Observation((Round(sent, task.params, granted),), size))
        return observations

    def _train(self, task: Task, batch: Records, generator: torch.Generator) -> dict[str, Tensor]:
        recipe = task.recipe
        model = copy.deepcopy(task.trained())
        before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        inputs, labels = batch.inputs.to(next(iter(before.values()))), batch.labels
        width = recipe.minibatch or len(inputs)
        starts = range(0, len(inputs) - width + 1, width)
        with _quiet():
            wrapped, optimiser = self._private(model, recipe, width, generator)
            for step in range(recipe.local_steps):
                rows = slice(starts[step % len(starts)], starts[step % len(starts)] + width)
                optimiser.zero_grad()
                recipe.reduce(recipe.loss(wrapped(inputs[rows]), labels[rows])).backward()
                if recipe.shares == "gradient":
                    optimiser.pre_step()
                    return {name: _gradient(p) for name, p in model.named_parameters() if name in before}
                optimiser.step()
        return {name: p.detach() - before[name] for name, p in model.named_parameters() if name in before}

    def _private(self, model: nn.Module, recipe: Recipe, width: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Opacus's module and optimiser around a model, which computes as the recipe's mode says."""
        opacus = _opacus()
        wrong = opacus.validators.ModuleValidator.validate(model.train(), strict=False)
        if wrong:
            raise ModelError(
                f"Opacus does not take this model ({wrong[0]})",
                where=_WHERE,
                remedy="replace that layer, or let opacus.validators.ModuleValidator.fix do it",
            )
        plain = torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad],
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )
        wrapped = opacus.GradSampleModule(model, loss_reduction=recipe.reduction)
        for module in model.modules():  # Opacus counts examples in train mode only
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.train(recipe.mode == "train")
        optimiser = opacus.optimizers.DPOptimizer(
            plain,
            noise_multiplier=self.multiplier,
            max_grad_norm=self.norm,
            expected_batch_size=width,
            loss_reduction=recipe.reduction,
            generator=generator,
        )
        return wrapped, optimiser


def _gradient(p: nn.Parameter) -> Tensor:
    assert p.grad is not None
    return p.grad.detach().clone()


@contextmanager
def _quiet() -> Iterator[None]:
    """Opacus and what it calls warn of things that are no concern of an audit (secure randomness, backward hooks)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _opacus() -> ModuleType:
    try:
        import opacus
        import opacus.accountants
        import opacus.optimizers
        import opacus.validators
    except ImportError:
        raise MissingExtraError(
            "DP-SGD through Opacus needs the package opacus, which is not installed",
            where=_WHERE,
            remedy="pip install 'leakgauge[opacus]', or use clip(per='example') | gaussian()",
        ) from None
    return opacus  # type: ignore[no-any-return]
