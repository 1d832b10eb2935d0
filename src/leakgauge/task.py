"""A task: everything public about a client, and the client's side of a release."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge import batch_norm, dropout
from leakgauge.client import (
    BATCH_STATISTICS,
    DROPOUT,
    LABELS,
    LEARNING_RATE,
    ORDER,
    RECIPE,
    Drawn,
    Look,
    Recipe,
    update_of,
)
from leakgauge.defenses.protection import Protection, protection
from leakgauge.defenses.stages import Encoded
from leakgauge.errors import LeakgaugeError, ModelError, nearest
from leakgauge.laws import Positive
from leakgauge.seeds import seed_of
from leakgauge.types import Domain, Law, Nuisance, Nuisances, Records, Tree, Value
from leakgauge.updates import trees


@dataclass(frozen=True, repr=False)
class Task:
    """Everything public about a client: model, domain of its records, recipe, protection.

    ``model`` is the user's and stays untouched. ``working`` is a copy that a pure function can call: with the
    protection's model stage, in the recipe's mode, writing no running statistics, working nowhere in place; it shares
    the parameters' memory. ``working_recipe`` is the recipe with the loss of that model.
    """

    model: nn.Module
    domain: Domain
    recipe: Recipe = field(default_factory=Recipe)
    protection: Protection = field(default_factory=Protection)
    working: nn.Module = field(init=False, repr=False, compare=False)
    working_recipe: Recipe = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise ModelError(f"the model is a {type(self.model).__name__}", where="Task", remedy="give an nn.Module")
        if not isinstance(self.domain, Domain):
            what, remedy = f"the domain is a {type(self.domain).__name__}", 'give a Domain("image", shape, classes)'
            raise ModelError(what, where="Task", remedy=remedy)
        if not isinstance(self.recipe, Recipe):
            what, remedy = f"the recipe is a {type(self.recipe).__name__}", "give a Recipe(batch=1)"
            raise ModelError(what, where="Task", remedy=f"{remedy}; a defense comes by task.protect(…)")
        if not isinstance(self.protection, Protection):
            what = f"the protection is a {type(self.protection).__name__}"
            raise ModelError(what, where="Task", remedy="leave it out and say task.protect(…), which reads it")
        object.__setattr__(self, "working", self.fresh())
        loss = self.protection.loss(self.recipe.loss)
        object.__setattr__(self, "working_recipe", replace(self.recipe, loss=loss))
        self.protection.update.fits(self.params)
        if self.protection.update.per_example:
            self._check_examples()
        self._check_forward()

    def __repr__(self) -> str:
        entries = sum(p.numel() for p in self.params.values())
        name = type(self.model).__name__
        return f"Task({name} with {entries:,} parameters, {self.domain}, {self.recipe}, {self.protection!r})"

    @cached_property
    def nuisances(self) -> dict[str, Nuisance]:
        """Everything about an update that is neither record nor public, by address."""
        recipe = {f"{RECIPE}.{n.name}": n for n in self.recipe.nuisances}
        if dropout.layers(self.working):
            recipe[DROPOUT] = Nuisance("dropout", per="example")
        if batch_norm.layers(self.working):
            recipe[BATCH_STATISTICS] = Nuisance("batch_statistics", per="step")
        return {**recipe, **self.protection.nuisances}

    @cached_property
    def visible(self) -> frozenset[str]:
        """The nuisances of the update stage that anybody can read off a release."""
        probe = {name: torch.linspace(1, 2, p.numel()).view(1, *p.shape) for name, p in self.params.items()}
        return frozenset(self.protection.chain.visible(probe)) & frozenset(self.protection.nuisances)

    def shapes(self, address: str, batch: int) -> dict[str, tuple[int, ...]]:
        """The shape of a nuisance before the update stage in one update; by layer where it has one for each."""
        if address == LEARNING_RATE:
            return {"": ()}
        if address == BATCH_STATISTICS:
            norms, steps = batch_norm.layers(self.working), self.recipe.total_steps
            whats = batch_norm.MEAN, batch_norm.VARIANCE
            return {f"{name}.{what}": (steps, norm.num_features) for name, norm in norms.items() for what in whats}
        value = self.draw(batch, (0,))[address]
        return {"": tuple(value.shape)} if isinstance(value, Tensor) else {n: tuple(v.shape) for n, v in value.items()}

    def laws(self, address: str) -> dict[str, Law]:
        """The law of a nuisance, by layer where it has one for each; any positive number where none is known."""
        if address == DROPOUT:
            return {name: layer.law for name, layer in dropout.layers(self.working).items()}
        return {"": self.nuisances[address].law or Positive()}

    def draw(self, batch: int, key: tuple[int, ...]) -> dict[str, Value]:
        """What the model and the training stage, and dropout, draw for one update, by address."""
        steps, masks = self.recipe.local_steps, dropout.layers(self.working)
        dropped = dropout.draw(self.working, batch, steps, generator=_generator(*key, 4)) if masks else {}
        order = self.recipe.draw_order(batch, generator=_generator(*key, 5)) if ORDER in self.nuisances else None
        return {
            **({} if order is None else {ORDER: order}),
            **({DROPOUT: dropped} if dropped else {}),
            **self.protection.draw(self.working, batch, steps, generator=_generator(*key, 2)),
            **self.protection.perturb(self.recipe.total_steps, generator=_generator(*key, 3)),
        }

    def drawn(self, nuisances: Nuisances) -> Drawn:
        """The arguments of the client function, from nuisances by address; what is missing is taken as nominal."""
        buffers = self.protection.buffers(self.working, nuisances)
        masks = nuisances.get(DROPOUT, {})
        assert not isinstance(masks, Tensor)
        buffers |= {f"{name}.{dropout.MASK}": value for name, value in masks.items()}
        order, statistics = nuisances.get(ORDER), nuisances.get(BATCH_STATISTICS, {})
        assert not isinstance(statistics, Tensor)
        return Drawn(self._rates(nuisances), buffers, order if isinstance(order, Tensor) else None, statistics)

    def _rates(self, nuisances: Nuisances) -> Tensor | None:
        """The rate of every local step ``[…, steps]``; None where nobody perturbs or hides it."""
        labels = self.protection.stage("training")
        perturbed = [a for a in nuisances if a.rpartition(".")[0] in labels]
        if LEARNING_RATE not in nuisances and not perturbed:
            return None
        like = next(iter(self.params.values()))
        nominal = nuisances.get(LEARNING_RATE)
        rate = nominal.to(like) if isinstance(nominal, Tensor) else like.new_tensor(self.recipe.learning_rate)
        return self.protection.rates(rate.unsqueeze(-1).expand(*rate.shape, self.recipe.total_steps), nuisances)

    def client(
        self,
        params: Tree,
        inputs: Tensor,
        labels: Tensor,
        nuisances: Nuisances,
        *,
        buffers: Tree | None = None,
        model: nn.Module | None = None,
        look: Look | None = None,
    ) -> dict[str, Tensor]:
        """The one client function at this task: differentiable in everything it is given."""
        state = self.buffers if buffers is None else buffers
        called = self.working if model is None else model
        return update_of(called, params, state, inputs, labels, self.working_recipe, self.drawn(nuisances), look)

    def _check_examples(self) -> None:
        """Refuse to clip examples one by one where the client's update is not put together from theirs."""
        coupled = [n for n, m in self.working.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        what = ""
        if self.recipe.clients > 1:
            what = f"the update is the mean of {self.recipe.clients} clients, not of examples"
        elif self.recipe.local_steps > 1 or self.recipe.minibatch is not None or self.recipe.optimiser != "sgd":
            what = f"{self.recipe.local_steps} local steps over minibatches share no gradient of one example"
        elif self.protection.training:
            what = f"{self.protection.training[0]!r} acts on the whole update before its examples are clipped"
        elif self.recipe.mode == "train" and coupled:
            what = (
                f"layer {coupled[0]!r} normalises over the batch in train mode, so no example has a gradient of its own"
            )
        if what:
            raise ModelError(what, where=repr(self.protection), remedy='clip per="update", or leave that out')

    def trained(self) -> nn.Module:
        """The module that is trained: the user's, or a copy with the protection's model stage."""
        return self.protection.wrapped(self.model, self.domain)

    def fresh(self) -> nn.Module:
        """A working copy of one's own, for whoever changes its layers' forward."""
        return working_copy(self.trained(), self.recipe.mode)

    def _check_forward(self) -> None:
        first = next(iter(self.params.values()), None)
        if first is None:
            raise ModelError("the model has no trainable parameters", where="Task", remedy="give a model that trains")
        probe = self.inputs_of(torch.zeros(2, *self.domain.shape), first)
        calls = dropout.Calls(self.working)
        before = torch.get_rng_state()
        looks_up = self.domain.kind != "tokens" and bool(embeddings(self.working))
        try:
            with torch.set_grad_enabled(looks_up), calls:
                outputs = self.working(probe.requires_grad_(looks_up))
        except LeakgaugeError:
            raise
        except Exception as fault:
            raise ModelError(
                f"the model does not take inputs of shape {self.domain.shape} ({type(fault).__name__}: {fault})",
                where="Task",
                remedy="give the domain of the records that this model was made for",
            ) from None
        refuse_draws(before, "Task")
        calls.refuse_repeated()
        if looks_up:
            self._refuse_lookup(outputs, probe)
        columns = self.domain.classes + sum(part.columns for part in self.protection.model)
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] != columns:
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ModelError(
                f"the model returns {shape} for 2 inputs, the domain has {self.domain.classes} classes",
                where="Task",
                remedy="make the model return [batch, classes] scores",
            )

    def _refuse_lookup(self, outputs: object, probe: Tensor) -> None:
        """An embedding looks token numbers up: no gradient reaches its inputs, so that no attack can search there."""
        if isinstance(outputs, Tensor) and outputs.requires_grad:
            (reached,) = torch.autograd.grad(outputs.sum(), probe, allow_unused=True)
            if reached is not None:
                return
        name = next(iter(embeddings(self.working)))
        raise ModelError(
            f"the inputs are looked up in the embedding {name!r}, where no gradient reaches them; tokens cannot be "
            "attacked",
            where="Task",
            remedy='ask preflight(Task(model, Domain("tokens", shape, classes))) which tokens an update names',
        )

    def inputs_of(self, inputs: Tensor, like: Tensor) -> Tensor:
        """Inputs as the model takes them: token numbers stay whole, all others get the parameters' type."""
        return inputs.to(like.device).long() if self.domain.kind == "tokens" else inputs.to(like)

    @property
    def params(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.working.named_parameters() if p.requires_grad}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Buffers and frozen parameters: state that is used but not trained."""
        frozen = {name: p.detach() for name, p in self.working.named_parameters() if not p.requires_grad}
        return {**frozen, **dict(self.working.named_buffers())}

    def update(
        self, records: Records | Encoded, params: Tree | None = None, nuisances: Nuisances | None = None
    ) -> dict[str, Tensor]:
        """The update of one batch of (encoded) records, before any defense at the update stage."""
        update = self._computed(records, self.params if params is None else params, nuisances or {})
        return {name: value.detach() for name, value in update.items()}

    def _computed(
        self, records: Records | Encoded, theta: Tree, nuisances: Nuisances, look: Look | None = None
    ) -> dict[str, Tensor]:
        like = next(iter(theta.values()))
        inputs = self.inputs_of(records.inputs, like)
        labels = records.labels.to(inputs.device)
        drawn = {address: trees.over(partial(_moved, like), value) for address, value in nuisances.items()}
        return self.client(theta, inputs, labels, drawn, look=look)

    def update_and_statistics(
        self, records: Records | Encoded, params: Tree | None = None, nuisances: Nuisances | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The update, and what the batch norms of a client in train mode measured, step by step.

        ``<layer>.mean`` and ``<layer>.variance``, ``[steps, C]``; nothing where no layer measures.
        """
        theta, steps = self.params if params is None else params, list[dict[str, Tensor]]()

        def look(params: Tree, buffers: Tree, inputs: Tensor) -> None:
            steps.append(batch_norm.measured(self.working, params, buffers, inputs))

        measures = bool(batch_norm.layers(self.working))
        update = self._computed(records, theta, nuisances or {}, look if measures else None)
        statistics = {name: torch.stack([one[name] for one in steps]) for name in steps[0]} if steps else {}
        return {name: value.detach() for name, value in update.items()}, statistics

    def drawn_by_recipe(self, labels: Tensor) -> dict[str, Value]:
        """The recipe's own nuisances of one update."""
        drawn: dict[str, Value] = {LABELS: labels}
        if LEARNING_RATE in self.nuisances:
            drawn[LEARNING_RATE] = torch.tensor(self.recipe.learning_rate)
        return drawn

    def at(self, state: Tree) -> Task:
        """The same task with the parameters and buffers of a checkpoint."""
        own = copy.deepcopy(self.trained())
        known = own.state_dict()
        wrong = sorted(set(known) ^ set(state)) or [n for n in known if known[n].shape != state[n].shape]
        if wrong:
            raise ModelError(
                f"the state does not fit the model in {wrong[0]!r}",
                where="Task.at",
                remedy="give the state of a training of this model under this protection",
            )
        own.load_state_dict(dict(state))
        return replace(self, model=own)

    def protect(self, how: Protection | str | Any) -> Task:
        """The same task under a protection, given as parts or as an expression."""
        return replace(self, protection=protection(how))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Task:
        """The same task on another device or in another precision."""
        try:
            moved = copy.deepcopy(self.model).to(device=device, dtype=dtype)
        except (AssertionError, RuntimeError) as fault:  # torch asserts that it was built for the device
            reason = str(fault).splitlines()[0]
            raise ModelError(
                f"cannot be moved to {device} ({reason})", where="Task.to", remedy='stay on "cpu"'
            ) from None
        return replace(self, model=moved)


