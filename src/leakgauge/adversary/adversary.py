"""The adversary: likelihood × prior × solver under a threat model.

``log p(x | observed) = log p(observed | x) + log p(x) + constant``; every attack of the literature is a choice of
the three. The adversary sees a :class:`Task` (public) and :class:`Observation`\\ s; never a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.labels import Rule
from leakgauge.adversary.likelihoods import L2, Likelihood, Matching
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.solver import Adam, Ball, Constant, GaussNewton, Schedule, Solver
from leakgauge.adversary.solver.gauss_newton import no_linearisation
from leakgauge.adversary.statistics import Norms
from leakgauge.adversary.treatments import Case, knowledge, treatments
from leakgauge.expr import Part, check_kind, register
from leakgauge.observation import Observation
from leakgauge.priors import Uniform
from leakgauge.task import Task
from leakgauge.types import Prior, Progress, Threat, Treatment, sized

Start = Literal["normal", "uniform", "grey", "zeros", "prior"]
MEMORY = 2_000_000_000


@dataclass(frozen=True, repr=False)
class Reconstruction:
    """What an attack returns, one row per observation.

    ``inputs [n, B, …]``, ``labels [n, B]``, ``log_posterior [n]``; ``traces[i]`` is the objective of the chosen
    restart of observation i by evaluation; ``path`` is the gradient path that was used. ``encodings`` are what the
    attack took for the client's encoded inputs, where it then undid the encoding; else the inputs are all it found.
    ``status[i]`` is how i ended. A solver: ``steps`` (all were made), ``target``, ``plateau``, ``diverged``;
    without one: ``exact``, ``mixture`` (of a batch), ``exact in part``, ``not recovered``. Under an input stage:
    ``decoded`` or ``encoding`` (it was not), ``magnitudes``, ``undone`` or ``transformed in part``. None of them says
    that the guess is right; ``certified [n, B]`` does, where an attack proves single records. ``notes`` are sentences
    for the ledger. ``codes [n, B, …]`` are what a generator drew the inputs from, where the prior has one.
    """

    inputs: Tensor
    labels: Tensor
    log_posterior: Tensor
    traces: tuple[Tensor, ...] = ()
    status: tuple[str, ...] = ()
    evaluations: int = 0
    path: str = ""
    encodings: Tensor | None = None
    certified: Tensor | None = None
    notes: tuple[str, ...] = ()
    codes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        ended = ", ".join(f"{self.status.count(one)} {one}" for one in dict.fromkeys(self.status))
        return f"Reconstruction(inputs={sized(self.inputs)}, {ended or 'no status'}, {self.evaluations} evaluations)"


@register("adversary", "adversary")
@dataclass(frozen=True, repr=False)
class Adversary(Part):
    """A configured attack: call it with a task and observations.

    ``labels`` says what to do when they are not granted: ``inferred`` from the last layer by a ``rule`` (by default
    counts by likelihood; each restart tries the next likely hypothesis), or ``joint``: soft labels are unknowns too.
    Random numbers of the network that are not granted (PRECODE's noise, dropout masks) are taken at their mean; with
    ``hidden=w`` they are unknowns as well, under the log density of their law times w (1 for likelihoods in nats, less
    beside matching losses). Batch norms of a client in train mode normalise a candidate by its own statistics
    (``norms="measured"``), or by fixed ones: those of the private batch where they are known, else the running ones
    (:mod:`~leakgauge.adversary.statistics`); the prior ``batch_norm()`` draws the candidate's toward them.
    :meth:`treatments` says what is done about each nuisance.
    Of ``restarts`` starts the best log posterior wins (the truth is not seen); a flat ``start`` (grey, zeros) is the
    first of them, the others begin with noise; ``prior`` begins where the prior says. A constant answer from ``grey``
    stands at the mean level under its posterior (:mod:`~leakgauge.adversary.levels`).
    With a ``target`` on the solver, only observations that missed it start again. ``anneal`` weighs the likelihood over
    the steps; the best iterate is judged without it. ``ball`` averages over the δ-ball (Algorithm 1).
    """

    version: ClassVar[int] = 3

    likelihood: Likelihood = field(default_factory=L2)
    prior: Prior = field(default_factory=Uniform)
    solver: Solver = field(default_factory=Adam)
    labels: Literal["inferred", "joint"] = "inferred"
    rule: Rule = "auto"
    hidden: float | None = None
    restarts: int = 1
    start: Start = "normal"
    anneal: Schedule = field(default_factory=Constant)
    ball: Ball | None = None
    norms: Norms = "measured"

    def __post_init__(self) -> None:
        choices = {"labels": ("inferred", "joint"), "rule": get_args(Rule), "start": get_args(Start)}
        choices["norms"] = get_args(Norms)
        with guards.together():
            for kind in ("likelihood", "prior", "solver"):
                check_kind(getattr(self, kind), kind, "adversary")
            for name, allowed in choices.items():
                guards.choice(getattr(self, name), name, "adversary", allowed)
            if self.hidden is not None:
                guards.non_negative(self.hidden, "hidden", "adversary")
            guards.count(self.restarts, "restarts", "adversary")
            check_kind(self.anneal, "schedule", "adversary", "anneal")
            if self.ball is not None:
                check_kind(self.ball, "ball", "adversary")
        if isinstance(self.solver, GaussNewton) and (self.ball is not None or not isinstance(self.anneal, Constant)):
            raise no_linearisation()

    @property
    def models_defense(self) -> Literal["none", "one"]:
        """Whether its likelihood looks at the defense, or matches updates whatever was done to them."""
        return "none" if isinstance(self.likelihood, Matching) else "one"

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        """What this adversary does about every nuisance of the task, granted or hidden."""
        return treatments(Case(self, task, knowledge(task, threat)))

    def __call__(
        self,
        task: Task,
        observations: Sequence[Observation],
        *,
        seed: int = 0,
        device: str | torch.device | None = None,
        path: PathName = "auto",
        memory: int = MEMORY,
        progress: Progress | None = None,
        begin: Tensor | None = None,
        shared: Shared | None = None,
    ) -> Reconstruction:
        """Attack every observation; results do not depend on how many there are.

        ``begin`` ``[n, B, …]`` is where the first start of each begins, such as what another attack found; codes, where
        the prior has a generator. ``shared`` are rounds that drew the same hidden rates.
        """
        from leakgauge.adversary.run import attack  # the machinery imports this value

        return attack([self], task, observations, seed, device, path, memory, progress, begin, shared)[0]
