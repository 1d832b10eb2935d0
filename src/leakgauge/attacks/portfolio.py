"""The portfolio of ``standard()``: what it tries against a protection, by stages.

First stages vary start, likelihood, prior weight and optimiser; extensions go on from where one of them ended: a weaker
prior, lengths after directions, L-BFGS or Gauss-Newton after Adam. A setting is a first stage with or without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from leakgauge.adversary import (
    Adversary,
    Likelihood,
    adam,
    cosine,
    cosine_decay,
    density,
    gauss_newton,
    lbfgs,
)
from leakgauge.adversary.likelihoods import Cosine, Through
from leakgauge.adversary.solver import Lbfgs, Solver
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.believed import beliefs
from leakgauge.attacks.kinks import has_no_kinks
from leakgauge.attacks.lengths import LENGTHS
from leakgauge.attacks.staged import Staged, posterior
from leakgauge.attacks.without_density import granted_throughout
from leakgauge.errors import NoDensityError
from leakgauge.observation import Observation
from leakgauge.priors.base import Scaled
from leakgauge.priors.total_variation import TotalVariation
from leakgauge.task import Task

WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of the prior, beside the weight that ``adaptive()`` gives it."""
SMOOTHING = 0.01
"""Of total variation beside L-BFGS, whose line search ends at a kink."""
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Learning rates, where there is no prior to weigh."""
WEAKER = 2
"""The usual one of :meth:`Portfolio.extensions`: L-BFGS under a tenth of the prior."""
MOST_UNKNOWNS, MOST_ENTRIES = 1024, 1_000_000
"""Beyond these Gauss-Newton is not tried: too many products for one step, too large an update to form."""


@dataclass(frozen=True)
class Portfolio:
    """Everything that may be tried against one task.

    ``base`` is the adversary that ``adaptive()`` builds; ``fine`` the likelihood that tells near candidates apart:
    lengths after directions, else the base's own. ``assumed`` says what a likelihood had to assume to exist,
    ``smooth`` that the network has no kinks.
    """

    base: Adversary
    fine: Likelihood
    gauss_newton: bool
    assumed: str | None = None
    smooth: bool = False

    @classmethod
    def of(
        cls,
        task: Task,
        observations: Sequence[Observation],
        labels: Literal["inferred", "joint"] = "inferred",
        *,
        scale_known: bool = True,
    ) -> Portfolio:
        """With the first likelihood that exists: the protection's own, or that of what is near to it.

        Where neither does, a :class:`~leakgauge.errors.NoDensityError` says why.
        """
        own = Adaptive(labels=labels).adversary(task.protection, images=task.domain.kind == "image")
        few, reasons = observations[:1], list[str]()
        base = next((one for one in _candidates(own, task, few) if _exists(one, task, few, reasons)), None)
        if base is None:
            raise NoDensityError(reasons[0])
        assumed = f"standard() attacks with {base.likelihood!r}: {reasons[0]}" if reasons else None
        fine = base.likelihood
        if _is_cosine(fine):
            lengths = LENGTHS if scale_known else replace(LENGTHS, fitted=True)
            fine = lengths if _exists(replace(base, likelihood=lengths), task, few, []) else fine
        entries = sum(p.numel() for p in task.params.values())
        small = task.domain.size * task.recipe.batch <= MOST_UNKNOWNS and entries <= MOST_ENTRIES
        return cls(base, fine, small and isinstance(base.likelihood, Cosine), assumed, has_no_kinks(task))

    # --- what is tried

    def firsts(self, steps: int) -> list[Adversary]:
        """Some forty first stages, in families that share every observation."""
        base, every = self.base, self._axes
        if _is_cosine(base.likelihood):
            other = replace(base, likelihood=self.fine)
        else:
            other = replace(base, likelihood=cosine(), prior=_beside_cosine(base.prior))
        close = replace(base, likelihood=self.fine)
        families = [
            [self._first(base, _adam(rate, steps, "soft"), factor) for factor, rate in every],
            [self._first(base, _adam(rate, steps, "hard"), factor) for factor, rate in every],
            [self._first(base, _adam(rate, steps, "soft"), factor, "normal") for factor, rate in every[1::2]],
            replace(self, base=close).weighed(_quasi(steps)),
        ]
        if other.likelihood != base.likelihood:
            families.append([self._first(other, _adam(rate, steps, "soft"), factor) for factor, rate in every])
        return [stage for stages in families for stage in stages]

    def weighed(self, solver: Solver) -> list[Adversary]:
        """What ``adaptive()`` does, by a solver, under every weight of its prior."""
        return [self._first(self.base, solver, factor) for factor in dict.fromkeys(factor for factor, _ in self._axes)]

    def usual(self, steps: int) -> list[Adversary]:
        """What ``adaptive()`` does, where kinks and maps such as signs want more steps than a first stage has."""
        if self.smooth and not isinstance(self.base.likelihood, Through):
            return []
        return [self._first(self.base, _adam(0.1, steps, "soft"), 1.0)]

    def extensions(self, last: Adversary, steps: int) -> list[Adversary]:
        """Stages that may follow one."""
        prior = self._prior_after(last)
        after = replace(last, labels="inferred", start="grey")

        def stage(factor: float, solver: Solver) -> Adversary:
            return replace(after, likelihood=self.fine, prior=_weighed(prior, factor, solver), solver=solver)

        return [
            stage(0.1, _adam(0.03, steps, "soft")),
            stage(1.0, _quasi(steps)),
            stage(0.1, _quasi(steps)),
            stage(0.01, _quasi(steps)),
        ]

    @property
    def lanes(self) -> int:
        """How many starts of a race go on for an update: kinks catch more of them."""
        return 2 if self.smooth else 3

    def reweighed(self, stage: Adversary) -> list[Adversary]:
        """A stage under the same prior, and under a weaker one."""
        priors = [_weighed(stage.prior, factor, stage.solver) for factor in (1.0, 0.1)]
        return list(dict.fromkeys(replace(stage, prior=prior) for prior in priors))

    def finishes(self, last: Adversary, steps: int) -> list[Adversary]:
        """Stages that may end a setting: what has converged retires, the others go on for long.

        Of smooth networks L-BFGS gains most, with more of its history; at the kinks of ReLU and total variation its
        line search ends, and small steps of Adam go on.
        """
        prior, after = self._prior_after(last), replace(last, likelihood=self.fine, labels="inferred", start="grey")
        quasi = [(_quasi(4 * steps, 60), factor) for factor in ((1.0, 0.1) if self.smooth else (1.0,))]
        solvers = [*quasi, *((_adam(0.01, 3 * steps, "soft"), factor) for factor in (1.0, 0.1))]
        listed = [replace(after, prior=_weighed(prior, factor, solver), solver=solver) for solver, factor in solvers]
        if self.gauss_newton:
            newton = gauss_newton(steps=max(2, steps // 30), inner=100)
            listed.append(replace(after, prior=_weighed(prior, 0.1, newton), solver=newton))
        return listed

    def _prior_after(self, last: Adversary) -> Any:
        """The prior that a stage by the fine likelihood begins with: nats weigh one otherwise than a cosine does."""
        comparable = _is_cosine(last.likelihood) == _is_cosine(self.base.likelihood) or last.likelihood == self.fine
        return last.prior if comparable else self.base.prior

    @property
    def _axes(self) -> list[tuple[float, float]]:
        """Factor of the prior's weight, learning rate."""
        weighed = isinstance(self.base.prior, Scaled)
        return [(factor, 0.1) for factor in WEIGHTS] if weighed else [(1.0, rate) for rate in RATES]

    def _first(self, base: Adversary, solver: Solver, factor: float, start: Any = "grey") -> Adversary:
        return replace(base, prior=_weighed(base.prior, factor, solver), solver=solver, start=start, restarts=1)

    # --- without reference records

    def fixed(self, steps: int) -> list[Staged]:
        """For whoever cannot choose: what ``adaptive()`` does; two stages from a usual prior; four from a strong one.

        Maps and densities want more steps than directions do. After a strong prior small steps of Adam get past the
        kinks at which L-BFGS ends. Directions of smooth networks are followed by L-BFGS, from grey or a few steps away.
        """
        far = self._closer(_quasi(3 * steps, 60))
        if self._directions and self.smooth:
            strong = self._first(replace(self.base, likelihood=self.fine), _quasi(steps), 30.0)
            return [
                Staged((one, far)) for one in (strong, self._first(self.base, _adam(0.1, steps // 3, "soft"), 30.0))
            ]
        length = (3 if self._directions else 6) * steps
        adaptive = Staged((self._first(self.base, _adam(0.1, length, "soft"), 1.0),))
        firsts = [self._first(self.base, _adam(0.1, steps, "soft"), factor) for factor in (1.0, 30.0)]
        usual, strongly = (Staged((one, self.extensions(one, steps)[WEAKER])) for one in firsts)
        ends = (self._closer(_adam(0.03, 2 * steps, "soft")), far)
        weighed = isinstance(self.base.prior, Scaled)
        return [adaptive, usual, strongly.then(*ends)] if weighed else [adaptive, usual.then(*ends)]

    def _closer(self, solver: Solver) -> Adversary:
        """A last stage: by the fine likelihood, under a tenth of the prior."""
        return replace(self.judge, prior=_weighed(self.base.prior, 0.1, solver), solver=solver, start="grey")

    @property
    def judge(self) -> Adversary:
        """The common objective of settings that each have their own; directions without noise want a weak prior."""
        prior = _weighed(self.base.prior, 0.1 if self._directions else 1.0, self.base.solver)
        return replace(self.base, likelihood=self.fine, prior=prior, restarts=1, labels="inferred")

    @property
    def _directions(self) -> bool:
        return isinstance(self.base.likelihood, Cosine)


def _candidates(own: Adversary, task: Task, observations: Sequence[Observation]) -> list[Adversary]:
    near = beliefs(task.protection.update, granted_throughout(observations))
    return [own, *(replace(own, likelihood=density(assumed=assumed)) for assumed in near)]


def _exists(adversary: Adversary, task: Task, observations: Sequence[Observation], reasons: list[str]) -> bool:
    """Whether the likelihood can be evaluated here; if not, why is added to the reasons."""
    try:
        posterior(adversary, task, observations)
    except NoDensityError as reason:
        reasons.append(str(reason))
        return False
    return True


def _is_cosine(likelihood: Likelihood) -> bool:
    return isinstance(likelihood.likelihood if isinstance(likelihood, Through) else likelihood, Cosine)


def _weighed(prior: Any, factor: float, solver: Solver) -> Any:
    """A prior with its weight multiplied, rounded off where a line search has to follow it; a flat one as it is."""
    if not isinstance(prior, Scaled):
        return prior
    kind = prior.prior
    if isinstance(kind, TotalVariation):
        kind = replace(kind, smoothing=SMOOTHING if isinstance(solver, Lbfgs) else 0.0)
    return Scaled(float(f"{factor * prior.weight:.6g}"), kind)


def _beside_cosine(prior: Any) -> Any:
    """The prior of ``adaptive()`` without a defense; flat where there is none."""
    return Adaptive().adversary("identity()").prior if isinstance(prior, Scaled) else prior


def _adam(rate: float, steps: int, sign: Any) -> Solver:
    return adam(lr=rate, steps=steps, sign=sign, schedule=cosine_decay(floor=0.01))


def _quasi(steps: int, history: int = 20) -> Solver:
    return lbfgs(steps=steps, history=history, patience=max(40, steps // 4), tolerance=1e-3)


__all__ = ["Portfolio"]
