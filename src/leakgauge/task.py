"""A task: everything public about a client, and the client's side of a release."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge.client import Recipe, update_of
from leakgauge.defenses.protection import Protection, protection
from leakgauge.defenses.stages import Encoded
from leakgauge.errors import LeakgaugeError, ModelError, nearest
from leakgauge.types import Domain, Records, Tree
from leakgauge.updates import trees


@dataclass(frozen=True)
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
        for part in self.protection.training:
            part.check(local_steps=self.recipe.local_steps)
        object.__setattr__(self, "working", self.fresh())
        loss = self.protection.loss(self.recipe.loss)
        object.__setattr__(self, "working_recipe", replace(self.recipe, loss=loss))
        self.protection.update.fits(self.params)
        if self.protection.update.per_example:
            self._check_examples()
        self._check_forward()

    def _check_examples(self) -> None:
        """Refuse to clip examples one by one where the client's update is not put together from theirs."""
        coupled = [n for n, m in self.working.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        what = ""
        if self.recipe.local_steps > 1 or self.recipe.minibatch is not None:
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
        probe = torch.zeros(2, *self.domain.shape, dtype=first.dtype, device=first.device)
        try:
            with torch.no_grad():
                outputs = self.working(probe)
        except LeakgaugeError:
            raise
        except Exception as fault:
            raise ModelError(
                f"the model does not take inputs of shape {self.domain.shape} ({type(fault).__name__}: {fault})",
                where="Task",
                remedy="give the domain of the records that this model was made for",
            ) from None
        columns = self.domain.classes + sum(part.columns for part in self.protection.model)
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] != columns:
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ModelError(
                f"the model returns {shape} for 2 inputs, the domain has {self.domain.classes} classes",
                where="Task",
                remedy="make the model return [batch, classes] scores",
            )

    @property
    def params(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.working.named_parameters() if p.requires_grad}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Buffers and frozen parameters: state that is used but not trained."""
        frozen = {name: p.detach() for name, p in self.working.named_parameters() if not p.requires_grad}
        return {**frozen, **dict(self.working.named_buffers())}

    def update(
        self, records: Records | Encoded, params: Tree | None = None, nuisances: Tree | None = None
    ) -> dict[str, Tensor]:
        """The update of one batch of (encoded) records, before any defense at the training and update stage."""
        theta = self.params if params is None else params
        inputs = records.inputs.to(next(iter(theta.values())))
        labels = records.labels.to(inputs.device)
        hidden = {name: value.to(inputs) for name, value in (nuisances or {}).items()}
        made = update_of(self.working, theta, self.buffers, inputs, labels, self.working_recipe, hidden)
        return {name: value.detach() for name, value in made.items()}

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
        moved = copy.deepcopy(self.model).to(device=device, dtype=dtype)
        return replace(self, model=moved)


@dataclass(frozen=True)
class ClientContext:
    """The client's side of :class:`leakgauge.types.Context` for one batch."""

    task: Task
    records: Records | Encoded
    params: Tree
    nuisances: Tree = field(default_factory=dict)

    def inputs(self) -> Tensor:
        return self.records.inputs.to(next(iter(self.params.values())))

    def per_example(self) -> dict[str, Tensor]:
        def one(x: Tensor, y: Tensor, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
            batch = x.unsqueeze(0), y.unsqueeze(0)
            mine = {name: value.unsqueeze(0) for name, value in hidden.items()}
            recipe = self.task.working_recipe
            return update_of(self.task.working, self.params, self.task.buffers, *batch, recipe, mine)

        made: dict[str, Tensor] = vmap(one)(self.inputs(), self.records.labels, dict(self.nuisances))
        return made

    def combined(self, each: Tree) -> dict[str, Tensor]:
        return trees.mapped(lambda u: u.mean(0) if self.task.recipe.reduction == "mean" else u.sum(0), each)

    def representation(self, layer: str) -> Tensor:
        return self.representation_of(layer)(self.inputs())

    def representation_of(self, layer: str) -> Callable[[Tensor], Tensor]:
        modules = dict(self.task.working.named_modules())
        if layer not in modules:
            raise ModelError(f"there is no layer {layer!r}", where="model", remedy=nearest(layer, modules))

        def run(inputs: Tensor) -> Tensor:
            seen: list[Tensor] = []
            hook = modules[layer].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
            try:
                functional_call(
                    self.task.working, (dict(self.params), {**self.task.buffers, **self.nuisances}), (inputs,)
                )
            finally:
                hook.remove()
            return seen[0]

        return run


def working_copy(model: nn.Module, mode: str) -> nn.Module:
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    own = copy.deepcopy(model, shared).train(mode == "train")
    for name, module in own.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            # batch statistics, and no in-place write of the running ones (vmap refuses it, purity forbids it)
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0:
            raise ModelError(
                f"layer {name!r} draws a hidden dropout mask in train mode",
                where="Task",
                remedy='set mode="eval" in the recipe or p=0 in the layer; dropout as a nuisance is not modelled yet',
            )
        if isinstance(getattr(module, "inplace", None), bool):
            module.inplace = False
    return own
