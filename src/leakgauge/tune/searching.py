"""Optuna proposes the trials. Its study lives in memory only: trials are kept in our own store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from leakgauge import guards
from leakgauge.errors import DomainError, LeakgaugeError, MissingExtraError
from leakgauge.tune.ranges import Choice, Linear, Log, Range
from leakgauge.tune.space import Space

Sampler = Literal["tpe", "random", "grid"]
FEWEST = 2
"""The fewest trials of a search: with one there is nothing to choose."""
WHERE = "tune"
POINTS = 5
"""Values of each range in a grid, unless the caller says otherwise."""


def problems(space: Space, sampler: str, trials: int, points: int = POINTS) -> list[LeakgaugeError]:
    """Why a search cannot run, known before anything does."""
    wrong = [
        *_faults(lambda: guards.choice(sampler, "sampler", WHERE, get_args(Sampler))),
        *_faults(lambda: guards.count(trials, "trials", WHERE, least=FEWEST)),
        *_faults(lambda: guards.count(points, "points", WHERE, least=2)),
    ]
    if not wrong and sampler == "grid" and (size := space.size(points)) > trials:
        wrong.append(
            DomainError(
                f"the grid has {size} points ({points} values of each range), {trials} trials try only some of them",
                where="trials",
                remedy=f"give --trials {size}, fewer --points, or another sampler",
            )
        )
    return wrong


def miscounted(value: object, name: str) -> list[LeakgaugeError]:
    """Why a number is no count of at least 1; nothing where it is one."""
    return _faults(lambda: guards.count(value, name, WHERE))  # type: ignore[arg-type]


def _faults(check: Callable[[], object]) -> list[LeakgaugeError]:
    try:
        check()
    except DomainError as fault:
        return [fault]
    return []


def searched(
    space: Space,
    sampler: Sampler,
    trials: int,
    seed: int,
    measure: Callable[[Mapping[str, Any]], float | None],
    points: int = POINTS,
) -> Iterator[float | None]:
    """Ask for a point, measure it, tell its score (None: it failed), ``trials`` times; higher scores are better.

    A space with no more points than trials is measured in full, each point once.

    The same seed and the same scores give the same points, so that a search that was interrupted asks again for what
    it has measured already.
    """
    package = optuna()
    study = package.create_study(direction="maximize", sampler=_sampler(package, sampler, seed))
    known = listed(space, sampler, trials, points)
    for point in known:
        study.enqueue_trial(point)
    for _ in range(len(known) or trials):
        trial = study.ask({name: _distribution(package, within) for name, within in space.ranges.items()})
        score = measure(trial.params)
        if score is None:
            study.tell(trial, state=package.trial.TrialState.FAIL)
        else:
            study.tell(trial, score)
        yield score


def listed(space: Space, sampler: str, trials: int, points: int = POINTS) -> list[dict[str, Any]]:
    """The points of a grid, or of a whole space that has no more of them than trials; else none is known beforehand."""
    if sampler == "grid":
        return space.grid(points)[:trials]
    return space.grid(trials) if space.size(trials + 1) <= trials else []


def optuna() -> Any:
    """The package, which is an extra of ours."""
    try:
        import optuna as package
    except ImportError:
        raise MissingExtraError(
            "a search needs the package optuna", where="tune", remedy="type: pip install 'leakgauge[tune]'"
        ) from None
    package.logging.set_verbosity(package.logging.WARNING)
    return package


def _sampler(package: Any, name: Sampler, seed: int) -> Any:
    short = seed % 2**32  # of numpy's old generators
    if name == "tpe":
        return package.samplers.TPESampler(seed=short)
    return package.samplers.RandomSampler(seed=short)  # a grid is queued, and asks it for nothing


def _distribution(package: Any, within: Range) -> Any:
    kinds = package.distributions
    if isinstance(within, Choice):
        return kinds.CategoricalDistribution(within.options)
    if isinstance(within, Log | Linear):
        return kinds.FloatDistribution(float(within.low), float(within.high), log=isinstance(within, Log))
    return kinds.IntDistribution(within.low, within.high)


__all__ = ["FEWEST", "POINTS", "Sampler", "listed", "miscounted", "optuna", "problems", "searched"]
