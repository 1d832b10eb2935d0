"""Attacks that search the codes of a generator: GIAS by gradients, GGL by evolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from leakgauge import guards
from leakgauge.adversary import Adversary, Likelihood, Matching, Reconstruction, adam, cosine
from leakgauge.adversary.estimated import Estimated
from leakgauge.adversary.run import attack
from leakgauge.adversary.solver import CmaEs, CosineDecay
from leakgauge.attacks.calling import CheckedAttack, Options
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.priors.generators import Generated, Tuned, generator_in, refuse_others
from leakgauge.task import Task
from leakgauge.types import Threat, Treatment


@register("attack", "gias")
@dataclass(frozen=True, repr=False)
class Gias(CheckedAttack):
    """Search the codes of a generator, then move its weights: ``max_z``, and from there ``max_W`` of the posterior.

    ``tune_steps=0`` is the first step alone: under noise the second one fits it, unless ``stiffness`` holds weights.
    The published likelihood is the cosine; ``density()`` is better where the defense has one, and then ``weight`` of
    the codes' prior is 1.

    References:
        Jeon et al., Gradient Inversion with Generative Image Prior, 2021. https://arxiv.org/abs/2110.14962
    """

    prior: Generated
    likelihood: Likelihood = field(default_factory=cosine)
    weight: float = 1e-5
    steps: int = 500
    lr: float = 0.03
    restarts: int = 4
    tune_steps: int = 0
    tune_lr: float = 1e-3
    stiffness: float = 0.0

    def __post_init__(self) -> None:
        with guards.together():
            for name, least in (("steps", 1), ("restarts", 1), ("tune_steps", 0)):
                guards.count(getattr(self, name), name, "gias", least=least)
            for name in ("lr", "tune_lr"):
                guards.positive(getattr(self, name), name, "gias")
            for name in ("weight", "stiffness"):
                guards.non_negative(getattr(self, name), name, "gias")
            refuse_others(self.prior, "gias")

    @property
    def models_defense(self) -> Literal["none", "one"]:
        return "none" if isinstance(self.likelihood, Matching) else "one"

    @property
    def search(self) -> Adversary:
        """The first step: codes."""
        solver = adam(lr=self.lr, steps=self.steps, schedule=CosineDecay())
        return Adversary(self.likelihood, self.weight * self.prior, solver, restarts=self.restarts)

    @property
    def tuning(self) -> Adversary:
        """The second step: weights."""
        solver = adam(lr=self.tune_lr, steps=max(1, self.tune_steps), schedule=CosineDecay())
        return replace(self.search, prior=self.weight * Tuned(self.prior, self.stiffness), solver=solver, restarts=1)

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        return self.search.treatments(task, threat)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        searched = self.search(task, observations, **options)
        if not self.tune_steps:
            return searched
        assert searched.codes is not None
        begin = searched.codes[..., : self.prior.codes]
        (tuned,) = attack([self.tuning], task, observations, begin=begin, **options)
        return replace(tuned, evaluations=tuned.evaluations + searched.evaluations)


@register("attack", "ggl")
def ggl(
    prior: Generated, steps: int = 200, sigma: float = 1.0, population: int | None = None, weight: float = 1e-4
) -> Adversary:
    """Search the codes of a generator by CMA-ES, under the defense that the update shows (:class:`Estimated`).

    Needs the package ``cma``. The published search uses BigGAN and 25,000 evaluations; ``steps`` counts generations.
    It draws from the generator even where the update says nothing: read its score beside the null.

    References:
        Li et al., Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage, 2022.
        https://arxiv.org/abs/2203.15696
    """
    if generator_in(prior) is None:  # beside other terms, if one likes
        refuse_others(prior, "ggl")
    return Adversary(Estimated(), weight * prior, CmaEs(sigma=sigma, steps=steps, population=population))
