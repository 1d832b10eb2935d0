"""Attacks made of others: one adversary after another, or several, of which the posterior takes the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.adversary.run import attack as attack_with
from leakgauge.adversary.solver import Problem, Solution, Solver
from leakgauge.attacks.calling import CheckedAttack, Options, with_labels, within
from leakgauge.client import LABELS
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.priors.base import Scaled
from leakgauge.task import Task
from leakgauge.types import Progress, Threat, Treatment

AT_ONCE = 32
"""Guesses that are judged at once."""


@register("attack", "staged")
@dataclass(frozen=True, repr=False)
class Staged(CheckedAttack):
    """Adversaries one after another, each beginning at the inputs that the one before it ended with.

    The first may be any attack, such as the best of several. Between stages inputs are brought back into their box,
    which can only bring them nearer to a record that lies in it; labels that the first stage searched for are held.
    Treatments are those of the last stage; of labels that are held, those of the first.
    """

    models_defense: ClassVar[Literal["any"]] = "any"

    stages: tuple[Attack, ...]

    def __post_init__(self) -> None:
        if (
            not self.stages
            or not callable(self.stages[0])
            or not all(isinstance(s, Adversary) for s in self.stages[1:])
        ):
            what = "stages must be an attack and, after it, adversaries"
            raise DomainError(what, where="staged", remedy="give staged(stages=(adversary(),))")

    @property
    def steps(self) -> int:
        return sum(map(steps_of, self.stages))

    @property
    def members(self) -> tuple[Attack, ...]:
        return self.stages

    @property
    def last(self) -> Attack:
        return self.stages[-1]

    def then(self, *stages: Adversary) -> Staged:
        return Staged((*self.stages, *stages))

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        first, last = (_treatments(stage, task, threat) for stage in (self.stages[0], self.last))
        return tuple((first if address == LABELS and address in first else last)[address] for address in last)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        done, last = 0, None
        for stage in self.stages:
            own = within(options, done, self.steps)
            if isinstance(stage, Adversary):
                (last,) = stage_after([last], [stage], task, observations, **own)
            else:
                last = stage(task, observations, **own)
            done += steps_of(stage)
        assert last is not None
        return last


def members(attack: Attack) -> list[Attack]:
    """An attack and all that it is made of, such as its stages, its rivals, their judge."""
    inside: Sequence[Attack] = getattr(attack, "members", ())
    return [attack, *(one for part in inside for one in members(part))]


def _treatments(attack: Attack, task: Task, threat: Threat | None) -> dict[str, Treatment]:
    """What an attack does about every nuisance, by address; nothing where it does not say."""
    ask = getattr(attack, "treatments", None)
    return {} if ask is None else {treatment.address: treatment for treatment in ask(task, threat)}


def _either(several: Sequence[Treatment]) -> Treatment:
    """One treatment for those of several attacks, with the sentence of each."""
    first, *others = dict.fromkeys(one.sentence for one in several)
    return replace(several[0], sentence="; or ".join([first, *(one.removeprefix("hidden; ") for one in others)]))


def steps_of(attack: Attack) -> int:
    """The steps of an attack, of all its parts; 1 for one that does not say."""
    steps: int = attack.solver.steps if isinstance(attack, Adversary) else getattr(attack, "steps", 1)
    return steps


def stage_after(
    before: Sequence[Reconstruction | None],
    stages: Sequence[Adversary],
    task: Task,
    observations: Sequence[Observation],
    **options: Any,
) -> list[Reconstruction]:
    """Several stages at once, each going on from its own reconstruction (None: from its start).

    Those that differ in numbers only are problems of one solver and share every observation.
    """
    families: dict[str, list[int]] = {}
    for place, (last, stage) in enumerate(zip(before, stages, strict=True)):
        held = "" if last is None else f" {last.labels.tolist()}"  # labels that were searched for may differ
        families.setdefault(f"{last is None} {family(stage)}{held}", []).append(place)
    results: dict[int, Reconstruction] = {}
    for places in families.values():
        earlier = [one for place in places if (one := before[place]) is not None]
        begin = torch.stack([one.inputs for one in earlier]) if earlier else None
        labelled = with_labels(observations, earlier[0]) if earlier else observations
        settings = [stages[place] for place in places]
        done = attack_with(settings, task, labelled, begin=begin, **options)
        share = done[0].evaluations // len(places)
        for place, one in zip(places, done, strict=True):
            already = before[place]
            spent = share + (0 if already is None else already.evaluations)
            results[place] = replace(one, inputs=boxed(one.inputs, task), evaluations=spent)
    return [results[place] for place in range(len(stages))]


def family(stage: Adversary) -> str:
    """What settings of one sweep have in common: all but the weight of the prior and the learning rate."""
    prior = stage.prior.prior if isinstance(stage.prior, Scaled) else stage.prior
    solver = stage.solver
    if "lr" in solver.sweepable:
        solver = replace(solver, lr=1.0)  # type: ignore[type-var]
    texts = [repr(getattr(stage, f.name)) for f in fields(stage) if f.name not in ("prior", "solver")]
    return f"{type(stage.prior).__name__} {prior!r} {solver!r} {' '.join(texts)}"


def boxed(inputs: Tensor, task: Task) -> Tensor:
    return inputs if task.domain.box is None else inputs.clamp(*task.domain.box)


@dataclass(frozen=True, repr=False)
class _Stay(Solver):
    """Evaluate the start, and stay there; a few problems at a time, whose graphs fit in memory that is in use."""

    steps: int = 1

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        parts = [self._objective(problem, which) for which in torch.arange(problem.size).split(AT_ONCE)]
        objective = torch.cat(parts)
        return Solution(dict(problem.start), objective, objective.unsqueeze(0), ("steps",) * problem.size, problem.size)

    @staticmethod
    def _objective(problem: Problem, which: Tensor) -> Tensor:
        with torch.enable_grad():  # a path may need a graph of its own
            value = problem.evaluate({name: start[which] for name, start in problem.start.items()}, which)
        return -(value.likelihood + value.prior).detach()


def posterior(
    judge: Adversary, task: Task, observations: Sequence[Observation], guess: Reconstruction | None = None
) -> Tensor:
    """The log posterior ``[n]`` of a guess, or of the judge's own start, under the objective of ``judge``."""
    still = replace(judge, solver=_Stay(), restarts=1)
    if guess is None:
        return still(task, observations).log_posterior
    labelled = with_labels(observations, guess)
    return still(task, labelled, begin=guess.inputs).log_posterior.nan_to_num(nan=-torch.inf)


