"""What a choice still has to show: that it was no luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leakgauge.adversary import Reconstruction
from leakgauge.adversary.joining import joined
from leakgauge.attacks.trials import Trial, ranked, rounded

if TYPE_CHECKING:
    from leakgauge.attacks.choosing import Choosing


def confirmed(choosing: Choosing, whole: Trial, rivals: Sequence[Trial]) -> tuple[Trial, int]:
    """The choice and how many updates it was made on: the best of many on a few updates is partly luck.

    Where a rival did better on at least half of them, both are tried on as many further ones, and all of these count.
    """

    def score(guess: Reconstruction, places: Sequence[int]) -> float:
        return rounded(choosing.score(guess, places))

    def at(place: int, trial: Trial) -> float:
        return score(joined([trial.guess], [place]), [place])

    seen = min(choosing.effort.records, len(choosing.observations))
    further = choosing.observations[seen : 2 * seen]
    rivals = [one for one in rivals if 2 * sum(at(i, one) > at(i, whole) for i in range(seen)) >= seen]
    if not rivals or not further:
        return whole, seen
    total, trials = seen + len(further), []
    for one in (whole, *rivals):
        guess = one.attack(choosing.task, further, seed=choosing.seed, progress=choosing.progress)
        choosing.evaluations += guess.evaluations
        both = seen * one.score + len(further) * score(guess, range(seen, total))
        trials.append(replace(one, score=rounded(both / total)))
    choosing.rungs.append(("on further updates", len(trials), ranked(trials)[0].score))
    return ranked(trials)[0], total


__all__ = ["confirmed"]
