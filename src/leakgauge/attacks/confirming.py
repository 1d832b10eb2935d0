"""What a choice still has to show: that it was no luck, and what other settings find where it got stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from leakgauge.adversary import Adversary, Attack, Reconstruction
from leakgauge.adversary.joining import joined
from leakgauge.attacks.portfolio import WEAKER
from leakgauge.attacks.retried import Retried, places_below, with_better
from leakgauge.attacks.staged import BestOf, Staged, best, members, posterior, stage_after, steps_of
from leakgauge.attacks.trials import Trial, first_of, last_of, ranked, rounded, then

if TYPE_CHECKING:
    from leakgauge.attacks.choosing import Choosing

MOST_UNITS = 13
"""Steps that an attack may have in all, in units: about twice those of ``adaptive(steps=1000)``."""


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


def tried_again(choosing: Choosing, whole: Trial, again: Again) -> Trial:
    """The choice, with other settings for updates that end below its median posterior, unless these find less there."""
    some = choosing.observations[: choosing.effort.records]
    guess = replace(whole.guess, log_posterior=posterior(again.judge, choosing.task, some, whole.guess))
    below = float(f"{float(guess.log_posterior.double().quantile(0.5)):.4g}")
    stuck = places_below(guess.log_posterior, below)
    if not stuck or not again.settings:
        return whole
    both = with_better(guess, *again.on(choosing, stuck))
    before, after = (rounded(choosing.score(one, range(len(some)))) for one in (guess, both))
    choosing.rungs.append(("tried again", len(again.settings), max(before, after)))
    return Trial(Retried(whole.attack, again.attack, again.judge, below), both, after) if after >= before else whole


@dataclass(frozen=True)
class Again:
    """Settings for the updates on which a choice gets stuck: first stages that it lacks, each with what follows it.

    They go on as the best setting did, and end with ``ends``, as the choice does. Their starts are not drawn, so that
    it does not matter which other updates are tried again.
    """

    settings: Sequence[tuple[Trial, Adversary]]
    ends: Sequence[Adversary]
    judge: Adversary

    @classmethod
    def of(
        cls, choosing: Choosing, whole: Trial, unfinished: Trial, begun: Sequence[Trial], trials: Sequence[Trial]
    ) -> Again:
        """As many settings as there is room for, of those that have ``begun``; the best of the ``trials`` shows how
        they go on."""
        unit, several, ends = choosing.effort.unit, choosing.effort.several, _ends(whole.attack, unfinished.attack)
        used = {repr(one) for one in members(whole.attack)}
        others = [one for one in ranked(begun) if is_fixed(first_of(one)) and repr(first_of(one)) not in used]
        # steps count half: half of the updates are tried again
        room = 2 * (MOST_UNITS * unit - steps_of(whole.attack)) - sum(map(steps_of, ends))
        fitting = others[: max(0, min(several, room // (2 * unit)))]
        settings = [(one, _after(first_of(one), trials[0], choosing)) for one in fitting]
        return cls(settings, ends, choosing.judge(trials))

    @property
    def attack(self) -> Attack:
        settings = BestOf(tuple(then(one.attack, stage) for one, stage in self.settings), self.judge)
        return Staged((settings, *self.ends)) if self.ends else settings

    def on(self, choosing: Choosing, places: Sequence[int]) -> tuple[Reconstruction, Sequence[int], Tensor]:
        """What the attack makes of the updates at these places, going on from first stages that were run already;
        with the places and its log posterior."""
        task, some = choosing.task, [choosing.observations[place] for place in places]
        options: dict[str, Any] = {"seed": choosing.seed, "progress": choosing.progress}
        firsts = [joined([one.guess], places) for one, _ in self.settings]
        seconds = stage_after(firsts, [stage for _, stage in self.settings], task, some, **options)
        guess = best(seconds, [posterior(self.judge, task, some, one) for one in seconds])
        for stage in self.ends:
            (guess,) = stage_after([guess], [stage], task, some, **options)
        choosing.tried += len(self.settings)
        choosing.evaluations += guess.evaluations - sum(one.evaluations for one in firsts)
        return guess, places, posterior(self.judge, task, some, guess)


def is_fixed(stage: Adversary) -> bool:
    """Whether nothing that it begins with is drawn."""
    return stage.start == "grey" and stage.labels != "joint"


def _after(first: Adversary, model: Trial, choosing: Choosing) -> Adversary:
    """The stage that is to a first one what the last of the model is to its first: by default a weaker prior."""
    listed = choosing.portfolio.extensions(first_of(model), choosing.effort.unit)
    place = listed.index(last_of(model)) if last_of(model) in listed else WEAKER
    return choosing.portfolio.extensions(first, choosing.effort.unit)[place]


def _ends(attack: Attack, unfinished: Attack) -> tuple[Adversary, ...]:
    """The stages that finish an attack, if it is the unfinished one with some."""
    begun = unfinished.stages if isinstance(unfinished, Staged) else (unfinished,)
    if not isinstance(attack, Staged) or attack.stages[: len(begun)] != begun:
        return ()
    return cast("tuple[Adversary, ...]", attack.stages[len(begun) :])


__all__ = ["MOST_UNITS", "Again", "confirmed", "tried_again"]
