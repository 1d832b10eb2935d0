"""The bounds of a protection: capacity, ε and the ceiling on reconstruction, or the reason why there is none.

A proof needs noise, and a limit on how far a record can move what the noise is added to (the sensitivity). Parts before
the clipping are pre-processing and parts after the noise are post-processing: neither increases any of the three. The
update-stage chain is analysed from its noise backwards; the other stages come before it and do not matter. Parts state
what they promise, so that a part of another package gets a bound, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from leakgauge import guards
from leakgauge.bounds.best_guess import BestGuess
from leakgauge.bounds.capacity import repeat
from leakgauge.bounds.laws import Figure, Proof, fresh_noise, proof_of, times
from leakgauge.bounds.reconstruction import Ceiling, capacity_ceiling
from leakgauge.bounds.sensitivity import sensitivity_at
from leakgauge.defenses import NoiseLaw, Protection, Sensitivity, Sizes, Unit, UpdatePart, parts_of
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import NoBoundError
from leakgauge.task import Task

_FORMULA = "bound of a protection"
_UNPROVEN = "no proof is known"


@dataclass(frozen=True)
class Bound:
    """What no adversary can beat under a protection.

    ``log_capacity`` covers all records of the client together; ``epsilon`` protects one ``unit``; ``ceiling`` bounds
    the probability of reconstructing one record within the threshold of the best guess.
    """

    protection: str
    log_capacity: Figure
    epsilon: Figure
    ceiling: Figure
    unit: Unit | None
    rounds: int


def bound_of_task(
    task: Task,
    *,
    rounds: int = 1,
    delta: float | None = None,
    guess: BestGuess | float | None = None,
    grants: Collection[str] = (),
) -> Bound:
    """:func:`bound_of` the task's protection, with the sizes of its tensors and the batch of its recipe."""
    return bound_of(
        task.protection,
        {name: p.numel() for name, p in task.params.items()},
        batch=task.recipe.batch,
        reduction=task.recipe.reduction,
        rounds=rounds,
        delta=delta,
        guess=guess,
        grants=grants,
    )


def bound_of(
    protection: Protection | UpdatePart,
    sizes: Sizes,
    *,
    batch: int = 1,
    rounds: int = 1,
    delta: float | None = None,
    guess: BestGuess | float | None = None,
    grants: Collection[str] = (),
    reduction: Literal["mean", "sum"] = "mean",
) -> Bound:
    """The bounds of a protection; each is a :class:`Figure`, whose value is None where nothing is proven.

    Args:
        sizes: p, the entries of the update; or by tensor name, which clipping per layer needs.
        batch: L, the examples of one update. Per-example clipping divides the sensitivity to one record by L; since L
            reconstructions are matched to the records, the best guess has L attempts and counts L times.
        rounds: in how many rounds the same records take part.
        delta: δ of the requested ε; None for no ε (Laplace and von Mises-Fisher noise have δ = 0 anyway).
        guess: the success of the best guess at the leak threshold: a :class:`BestGuess`, whose upper limit is used,
            or a known number; None for no ceiling. If the adversary knows labels, the guess must use them, too.
        grants: the nuisances that the threat model grants; one that depends on the record bypasses the noise.
        reduction: whether the client averages or sums its examples.
    """
    whole = Protection(update=protection) if isinstance(protection, UpdatePart) else protection
    for size in [sizes] if isinstance(sizes, int) else sizes.values():
        guards.count(size, "sizes", _FORMULA)
    client = Sensitivity(
        sizes, guards.count(batch, "batch", _FORMULA), averaged=reduction == "mean", mixed=bool(whole.input)
    )
    asked = _Asked(guards.count(rounds, "rounds", _FORMULA), delta, guess, client.batch)
    laws = {place: law for place, part in enumerate(parts_of(whole.update)) if (law := part.noise_law) is not None}
    bounds = [_bound_by(whole, place, law, client, grants, asked) for place, law in laws.items()]
    if not bounds:
        return _nothing(whole, _without_noise(whole), asked.rounds)
    best = min(bounds, key=lambda bound: (_value(bound.ceiling), _value(bound.log_capacity)))
    capacity = min((bound.log_capacity for bound in bounds), key=_value)
    return Bound(repr(whole), capacity, best.epsilon, best.ceiling, best.unit, asked.rounds)


