"""Recovering a batch exactly: peeling and sparse directions in turn, at a linear layer with a bias that meets ReLU.

What is certified is certain but for rounding, with its label; what is not is reported as not recovered, never guessed.
If all examples are certified and nothing is left of the whole update, that is a proof for the batch. A positive factor
on the update (clipping, a hidden rate of one local step) changes nothing; a sum of clients is a larger batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from leakgauge import guards
from leakgauge.attacks.adapting import hint_of
from leakgauge.attacks.certificates import Certified, Certifier
from leakgauge.attacks.l1_directions import l1_searched
from leakgauge.attacks.linear_layers import LayerGradient, LinearLayer, Precision, Tail, linear_layers
from leakgauge.attacks.peeling import Peeled, peel
from leakgauge.attacks.sparse_directions import Search, by_sparse_directions, sampled
from leakgauge.client import DROPOUT, LEARNING_RATE
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import ModelError, ObservationError, nearest
from leakgauge.models import denormalised
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Tree
from leakgauge.updates import trees

NOT_APPLICABLE = "exact recovery does not apply: "
Methods = Literal["both", "peeling", "sparse"]
LONE = "one candidate was found, and no second that confirms the unknown scale of the update: it is not certified"
LARGEST_SAMPLED = 13
"""Sampling finds directions of at most so many examples: each further one doubles its work."""


def obstacle(task: Task) -> str | None:
    """Why no update of this task can be taken apart exactly, as a clause; None where nothing stands in the way."""
    return next((reason for reason in (_of_protection(task), _of_recipe(task), _of_model(task)) if reason), None)


def _of_protection(task: Task) -> str | None:
    for part in task.protection.chain.parts:
        if is_noise(part):
            return f"{part!r} adds noise"
        if not hint_of(part).scales:
            return f"{part!r} does more than scale the update"
    return f"{task.protection.model[0]!r} draws noise inside the network" if task.protection.model else None


def _of_recipe(task: Task) -> str | None:
    recipe = task.recipe
    if recipe.local_steps > 1:
        return f"{recipe.local_steps} local steps add gradients at different weights"
    if recipe.minibatch is not None and recipe.minibatch < recipe.batch:
        return f"only {recipe.minibatch} of the {recipe.batch} examples are in the update"
    if recipe.weight_decay and recipe.shares == "change":
        return "weight decay adds the weights to the update"
    if DROPOUT in task.nuisances:
        return "dropout masks are hidden"
    coupled = [n for n, m in task.working.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if recipe.mode == "train" and coupled:
        return f"{coupled[0]!r} normalises over the batch, so that examples are not apart"
    return None


def _of_model(task: Task) -> str | None:
    return None if first_layer(task) else "no linear layer with a bias takes the record itself and meets ReLU"


def open_layers(task: Task) -> list[LinearLayer]:
    """The layers that exact recovery works at: linear, called once, trained with a bias, followed by ReLU."""
    layers = [] if task.domain.kind == "tokens" else linear_layers(task)  # looked up, not multiplied
    names = [layer.name for layer in layers]
    return [
        layer
        for layer in layers
        if names.count(layer.name) == 1
        and layer.trained(task, "weight")
        and layer.trained(task, "bias")
        and Tail.of(task, task.params, {}, layer).meets_relu()
    ]


def first_layer(task: Task) -> LinearLayer | None:
    """The layer that takes the record itself, if exact recovery works at it."""
    return next((layer for layer in open_layers(task) if layer.raw), None)


@dataclass(frozen=True, repr=False)
class Recovery:
    """What was recovered of one batch, with its certificates.

    ``inputs [k, …]`` are records, or the features that the ``layer`` takes; ``labels [k, …]``; ``errors [k]`` the
    largest relative error over the equations that certify each; ``methods`` how each was found. ``residue`` is what all
    of them leave of the update, relative to its norm: with ``complete``, the certificate of the whole batch. ``rank``
    is that of the layer's gradient, ``batch`` the number of examples. ``left`` is what is left of the update.
    ``notes`` say in sentences why something was not recovered.
    """

    layer: str
    inputs: Tensor
    labels: Tensor
    errors: Tensor
    methods: tuple[str, ...]
    residue: float
    rank: int
    batch: int
    complete: bool
    left: Tree
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"Recovery({len(self)} of {self.batch} at {self.layer!r}, residue {self.residue:.1e})"


def check_search(methods: str, starts: int, samples: int, where: str) -> None:
    """Refuse methods that there are not, and work that is not counted."""
    with guards.together():
        guards.choice(methods, "methods", where, get_args(Methods))
        guards.count(starts, "starts", where)
        guards.count(samples, "samples", where)


def recover(
    task: Task,
    observation: Observation,
    *,
    layer: str | None = None,
    methods: Methods = "both",
    samples: int = 1_000_000,
    starts: int = 512,
    seed: int = 0,
) -> Recovery:
    """The examples of one observation that can be certified, at the first layer or at a later one (its features).

    ``methods`` may leave out peeling or sparse directions; ``starts`` of the l1 search and ``samples`` of SPEAR's
    sampling bound the work. Rounds are tried in order until one gives the whole batch; the best counts. An update that
    cannot be taken apart (:func:`obstacle`) is an ObservationError.
    """
    check_search(methods, starts, samples, "recover")
    reason = _of_protection(task) or _of_recipe(task)
    if reason:
        raise ObservationError(NOT_APPLICABLE + reason, where="recover", remedy="attack with adaptive()")
    where = _chosen(task, layer)
    best: Recovery | None = None
    for each in observation.rounds:
        recovery = _Case(task, observation, each, where, methods, samples, starts, seed).recover()
        best = recovery if best is None or len(recovery) > len(best) else best
        if best.complete:
            break
    assert best is not None
    return best


def _chosen(task: Task, name: str | None) -> LinearLayer:
    layers = {layer.name: layer for layer in open_layers(task)}
    if name is None:
        first = next((layer for layer in layers.values() if layer.raw), None)
        if first is None:
            what = "no linear layer with a bias takes the record itself and meets ReLU"
            others = f"name a later layer: {', '.join(layers)}" if layers else "attack with adaptive()"
            raise ModelError(what, where="recover", remedy=others)
        return first
    if name not in layers:
        what = f"{name!r} is no linear layer with a bias that meets ReLU"
        raise ModelError(what, where="recover", remedy=nearest(name, layers))
    return layers[name]


@dataclass(frozen=True)
class _Case:
    """One round at one layer."""

    task: Task
    observation: Observation
    round: Round
    layer: LinearLayer
    methods: Methods
    samples: int
    starts: int
    seed: int

    @property
    def batch(self) -> int:
        return self.observation.batch

    def recover(self) -> Recovery:
        gradient = self._gradient
        layer = LayerGradient.of(gradient, self.layer, self._precision, self.batch)
        if not bool(layer.weight.any()):
            return self._result(self._certifier(layer).none(), (), layer.rank, gradient)
        rank, certifier = layer.rank, self._certifier(layer)
        if rank > self.batch:
            return self._result(certifier.none(), (), rank, gradient)
        most = 0 if self.methods == "sparse" else self.batch
        peeled = peel(layer, certifier, most, shared=not self._apart)
        certified, methods = peeled.certified, ["peeling"] * len(peeled.certified)
        if self.methods != "peeling" and len(certified) < rank:
            more = by_sparse_directions(peeled.left, peeled.certifier, self._searches(peeled), seed=self.seed)
            certified, methods = certified + more, methods + ["sparse directions"] * len(more)
        if len(certified) == rank and "peeling" not in methods:  # quotients of single rows are better than any fit
            certified = _polished(certified, layer)
        result = self._result(certified, tuple(methods), rank, gradient, peeled.certifier.factor)
        if certifier.factor is not None or len(certified) != 1 or self.batch == 1:
            return result
        # of a free scale one candidate fits it to whatever it is, and a mixture in a linear region explains everything;
        # two that agree on it do so by half their digits
        lone = self._result(certifier.none(), (), rank, gradient)
        return replace(lone, notes=(*lone.notes, LONE))

    @property
    def _gradient(self) -> dict[str, Tensor]:
        sign = -1 if self.task.recipe.shares == "change" else 1
        return {name: sign * value.double() for name, value in self.round.observed.items()}

    @property
    def _precision(self) -> Precision:
        name = self.layer.parameter("weight")
        return Precision.of(self.round.observed[name].dtype, self.round.params[name].dtype)

    def _certifier(self, layer: LayerGradient) -> Certifier:
        labels, device = self.observation.labels, layer.bias.device
        soft = labels is not None and labels.is_floating_point()
        options = labels.double() if soft and labels is not None else torch.arange(self.task.domain.classes)
        tail = Tail.of(self.task, self.round.params, self.round.buffers, self.layer)
        return Certifier(tail, options.to(device), layer.precision, layer.factors[0], self._factor())

    @property
    def _scaled(self) -> bool:
        """Whether a defense may have scaled the update."""
        protection = self.task.protection
        return bool(protection.training) or any(part != type(part).neutral() for part in protection.chain.parts)

    @property
    def _updates(self) -> int:
        """How many updates, each protected by itself, were added up."""
        return max(1, self.round.clients // self.task.recipe.clients)

    @property
    def _apart(self) -> bool:
        """Whether κ differs from client to client: each scaled its own update, or trained at its own rate."""
        training = bool(self.task.protection.training) and self.round.clients > 1
        return training or (self._scaled and self._updates > 1)

    def _factor(self) -> float | None:
        """κ where the adversary knows it: nothing scales the update, and the rate is granted."""
        recipe = self.task.recipe
        if self._scaled:
            return None
        share = self._updates / self.batch if recipe.reduction == "mean" else 1 / recipe.clients
        if recipe.shares == "gradient":
            return share
        rate = self.round.granted.get(LEARNING_RATE)
        return share * float(rate) if isinstance(rate, Tensor) else None

    def _searches(self, peeled: Peeled) -> list[Search]:
        """The l1 search and, for few examples, sampling; a short run of each before a long one."""
        count = peeled.left.rank
        search: list[Search] = [partial(l1_searched, starts=min(64, self.starts))]
        if count <= LARGEST_SAMPLED:
            search += [partial(sampled, samples=min(self.samples, 20 * 2**count))]
        search += [partial(l1_searched, starts=self.starts)]
        return search + ([partial(sampled, samples=self.samples)] if count <= LARGEST_SAMPLED else [])

    def _result(
        self, certified: Certified, methods: tuple[str, ...], rank: int, gradient: Tree, factor: float | None = None
    ) -> Recovery:
        count = 1 if factor is None else (certified.factors / factor).round().long()
        if not isinstance(count, int):  # equal records add up to a multiple of κ
            rows = torch.arange(len(certified), device=count.device).repeat_interleave(count)
            methods = tuple(methods[row] for row in rows.tolist())
        else:
            rows = torch.arange(len(certified))
        inputs = self._records(certified.inputs)
        left = self._left(certified, inputs, gradient)
        residue = float(trees.norm(left) / trees.norm(gradient).clamp(min=torch.finfo(torch.float64).tiny))
        complete = len(rows) == self.batch and residue <= self._precision.tolerance
        notes = _notes(rank, self.batch, len(rows), self.layer.name)
        return Recovery(
            self.layer.name,
            inputs[rows],
            certified.labels[rows],
            certified.errors[rows],
            methods,
            residue,
            rank,
            self.batch,
            complete,
            left,
            notes,
        )

    def _records(self, inputs: Tensor) -> Tensor:
        """Records behind the first layer's inputs; features as they are."""
        return denormalised(self.task.model, inputs.view(-1, *self.task.domain.shape)) if self.layer.raw else inputs

    def _left(self, certified: Certified, inputs: Tensor, gradient: Tree) -> dict[str, Tensor]:
        """The update without the certified examples; of features, the gradient of their own layer."""
        if not self.layer.raw:
            own = LayerGradient.of(gradient, self.layer, self._precision, self.batch)
            own = own.without(certified.inputs, certified.deltas)
            return {self.layer.parameter("weight"): own.weight, self.layer.parameter("bias"): own.bias}
        if not len(certified):
            return dict(gradient)
        state = Tail.of(self.task, self.round.params, self.round.buffers, self.layer).state
        params = {name: state[name] for name in self.round.params}
        buffers = {name: value for name, value in state.items() if name not in params}

        def loss(theta: dict[str, Tensor]) -> Tensor:
            outputs = functional_call(self.task.working, (theta, buffers), (inputs,))
            return (certified.factors * self.task.working_recipe.loss(outputs, certified.labels)).sum()

        explained = grad(loss)(params)
        return {name: value - explained[name] for name, value in gradient.items()}


def _polished(certified: Certified, layer: LayerGradient) -> Certified:
    """All inputs once more by least squares over all rows, ``Δᵀ X = ∂W``: rounding averages out."""
    inputs = torch.linalg.lstsq(certified.deltas.T, layer.weight).solution
    return replace(certified, inputs=inputs) if bool(inputs.isfinite().all()) else certified


def _notes(rank: int, batch: int, count: int, layer: str) -> tuple[str, ...]:
    if rank > batch:
        sentence = f"{NOT_APPLICABLE}the gradient of {layer!r} has rank {rank}, more than {batch} examples can give it"
        return (sentence,)
    if rank < batch:
        sentence = (
            f"the gradient of {layer!r} has rank {rank}, less than its {batch} examples: some repeat (or differ by "
            "less than its rounding shows), depend on the "
        )
        return (f"{sentence}others or activate no unit{'' if count == batch else ', and cannot all be told apart'}",)
    return ()


__all__ = ["NOT_APPLICABLE", "Recovery", "first_layer", "obstacle", "open_layers", "recover"]
