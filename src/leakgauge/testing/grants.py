"""The law of grants: knowing a nuisance never hurts an adversary, and what is hidden from it is not used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary import Attack, Reconstruction
from leakgauge.attacks import adaptive
from leakgauge.client import LABELS, LEARNING_RATE, Recipe
from leakgauge.defenses import protection
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import Interval, mean_interval, psnr
from leakgauge.observation import Observation, observe
from leakgauge.task import Task
from leakgauge.testing.clients import image_records, image_task
from leakgauge.types import Records, Threat

Score = Callable[[Tensor, Tensor], Tensor]
"""Reconstructions and records, ``[n, …]`` each, to one score per record; higher is nearer."""
EVERYTHING = "everything"
"""Stands for all addresses at once among the answers of :func:`worth_of_grants`."""

RECIPES = (
    Recipe(batch=4, shares="change", local_steps=3),
    Recipe(batch=4, shares="change", weight_decay=0.1),
    Recipe(batch=4, shares="change", local_steps=3, learning_rate=0.01, optimiser="adam"),
)
"""Clients whose update depends on the learning rate by more than its scale, with labels that have to be counted."""


def capped_psnr(reconstruction: Tensor, records: Tensor) -> Tensor:
    """PSNR, at most 60 dB: beyond that both are exact, and the rest is rounding."""
    return psnr(reconstruction, records).clamp(max=60.0)


def folded_psnr(reconstruction: Tensor, records: Tensor) -> Tensor:
    """The same of magnitudes ``½ + |x − ½|``, which are all that is left of a record whose signs were flipped."""
    return capped_psnr(0.5 + (reconstruction - 0.5).abs(), 0.5 + (records - 0.5).abs())


def worth_of_grants(
    how: Any,
    *,
    task: Task | None = None,
    records: Records | None = None,
    attack: Attack | None = None,
    score: Score = capped_psnr,
    addresses: Collection[str] | None = None,
    rounds: int = 1,
    confidence: float = 0.95,
    seed: int = 4,
) -> dict[str, Interval]:
    """What each nuisance is worth to an attack: its mean gain in score when that is granted, with an interval.

    The same updates are attacked with everything in ``addresses`` hidden (by default every nuisance but the labels),
    with each of it granted, and with :data:`EVERYTHING`; differences are per record.
    """
    task = (task or image_task()).protect(how)
    records = records or image_records(6)
    attack = attack or adaptive(steps=80)
    chosen = _hidden(task, addresses)

    def scores(granted: Collection[str]) -> Tensor:
        observations = observe(task, records, threat=_threat(task, chosen, granted), seed=seed, rounds=rounds)
        inputs = _attacked(attack, task, observations, seed).inputs
        return score(inputs.flatten(0, 1).to(records.inputs), records.inputs[: len(inputs) * task.recipe.batch])

    hidden = scores(())
    arms = {address: (address,) for address in chosen} | ({EVERYTHING: chosen} if len(chosen) > 1 else {})
    return {name: mean_interval(scores(granted) - hidden, confidence) for name, granted in arms.items()}


def grants_law(how: Any, **options: Any) -> dict[str, Interval]:
    """Granting a nuisance does not lower the mean score of an attack beyond its interval.

    Takes the options of :func:`worth_of_grants` and returns its answer, none of whose upper ends lies below zero.
    Whoever tries many parts at once says a higher ``confidence``: at 95 %, one of forty true laws seems broken.
    """
    gains = worth_of_grants(how, **options)
    for name, gain in gains.items():
        assert gain.high >= 0, (
            f"{protection(how)!r}: granting {name} lowers the score by {-gain.mean:.2f} (between {-gain.high:.2f} and "
            f"{-gain.low:.2f}) on average over {gain.n} records"
        )
    return gains


def hiding_law(
    how: Any,
    *,
    task: Task | None = None,
    records: Records | None = None,
    attack: Attack | None = None,
    addresses: Collection[str] | None = None,
    rounds: int = 1,
    seed: int = 4,
) -> Reconstruction:
    """What is hidden is not in the observation, and another value of it changes no bit of the reconstruction.

    A client sends the same, whatever the adversary is told. The attack then gets observations that were granted
    everything and had it taken out again, after clients have drawn other values (so that a value that was put aside
    anywhere is now another one), at a task whose learning rate, where that is hidden, is another: same process, same
    shapes, hence the same bits. By default labels are not hidden; :func:`hidden_rate_law` hides them.
    """
    task = (task or image_task()).protect(how)
    records = records or image_records(2)
    attack = attack or adaptive(steps=3)
    chosen = _hidden(task, addresses)
    hidden = observe(task, records, threat=_threat(task, chosen, ()), seed=seed, rounds=rounds)
    told = observe(task, records, threat=_threat(task, chosen, chosen), seed=seed, rounds=rounds)
    for blind, knowing in zip(hidden, told, strict=True):
        for without, given_all in zip(blind.rounds, knowing.rounds, strict=True):
            leaked = sorted(set(without.granted) & set(chosen))
            assert not leaked, f"{task.protection!r}: {leaked} is hidden, but in the observation"
            assert set(chosen) <= set(given_all.granted), f"{task.protection!r}: a grant among {chosen} was dropped"
            for name, value in without.observed.items():
                same = torch.equal(value, given_all.observed[name])
                assert same, (
                    f"{task.protection!r}: what a client sends ({name!r}) depends on what the adversary is told"
                )
    first = _attacked(attack, task, hidden, seed)
    for other in range(2):
        observe(task, records, threat=_threat(task, chosen, chosen), seed=seed + 1 + other, rounds=rounds)
    again = _attacked(attack, _elsewhere(task, chosen), [_without(one, chosen) for one in told], seed)
    for name in ("inputs", "labels", "log_posterior"):
        same = torch.equal(getattr(first, name), getattr(again, name))
        assert same, (
            f"{task.protection!r}: {attack!r} uses one of {', '.join(chosen)}, which are hidden ({name} differ)"
        )
    return first


def hidden_rate_law(
    how: Any, *, records: Records | None = None, attack: Attack | None = None, recipes: Sequence[Recipe] = RECIPES
) -> None:
    """A learning rate that is hidden beside the labels is not used to infer these.

    :func:`hiding_law` by default leaves labels granted, for which no attack then needs a rate. Here both are hidden, of
    clients that take several local steps, decay their weights or use Adam.
    """
    for recipe in recipes:
        task = image_task(recipe=recipe)
        hiding_law(
            how,
            task=task,
            records=records or image_records(4 * recipe.batch),
            attack=attack,
            addresses=(LABELS, LEARNING_RATE),
        )


def _hidden(task: Task, addresses: Collection[str] | None) -> tuple[str, ...]:
    chosen = tuple(addresses) if addresses is not None else tuple(a for a in task.nuisances if a != LABELS)
    assert chosen, f"{task.protection!r} has no nuisance to hide"
    return chosen


def _threat(task: Task, chosen: Collection[str], granted: Collection[str]) -> Threat:
    """Of the chosen nuisances some are granted; all others are."""
    known = {address for address in task.nuisances if address not in chosen} | set(granted)
    return Threat(grants=frozenset(known), labels="inferred", learning_rate="unknown")


def _without(observation: Observation, addresses: Collection[str]) -> Observation:
    for address in addresses:
        observation = observation.given(address, None)
    return observation


def _elsewhere(task: Task, hidden: Collection[str]) -> Task:
    """The same client, known to run at another rate, where that is hidden."""
    if LEARNING_RATE not in hidden:
        return task
    return replace(task, recipe=replace(task.recipe, learning_rate=37.0 * task.recipe.learning_rate))


def _attacked(attack: Attack, task: Task, observations: Sequence[Observation], seed: int) -> Reconstruction:
    with _quiet():
        return attack(task, observations, seed=seed)


@contextmanager
def _quiet() -> Iterator[None]:
    """What an attack has to assume is no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        yield