@dataclass(frozen=True)
class ClientContext:
    """The client's side of :class:`leakgauge.types.Context` for one batch."""

    task: Task
    records: Records | Encoded
    params: Tree
    nuisances: Nuisances = field(default_factory=dict)

    def inputs(self) -> Tensor:
        return self.task.inputs_of(self.records.inputs, next(iter(self.params.values())))

    def per_example(self) -> dict[str, Tensor]:
        drawn, task = self.task.drawn(self.nuisances), self.task

        def one(x: Tensor, y: Tensor, buffers: dict[str, Tensor]) -> dict[str, Tensor]:
            alone = Drawn(drawn.rates, {name: value.unsqueeze(0) for name, value in buffers.items()})
            batch = x.unsqueeze(0), y.unsqueeze(0)
            return update_of(task.working, self.params, task.buffers, *batch, task.working_recipe, alone)

        updates: dict[str, Tensor] = vmap(one)(self.inputs(), self.records.labels, dict(drawn.buffers))
        return updates

    def combined(self, each: Tree) -> dict[str, Tensor]:
        return trees.mapped(lambda u: u.mean(0) if self.task.recipe.reduction == "mean" else u.sum(0), each)

    def representation(self, layer: str) -> Tensor:
        return self.representation_of(layer)(self.inputs())

    def representation_of(self, layer: str) -> Callable[[Tensor], Tensor]:
        modules = dict(self.task.working.named_modules())
        if layer not in modules:
            raise ModelError(f"there is no layer {layer!r}", where="model", remedy=nearest(layer, modules))

        def run(inputs: Tensor) -> Tensor:
            captured: list[Tensor] = []
            hook = modules[layer].register_forward_pre_hook(lambda _, args: captured.append(args[0]))
            drawn = self.task.drawn(self.nuisances).at(0, slice(None), self.task.recipe.local_steps)
            try:
                functional_call(self.task.working, (dict(self.params), {**self.task.buffers, **drawn}), (inputs,))
            finally:
                hook.remove()
            return captured[0]

        return run


def refuse_draws(before: Tensor, where: str) -> None:
    """Refuse a model whose forward pass has moved torch's random state on from what it was before."""
    if not torch.equal(before, torch.get_rng_state()):
        raise ModelError(
            "the model draws random numbers in its forward pass, which no nuisance stands for",
            where=where,
            remedy="use layers such as nn.Dropout, each once; where it draws in train mode alone, set "
            'mode="eval" in the recipe',
        )


def embeddings(model: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """The layers that look up a row for each token, by name."""
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}


def working_copy(model: nn.Module, mode: str) -> nn.Module:
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    # batch norms measure, and never write the running statistics (vmap refuses it, purity forbids it)
    own = batch_norm.measuring(dropout.masked(copy.deepcopy(model, shared).train(mode == "train")))
    for module in own.modules():
        if isinstance(getattr(module, "inplace", None), bool):
            module.inplace = False  # type: ignore[assignment]
    return own


def _moved(like: Tensor, value: Tensor) -> Tensor:
    """On the device of ``like``; numbers in its precision, indices as they are."""
    return value.to(like) if value.is_floating_point() else value.to(like.device)


def _generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*key))
