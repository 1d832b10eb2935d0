"""When the noise of a client repeats: attack the differences of its rounds, which are free of it.

Two updates with the same noise differ by the difference of their gradients, ``∇ℓ(θ₁; x) − ∇ℓ(θ₂; x)``. That is the
gradient, at φ = 0, of ``ℓ(θ₁ + φ; x) − ℓ(θ₂ + φ; x)``: an ordinary client with another model and another loss, so
that every attack on an undefended client applies. A hidden rate that repeats with the noise scales the difference and
nothing else. One that is drawn afresh weighs the two gradients differently: a first linear layer is read off all the
same, other networks are not attacked by such a difference.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge.adversary import Adversary, Reconstruction, scaled_l2
from leakgauge.adversary.joining import joined
from leakgauge.adversary.rates import repeated_in_difference
from leakgauge.adversary.repeats import Repeat, repeats
from leakgauge.adversary.solver import Lbfgs
from leakgauge.attacks.adapting import hint_of
from leakgauge.attacks.analytic import Analytic, inverts
from leakgauge.client import LABELS
from leakgauge.defenses import Protection, parts_of
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import AssumptionWarning
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Loss, Tree

INNER = "inner."
FITS = 0.99
"""The least share of a difference that a guess must explain where the client's rates are hidden and may differ."""

SOLVER = Lbfgs(steps=300, target=1e-8)
"""A difference is free of noise: it is matched as closely as its rounding allows."""


@dataclass(frozen=True)
class Difference:
    """``ℓ(z₁, y) − ℓ(z₂, y)`` of two outputs side by side; the doubled classes of soft labels are added up."""

    loss: Loss
    classes: int

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if labels.dim() == outputs.dim():
            labels = labels[..., : self.classes] + labels[..., self.classes :]
        first, second = outputs.split(self.classes, -1)
        return self.loss(first, labels) - self.loss(second, labels)


