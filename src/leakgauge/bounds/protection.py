"""The bounds of a protection: capacity, ε and the ceiling on reconstruction, or the reason why there is none.

A proof needs noise, and a limit on how far a record can move what the noise is added to (the sensitivity). Parts before
the clipping are pre-processing and parts after the noise are post-processing: neither increases any of the three. The
update-stage chain is analysed from its noise backwards; the other stages come before it and do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from leakgauge import guards
from leakgauge.bounds.accounting import epsilon_of
from leakgauge.bounds.best_guess import BestGuess
from leakgauge.bounds.capacity import log_capacity_vmf, repeat
from leakgauge.bounds.epsilon import Unit, laplace_epsilon, vmf_epsilon
from leakgauge.bounds.gaussian_capacity import log_capacity_gaussian
from leakgauge.bounds.laplace_capacity import log_capacity_laplace
from leakgauge.bounds.pruned_capacity import log_capacity_pruned
from leakgauge.bounds.reconstruction import (
    Ceiling,
    capacity_ceiling,
    epsilon_ceiling,
    mu_ceiling,
    vmf_ceiling,
    vmf_rounds,
)
from leakgauge.bounds.sensitivity import Reach, Sizes, reach_of
from leakgauge.defenses import (
    Gaussian,
    Laplace,
    Protection,
    Quantise,
    RandomPrune,
    UpdatePart,
    VonMisesFisher,
    parts_of,
)
from leakgauge.defenses.update.chain import is_noise
from leakgauge.task import Task

_FORMULA = "bound of a protection"
_NOISE = "the noise is drawn as stated, independently of everything, and hidden"
_KNOWN = "no proof is known"


@dataclass(frozen=True)
class Figure:
    """A proven number with its meaning, or None with the reason why there is none; and its assumptions."""

    value: float | None
    sentence: str
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound:
    """What no adversary can beat under a protection.

    ``log_capacity`` covers all records of the client together; ``epsilon`` protects one ``unit``; ``ceiling`` bounds
    the probability of reconstructing one record within the threshold at which κ was measured.
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
    sizes = {name: p.numel() for name, p in task.params.items()}
    recipe = task.recipe
    options = {"rounds": rounds, "delta": delta, "guess": guess, "grants": grants}
    return bound_of(task.protection, sizes, batch=recipe.batch, reduction=recipe.reduction, **options)  # type: ignore[arg-type]


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
            reconstructions are matched to the records, even the best guess has L attempts, and κ counts L times.
        rounds: in how many rounds the same records take part.
        delta: δ of the requested ε; None for no ε (Laplace and von Mises-Fisher noise have δ = 0 anyway).
        guess: κ, the success of the best guess at the leak threshold: a :class:`BestGuess`, whose upper limit is used,
            or a known number; None for no ceiling. If the adversary knows labels, the guess must use them, too.
        grants: the nuisances that the threat model grants; one that depends on the record bypasses the noise.
        reduction: whether the client averages or sums its examples.
    """
    whole = Protection(update=protection) if isinstance(protection, UpdatePart) else protection
    size = guards.count(batch, "batch", _FORMULA)
    count = guards.count(rounds, "rounds", _FORMULA)
    parts = parts_of(whole.update)
    found = [
        _noisy(whole, place, sizes, size, count, delta, guess, frozenset(grants), reduction)
        for place, part in enumerate(parts)
        if is_noise(part) and not _silent(part)
    ]
    if not found:
        nothing = Figure(None, f"{_KNOWN}: {_without_noise(whole)}")
        return Bound(repr(whole), nothing, nothing, nothing, None, count)
    best = min(found, key=lambda bound: (_value(bound.ceiling), _value(bound.log_capacity)))
    return Bound(
        repr(whole),
        min((bound.log_capacity for bound in found), key=_value),
        best.epsilon,
        best.ceiling,
        best.unit,
        count,
    )


def _without_noise(whole: Protection) -> str:
    """Why nothing is proven about a protection that adds no noise to the update."""
    early = [part for part in (*whole.input, *whole.model, *whole.training) if part != part.neutral()]
    chance = [*early, *(part for part in parts_of(whole.update) if isinstance(part, RandomPrune | Quantise))]
    if chance:
        names = " and ".join(map(repr, chance))
        drawn = "draws" if len(chance) == 1 else "draw"
        return f"{names} {drawn} at random, but proofs are known only for noise on a clipped update"
    return f"{whole!r} adds no noise: the release is a function of the record, and nothing limits what it reveals"


def _value(figure: Figure) -> float:
    return math.inf if figure.value is None else figure.value


def _silent(part: UpdatePart) -> bool:
    return (isinstance(part, Gaussian) and part.std == 0) or (isinstance(part, Laplace) and part.scale == 0)


def _noisy(
    whole: Protection,
    place: int,
    sizes: Sizes,
    batch: int,
    rounds: int,
    delta: float | None,
    guess: BestGuess | float | None,
    grants: frozenset[str],
    reduction: Literal["mean", "sum"],
) -> Bound:
    """The bound that follows from the noise at one place of the chain."""
    noise = parts_of(whole.update)[place]
    reach = reach_of(whole, place, sizes, batch, grants, mean=reduction == "mean")
    if isinstance(reach, str):
        nothing = Figure(None, f"{_KNOWN}: {reach}")
        return Bound(repr(whole), nothing, nothing, nothing, None, rounds)
    log_c = _log_capacity(noise, reach)
    capacity = (
        Figure(None, f"{_KNOWN}: {noise!r} has no capacity formula") if log_c is None else _capacity(log_c, rounds)
    )
    return Bound(
        repr(whole),
        capacity,
        _epsilon(noise, reach, rounds, delta),
        _ceiling(noise, reach, rounds, log_c, guess, batch),
        reach.unit,
        rounds,
    )


def _log_capacity(noise: UpdatePart, reach: Reach) -> float | None:
    """For one round and all records of the client; the smallest proven value."""
    p, r = reach.dim, reach.radius
    match noise:
        case VonMisesFisher(kappa=kappa):
            return log_capacity_vmf(p, kappa)
        case Laplace(scale=scale):
            return log_capacity_laplace(p, reach.l1, scale)
        case Gaussian(std=std):
            ball = log_capacity_gaussian(p, r, std) if reach.keep == 1 else log_capacity_pruned(p, r, std, reach.keep)
            layers = [math.fsum(log_capacity_gaussian(n, radius, std) for n, radius in reach.layers)]
            return min([ball, *(layers if reach.layers else [])])
    return None


def _capacity(log_c: float, rounds: int) -> Figure:
    total = repeat(max(log_c, 0.0), rounds)
    sentence = (
        f"no adversary multiplies its success by more than e^{total:.4g}, for any prior and any gain, on all records "
        f"of the client together, over {_times(rounds)}"
    )
    return Figure(total, sentence, (_NOISE,))


def _epsilon(noise: UpdatePart, reach: Reach, rounds: int, delta: float | None) -> Figure:
    relation = f"neighbouring: one {reach.unit} added or removed, {_times(rounds)}, no subsampling counted"
    assumed = (_NOISE, relation)
    match noise:
        case Gaussian(std=std) if delta is not None:
            if reach.one == 0:
                return Figure(0.0, "the release does not depend on the record", assumed)
            privacy = epsilon_of(std / reach.one, delta=delta, steps=rounds, unit=reach.unit)
            return Figure(privacy.epsilon, str(privacy), assumed)
        case Gaussian():
            return Figure(None, "ε of Gaussian noise needs a δ in (0, 1)")
        case Laplace(scale=scale):
            epsilon = rounds * laplace_epsilon(reach.one_l1, scale)
            return Figure(epsilon, f"({epsilon:.6g}, 0)-DP if one {reach.unit} is added or removed", assumed)
        case VonMisesFisher(kappa=kappa):
            epsilon = rounds * vmf_epsilon(kappa)
            sentence = f"metric privacy: ε = {epsilon:.6g} between opposite directions (ε = κ·distance), δ = 0"
            return Figure(epsilon, sentence, (_NOISE, f"unit: one {reach.unit}, replaced, {_times(rounds)}"))
    return Figure(None, f"{_KNOWN}: {noise!r} has no formula for ε")


def _ceiling(
    noise: UpdatePart, reach: Reach, rounds: int, log_c: float | None, guess: BestGuess | float | None, batch: int
) -> Figure:
    if guess is None:
        return Figure(None, "a ceiling needs κ, the success of the best guess at the leak threshold")
    one = guess.upper if isinstance(guess, BestGuess) else guards.probability(guess, "guess", _FORMULA)
    kappa = min(1.0, batch * one)
    limits: list[Ceiling] = [] if log_c is None else [capacity_ceiling(kappa, repeat(max(log_c, 0.0), rounds))]
    match noise:
        case Gaussian(std=std):
            limits.append(mu_ceiling(kappa, reach.one / std, rounds=rounds))
        case Laplace(scale=scale):
            limits.append(epsilon_ceiling(kappa, rounds * laplace_epsilon(reach.one_l1, scale)))
        case VonMisesFisher(kappa=concentration) if reach.dim > 1:
            single = vmf_ceiling(kappa, dim=reach.dim, concentration=concentration)
            limits.append(single if rounds == 1 else vmf_rounds(kappa, reach.dim, concentration, rounds))
    if not limits:
        return Figure(None, f"{_KNOWN}: {noise!r} has no ceiling")
    best = min(limits, key=lambda limit: limit.value)
    sentence = (
        f"no adversary reconstructs a record within the threshold with probability above {best.value:.4g} "
        f"(κ ≤ {kappa:.4g}; {best.bound}; {_times(rounds)})"
    )
    if best.value > 0.9995:
        sentence = f"a ceiling of 1 proves nothing: more noise is needed (κ ≤ {kappa:.4g}; {best.bound})"
    return Figure(best.value, sentence, (_NOISE, f"compared with {best.reference}", *_about(guess, batch)))


def _about(guess: BestGuess | float, batch: int) -> tuple[str, ...]:
    several = (f"κ counts {batch} times: {batch} reconstructions are matched to each record",) if batch > 1 else ()
    if not isinstance(guess, BestGuess):
        return ("κ is given, not measured", *several)
    sample = (
        f"κ: upper {guess.confidence:.0%} limit on {guess.samples} reference records, distributed like the victim's"
    )
    tried = ("κ covers only the guesses that were tried",) if guess.scope != "all guesses" else ()
    return (sample, *tried, *several)


def _times(rounds: int) -> str:
    return "one round" if rounds == 1 else f"{rounds} rounds"


__all__ = ["Bound", "Figure", "bound_of", "bound_of_task"]