def posteriors(
    judges: Sequence[Adversary], task: Task, observations: Sequence[Observation], guesses: Sequence[Reconstruction]
) -> list[list[Tensor]]:
    """The log posterior ``[n]`` of every guess under every judge, in one evaluation."""
    stills = [replace(judge, solver=_Stay(), restarts=1) for judge in judges for _ in guesses]
    done = [
        one.log_posterior.nan_to_num(nan=-torch.inf)
        for one in stage_after([*guesses] * len(judges), stills, task, observations)
    ]
    return [done[i : i + len(guesses)] for i in range(0, len(done), len(guesses))]


@register("attack", "best_of")
@dataclass(frozen=True, repr=False)
class BestOf(CheckedAttack):
    """Several attacks; for every observation the guess with the highest log posterior under ``judge`` is taken.

    The objectives of different attacks cannot be compared, hence a common one; the truth is not needed. Where the
    attacks treat a nuisance differently, the sentence of its treatment names each way.
    """

    models_defense: ClassVar[Literal["any"]] = "any"

    attacks: tuple[Attack, ...]
    judge: Adversary

    def __post_init__(self) -> None:
        if not isinstance(self.attacks, tuple | list) or not all(map(callable, self.attacks)):
            raise DomainError(
                "attacks must be several attacks", where="best_of", remedy="give best_of(attacks=(…,), judge=…)"
            )
        if not isinstance(self.judge, Adversary):
            raise DomainError("judge must be an adversary", where="best_of", remedy="say judge=adversary()")
        if not self.attacks:
            raise DomainError("there is no attack", where="best_of", remedy="give best_of(attacks=(…,), judge=…)")

    @property
    def steps(self) -> int:
        return sum(map(steps_of, self.attacks))

    @property
    def members(self) -> tuple[Attack, ...]:
        return (*self.attacks, self.judge)

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        several = [_treatments(attack, task, threat) for attack in self.attacks]
        stated = [one for one in several if one] or [_treatments(self.judge, task, threat)]
        return tuple(_either([one[address] for one in stated if address in one]) for address in stated[0])

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        steps = list(map(steps_of, self.attacks))
        guesses = [
            one(task, observations, **within(options, sum(steps[:i]), sum(steps))) for i, one in enumerate(self.attacks)
        ]
        return best(guesses, [posterior(self.judge, task, observations, guess) for guess in guesses])


def best(guesses: Sequence[Reconstruction], values: Sequence[Tensor]) -> Reconstruction:
    """For every observation the guess with the highest value, the first of equal ones."""
    return picked(guesses, values, torch.stack(list(values)).argmax(0).tolist())


def picked(guesses: Sequence[Reconstruction], values: Sequence[Tensor], places: Sequence[int]) -> Reconstruction:
    """For observation i guess ``places[i]``, with its value for its log posterior."""
    chosen = [(guesses[place], i) for i, place in enumerate(places)]
    return Reconstruction(
        torch.stack([guess.inputs[i] for guess, i in chosen]),
        torch.stack([guess.labels[i] for guess, i in chosen]),
        torch.stack([values[place][i] for i, place in enumerate(places)]),
        tuple(guess.traces[i] for guess, i in chosen if guess.traces),
        tuple(guess.status[i] for guess, i in chosen if guess.status),
        sum(guess.evaluations for guess in guesses),
        guesses[0].path,
    )


staged, best_of = Staged, BestOf