@dataclass(frozen=True)
class _Asked:
    """What was requested, independent of the noise."""

    rounds: int
    delta: float | None
    guess: BestGuess | float | None
    batch: int


def _bound_by(
    whole: Protection, place: int, law: NoiseLaw, client: Sensitivity, grants: Collection[str], asked: _Asked
) -> Bound:
    """The bound that follows from the noise at one place of the chain."""
    try:
        at = sensitivity_at(whole, place, client, grants)
        proof = proof_of(law)
    except NoBoundError as error:
        return _nothing(whole, str(error), asked.rounds)
    log_capacity = repeat(max(proof.log_capacity(at), 0.0), asked.rounds)
    return Bound(
        repr(whole),
        _capacity(log_capacity, asked.rounds),
        proof.epsilon(at, asked.rounds, asked.delta),
        _no_guess() if asked.guess is None else _ceiling(log_capacity, proof, at, asked, asked.guess),
        at.unit,
        asked.rounds,
    )


def _nothing(whole: Protection, why: str, rounds: int) -> Bound:
    nothing = Figure(None, f"{_UNPROVEN}: {why}")
    return Bound(repr(whole), nothing, nothing, nothing, None, rounds)


def _without_noise(whole: Protection) -> str:
    """Why nothing is proven about a protection without noise of a known law on the update."""
    early = [part for part in (*whole.input, *whole.model, *whole.training) if part != part.neutral()]
    late = [part for part in parts_of(whole.update) if is_noise(part) or any(n.law for n in part.nuisances)]
    chance = [*early, *(part for part in late if part != part.neutral())]
    if chance:
        names = " and ".join(map(repr, chance))
        drawn = "draws" if len(chance) == 1 else "draw"
        return f"{names} {drawn} at random, but proofs are known only for noise on a clipped update"
    return f"{whole!r} adds no noise: the release is a function of the record, and nothing limits what it reveals"


def _value(figure: Figure) -> float:
    return math.inf if figure.value is None else figure.value


def _capacity(log_capacity: float, rounds: int) -> Figure:
    sentence = (
        f"no adversary multiplies its success by more than e^{log_capacity:.4g}, for any prior and any gain, "
        f"on all records of the client together, over {times(rounds)}"
    )
    return Figure(log_capacity, sentence, (fresh_noise(rounds),))


def _no_guess() -> Figure:
    return Figure(None, "a ceiling needs the success of the best guess at the leak threshold")


def _ceiling(log_capacity: float, proof: Proof, at: Sensitivity, asked: _Asked, guess: BestGuess | float) -> Figure:
    one = guess.upper if isinstance(guess, BestGuess) else guards.probability(guess, "guess", _FORMULA)
    several = min(1.0, asked.batch * one)
    limits: list[Ceiling] = [capacity_ceiling(several, log_capacity)]
    if (other := proof.ceiling(at, asked.rounds, several)) is not None:
        limits.append(other)
    best = min(limits, key=lambda limit: limit.value)
    start = f"best guess ≤ {several:.4g}; {best.bound}"
    sentence = (
        f"no adversary reconstructs a record within the threshold with probability above {best.value:.4g} "
        f"({start}; {times(asked.rounds)})"
    )
    if best.value > 0.9995:
        sentence = f"a ceiling of 1 proves nothing: more noise is needed ({start})"
    return Figure(
        best.value,
        sentence,
        (fresh_noise(asked.rounds), f"compared with {best.reference}", *_about(guess, asked.batch)),
    )


def _about(guess: BestGuess | float, batch: int) -> tuple[str, ...]:
    """The assumptions behind the success of the best guess."""
    several = (
        (f"the best guess counts {batch} times: {batch} reconstructions are matched to each record",)
        if batch > 1
        else ()
    )
    if not isinstance(guess, BestGuess):
        return ("the best guess is given, not measured", *several)
    limit = f"upper {guess.confidence:.0%} limit on {guess.samples} reference records"
    sample = f"best guess: {limit}, distributed like the victim's"
    tried = ("the best guess covers only the guesses that were tried",) if guess.scope != "all guesses" else ()
    return (sample, *tried, *several)


__all__ = ["Bound", "Figure", "bound_of", "bound_of_task"]
