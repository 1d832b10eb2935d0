"""``standard()``: the strongest attack by itself, without a knob.

An audit is as true as its strongest attack. This one reads off what structure gives exactly, else chooses among a
portfolio on records that are never reported, and says what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from leakgauge import guards
from leakgauge.adversary import Attack, Reconstruction
from leakgauge.adversary.simulation.simulate import is_silent
from leakgauge.attacks.adapting import hint_of
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.believed import without_small_noise
from leakgauge.attacks.calling import CheckedAttack, Options
from leakgauge.attacks.choosing import EFFORTS, Choice, Choosing, Effort, Score
from leakgauge.attacks.circumstances import is_smooth, recovery_sentence
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.recovering import obstacle
from leakgauge.attacks.staged import BestOf
from leakgauge.attacks.structure import exact_attack
from leakgauge.attacks.surrogate import is_worth
from leakgauge.attacks.trials import rounded
from leakgauge.client import BATCH_STATISTICS, DROPOUT
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import NoDensityError
from leakgauge.expr import register
from leakgauge.observation import Observation, check
from leakgauge.task import Task
from leakgauge.types import Progress, Threat, Treatment

Work = Literal["quick", "standard", "thorough"]
FEWEST = 4
"""Reference updates below which nothing is chosen: the best of many settings on fewer is mostly luck."""
WEIGHTS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
"""Total variation tried by whole adaptive attacks (3,000 times that beside a density); batches want the stronger."""
USUAL = 1e-3
"""The weight of a whole attack where nothing can be chosen."""
UNWEIGHED = "adaptive() attacks as a whole, and there is nothing to choose: such records have no prior to weigh"
CERTIFIED = "adaptive() attacks as a whole: every reference record was recovered with a certificate, whatever the prior"
FIXED = 15
"""Steps of the fixed portfolio, in units, at most."""


@register("attack", "standard")
@dataclass(frozen=True, repr=False)
class Standard(CheckedAttack):
    """A parameter-free, versioned attack: quote it as ``standard()`` version 9.

    1. What structure gives exactly is read off (:mod:`~leakgauge.attacks.structure`).
    2. Else :meth:`choose` tries some sixty settings (forty on tables) on reference records: starts, prior weights, the
       likelihoods that the treatments of ``adaptive()`` allow, optimisers, and stages (a strong prior, then a weaker
       one; directions, then lengths; Adam, then L-BFGS or Gauss-Newton), by successive halving. An audit does so once
       per defense, threat and checkpoint, in a cell of its own.
    3. Since version 9 the settings that lead attack together, in a race (:mod:`~leakgauge.attacks.raced`): each begins,
       and for every update the posterior says which go on. A single setting attacks instead where it did clearly better
       on the reference records; if a plainer one beat it on half of them, it has to hold on as many further ones.

    Called without a choice, as on captured updates, or with fewer than four reference updates, a fixed portfolio
    attacks and the posterior decides; since version 5 that is L-BFGS for undefended smooth networks, elsewhere its last
    setting goes on by small steps of Adam and by L-BFGS, and maps and densities get more steps. Where ``adaptive()``
    does more than to optimise (an input or model stage, dropout, batch norm in train mode, a batch that can be taken
    apart, a part that is simulated), whole attacks of it are chosen among. ``work`` sets the evaluations, never
    seconds; ``labels`` is set by the threat.
    """

    version: ClassVar[int] = 9
    models_defense: ClassVar[Literal["any"]] = "any"

    work: Work = "standard"
    labels: Literal["inferred", "joint"] = "inferred"

    def __post_init__(self) -> None:
        guards.choice(self.work, "work", "standard", tuple(EFFORTS))
        guards.choice(self.labels, "labels", "standard", ("inferred", "joint"))

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.work]

    @property
    def reference(self) -> int:
        """Reference updates that a choice looks at, at most."""
        return 2 * self.effort.records  # half of them where the first leave no doubt

    @property
    def attacks_worth(self) -> float:
        """What a choice costs, in attacks on one update."""
        return self.effort.attacks_worth

    def choose(
        self,
        task: Task,
        observations: Sequence[Observation],
        score: Score,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Choice:
        """The attack to use on this task, from observations of records that are never reported."""
        if len(observations) < FEWEST:
            return Choice(self, assumed=(_few(observations),))
        check(task, observations)
        exact = exact_attack(task, observations)
        if exact is not None:
            return Choice(exact, assumed=("the records are read off exactly, without a search",))
        portfolio = self._portfolio(task, observations, scale_known=True)
        if portfolio is None:
            return self._among(task, observations, score, seed, progress)
        choice = Choosing(portfolio, self.effort, task, observations, score, seed, progress).choose()
        return replace(choice, assumed=(*choice.assumed, *_of_recovery(task)))

    @property
    def steps(self) -> int:
        """Of whoever has no reference records, at most."""
        return FIXED * self.effort.unit

    def fixed(self, task: Task, observations: Sequence[Observation]) -> Attack:
        """The attack of whoever has no reference records."""
        return exact_attack(task, observations) or self.search(task, observations)

    def search(self, task: Task, observations: Sequence[Observation]) -> Attack:
        """The fixed portfolio, whatever could be read off; it fits a scale, for nothing could show that it is known."""
        portfolio = self._portfolio(task, observations, scale_known=False)
        if portfolio is None:
            return self._adaptive(7 * self.effort.unit)[WEIGHTS.index(USUAL)]
        return BestOf(tuple(portfolio.fixed(self.effort.unit)), portfolio.judge)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        guess = self.fixed(task, observations)(task, observations, **options)
        return replace(guess, notes=tuple(dict.fromkeys((*guess.notes, *_of_recovery(task)))))

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        """Those of ``adaptive()``: every setting of the portfolio shares them."""
        return Adaptive(labels=self.labels).treatments(task, threat)

    def _portfolio(self, task: Task, observations: Sequence[Observation], *, scale_known: bool) -> Portfolio | None:
        """What stages are put together from; None where only ``adaptive()`` as a whole knows what to do."""
        if _whole(task, observations):
            return None
        try:
            return Portfolio.of(task, observations, self.labels, scale_known=scale_known)
        except NoDensityError:  # adaptive() has more to fall back to, and says so
            return None

    def _adaptive(self, steps: int) -> list[Adaptive]:
        return [Adaptive(steps=steps, tv_weight=w, tv_density=3000 * w, labels=self.labels) for w in WEIGHTS]

    def _among(
        self,
        task: Task,
        observations: Sequence[Observation],
        score: Score,
        seed: int,
        progress: Progress | None,
    ) -> Choice:
        """The best of a few whole attacks, which then takes longer; what was mixed can only be undone together."""
        unit, some = self.effort.unit, observations[: self.effort.records]
        attacks, usual = self._adaptive(4 * unit), WEIGHTS.index(USUAL)
        if not is_smooth(task):  # all would be the same attack
            return Choice(replace(attacks[usual], steps=7 * unit), assumed=(UNWEIGHED,))
        first = attacks[usual](task, some, seed=seed, progress=progress)
        if first.certified is not None and bool(first.certified.all()):
            return Choice(replace(attacks[usual], steps=7 * unit), assumed=(CERTIFIED,))
        guesses = [
            first if i == usual else one(task, some, seed=seed, progress=progress) for i, one in enumerate(attacks)
        ]
        scores = [rounded(score(guess, range(len(some)))) for guess in guesses]
        best = max(range(len(attacks)), key=lambda i: scores[i])
        spent = sum(guess.evaluations for guess in guesses)
        rungs = (("whole attacks", len(attacks), scores[best]),)
        return Choice(replace(attacks[best], steps=7 * unit), len(attacks), len(some), spent, scores[best], rungs)


def _whole(task: Task, observations: Sequence[Observation]) -> bool:
    """Whether ``adaptive()`` does more here than to optimise one posterior after another.

    It decodes inputs, recovers latent noise, takes a batch apart, simulates parts that have only a release, takes many
    local steps for one, cancels noise that repeats, and leaves out noise that vanishes in a rounding.
    """
    protection, rounds = task.protection, [r for one in observations for r in one.rounds]
    parts = protection.chain.parts
    return bool(
        protection.input
        or protection.model
        or DROPOUT in task.nuisances
        or BATCH_STATISTICS in task.nuisances
        or is_worth(task, Adaptive().unroll)
        or (obstacle(task) is None and exact_attack(task, observations) is None)
        or any(is_silent(part) and not hint_of(part).scales for part in parts)
        or (len(rounds) > len(observations) and any(map(is_noise, parts)))
        or without_small_noise(protection.update, [one.observed for one in rounds]) != protection.update
    )


def _of_recovery(task: Task) -> list[str]:
    """What exact recovery does about a batch, or why it does not apply; nothing where the network gives it no hold."""
    return [sentence] if (sentence := recovery_sentence(task)) else []


def _few(observations: Sequence[Observation]) -> str:
    return (
        f"its fixed portfolio attacks: {len(observations)} reference updates are too few to choose on ({FEWEST} are "
        "needed)"
    )


standard = Standard
__all__ = ["Standard", "standard"]