class Differenced(nn.Module):
    """A model at two states θ₁ + φ and θ₂ + φ: its outputs side by side, φ its only parameters, at zero."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = copy.deepcopy(model)
        for number in (1, 2):
            for name, value in model.named_parameters():
                self.register_buffer(_state(number, name), value.detach().clone())
        for value in self.inner.parameters():
            value.data.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        shift = dict(self.inner.named_parameters())
        both = [
            functional_call(self.inner, {n: getattr(self, _state(k, n)) + v for n, v in shift.items()}, (inputs,))
            for k in (1, 2)
        ]
        return torch.cat(both, -1)


def _state(number: int, name: str) -> str:
    return f"state{number}_{name.replace('.', '__')}"


def repeated(task: Task, observation: Observation) -> list[Repeat]:
    """The rounds of an observation whose noise repeats; its law is used where it is the last part of the chain."""
    parts = parts_of(task.protection.update)
    masked = any("mask" in {nuisance.name for nuisance in part.nuisances} for part in parts)
    return repeats(
        [one.observed for one in observation.rounds],
        batch=observation.batch,
        law=parts[-1].noise_law if parts else None,
        masked=masked,
    )


def differences(task: Task, observation: Observation, which: Sequence[Repeat]) -> tuple[Task, Observation] | None:
    """A task and an observation without noise, from rounds that share it; None where differences do not help.

    They need one local step (hidden rates are taken to repeat as well), weights that differ between the rounds, and
    nothing but noise at the update stage; parts that scale the update (clipping) are allowed where a first linear layer
    is read off, which no scale matters to.
    """
    recipe, parts = task.recipe, parts_of(task.protection.update)
    read_off = observation.batch == 1 and inverts(task)
    noise_alone = all(is_noise(p) or p == p.neutral() or (read_off and hint_of(p).scales) for p in parts)
    plain = recipe.local_steps == 1 and not recipe.weight_decay and noise_alone
    others = (*task.protection.input, *task.protection.model)
    pairs = [(observation.rounds[r.first], observation.rounds[r.second]) for r in which if r.what == "noise"]
    rounds = [_subtracted(one, other, recipe.shares == "change") for one, other in pairs]
    rounds = [one for one in rounds if any(bool(value.any()) for value in one.observed.values())]
    if not plain or others or not rounds:
        return None
    domain = replace(task.domain, classes=2 * task.domain.classes)
    loss = Difference(recipe.loss, task.domain.classes)
    own = replace(recipe, shares="gradient", loss=loss)
    differenced = Task(Differenced(task.model), domain, own, Protection())
    state = differenced.params
    return differenced, Observation(tuple(replace(one, params=state) for one in rounds), observation.batch)


def _subtracted(one: Round, other: Round, change: bool) -> Round:
    sign = -1 if change else 1
    observed = {INNER + n: sign * (v - other.observed[n]) for n, v in one.observed.items()}
    states = {_state(k, n): v for k, each in ((1, one), (2, other)) for n, v in each.params.items()}
    granted = {LABELS: one.granted[LABELS]} if LABELS in one.granted else {}
    return Round(observed, {}, granted, states)


def cancelled(task: Task, observation: Observation, which: Sequence[Repeat], *, seed: int = 0) -> Reconstruction | None:
    """The reconstruction from the differences of rounds that share their noise; None where they do not help."""
    free = differences(task, observation, which)
    if free is None:
        return None
    guess, share = attacked(task, *free, seed=seed)
    read_off = observation.batch == 1 and inverts(free[0])
    return guess if read_off or share > FITS or not task.protection.training else None


def attacked(task: Task, own: Task, difference: Observation, *, seed: int = 0) -> tuple[Reconstruction, float]:
    """The reconstruction from a difference, and the share ``cos²`` of it that this explains.

    A difference does not show the labels: where they are hidden, every class is tried for one example (the one that
    explains most wins), and labels of a batch are searched for beside the inputs.
    """
    known = difference.labels is not None
    tried = [difference]
    if difference.batch == 1 and not known:
        tried = [difference.given(LABELS, torch.tensor([label])) for label in range(task.domain.classes)]
    if difference.batch == 1 and inverts(own):
        guesses = Analytic()(own, tried)
    else:
        labels: Literal["inferred", "joint"] = "inferred" if known or difference.batch == 1 else "joint"
        adversary = Adversary(scaled_l2(relative=True), solver=SOLVER, restarts=2, labels=labels)
        guesses = adversary(own, tried, seed=seed)
        guesses = replace(guesses, labels=guesses.labels % task.domain.classes)
    shares = [_share(own, guesses.inputs[i], guesses.labels[i], one) for i, one in enumerate(tried)]
    best = max(range(len(shares)), key=shares.__getitem__)
    return _row(guesses, best), shares[best]


def without_repeats(
    task: Task,
    observations: Sequence[Observation],
    invert: Callable[[Sequence[Observation]], Reconstruction],
    seed: int,
) -> Reconstruction:
    """Attack observations whose noise repeats by their differences, and the others as ``invert`` does.

    Where differences do not help (the same weights in every round), rounds that share their noise count once.
    """
    parts: dict[int, Reconstruction] = {}
    left: dict[int, Observation] = {}
    for place, one in enumerate(observations):
        noise = [repeat for repeat in repeated(task, one) if repeat.what == "noise"] if _may_repeat(task, one) else []
        guess = cancelled(task, one, noise, seed=seed) if noise else None
        if guess is not None:
            like = next(iter(task.params.values()))
            parts[place] = replace(guess, inputs=guess.inputs.to(like), traces=guess.traces or (like.new_zeros(0),))
        else:
            second = {repeat.second for repeat in noise}
            rounds = tuple(each for r, each in enumerate(one.rounds) if r not in second)
            left[place] = replace(one, rounds=rounds) if second else one
        if noise:
            how = "cancelled by differences" if guess is not None else "rounds that share it count once"
            rates = guess and repeated_in_difference(task, one, noise[0], guess.inputs[0], guess.labels[0])
            also = f"; {rates}" if rates else ""
            warnings.warn(f"noise repeats: {how} ({noise[0]}{also})", AssumptionWarning, stacklevel=4)
    if not parts:
        return invert(list(left.values()))
    order = [*parts, *left]
    several = [*parts.values(), *([invert(list(left.values()))] if left else [])]
    return joined(several, [order.index(place) for place in range(len(observations))])


def _may_repeat(task: Task, observation: Observation) -> bool:
    """Whether there are rounds to compare, and a part that could draw."""
    parts = parts_of(task.protection.update)
    return len(observation.rounds) > 1 and any(part != part.neutral() for part in parts)


def _row(several: Reconstruction, row: int) -> Reconstruction:
    rows = slice(row, row + 1)
    return replace(
        several,
        inputs=several.inputs[rows],
        labels=several.labels[rows],
        log_posterior=several.log_posterior[rows],
        traces=several.traces[rows],
        status=several.status[rows],
    )


def _share(own: Task, inputs: Tensor, labels: Tensor, observation: Observation) -> float:
    """``cos²`` of a candidate's difference and the observed one, over all rounds."""
    dot = ours = theirs = 0.0
    inputs = inputs.to(next(iter(own.params.values())))
    for one in observation.rounds:
        update = own.client(one.params, inputs, labels, {}, buffers={**own.buffers, **one.buffers})
        dot += sum(float((update[n].double() * v.double()).sum()) for n, v in one.observed.items())
        ours += _square(update)
        theirs += _square(one.observed)
    return max(dot, 0.0) ** 2 / max(ours * theirs, 1e-300)


def _square(tree: Tree) -> float:
    return sum(float(value.double().square().sum()) for value in tree.values())


__all__ = ["Difference", "Differenced", "attacked", "cancelled", "differences", "repeated", "without_repeats"]
