"""Noise that repeats between rounds: it cancels in the difference of two updates.

A client whose generator is seeded anew in every round adds the same noise each time: ``o_r − o_0 = u_r − u_0``, the
difference of two updates of the same records at two states of the model, without any noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary import Reconstruction, adam, cosine_decay
from leakgauge.adversary.labels import labels_of
from leakgauge.adversary.run import joined
from leakgauge.adversary.solver import Problem
from leakgauge.adversary.solver.problem import Value
from leakgauge.client import LABELS
from leakgauge.defenses import Chain
from leakgauge.errors import ObservationError
from leakgauge.expr import Part, register
from leakgauge.observation import Observation, Round, check
from leakgauge.priors import tv, uniform
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Candidate, Progress, Tree
from leakgauge.updates import trees

TELLING = 0.5
"""Entries of a difference that is as small as this, beside what independent noise would give, repeat their noise."""


def repeats(chain: Chain, observation: Observation) -> bool:
    """Whether the noise of later rounds is that of the first: their difference is smaller than noise can be.

    The median of ``|o_r − o_0|`` under independent noise of variance σ² is at least 0.67 √2 σ if it is Gaussian; the
    updates themselves only widen it. A Laplace law has 0.84 σ there.
    """
    variance = sum(law.variance for part in chain.parts if (law := part.noise_law) is not None)
    if not variance or len(observation.rounds) < 2:
        return False
    first, *later = (_flat(one.observed) for one in observation.rounds)
    apart = [(other - first).abs() for other in later]
    if not all(bool(one.any()) for one in apart):  # a copy of the first round
        return False
    return all(float(one.median()) < TELLING * 0.67 * (2 * variance) ** 0.5 for one in apart)


def without_copies(observation: Observation) -> Observation:
    """Without rounds that repeat an earlier one to the bit: the same noise at the same state tells nothing new."""
    rounds: list[Round] = []
    for one in observation.rounds:
        if not any(_same(one.observed, other.observed) and _same(one.params, other.params) for other in rounds):
            rounds.append(one)
    return replace(observation, rounds=tuple(rounds))


def _same(one: Tree, other: Tree) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def _flat(tree: Tree) -> Tensor:
    return torch.cat([value.double().flatten() for value in tree.values()])


@register("attack", "repeated_noise")
@dataclass(frozen=True, repr=False)
class RepeatedNoise(Part):
    """Match the differences of rounds, in which noise that repeats cancels: ``1 − cos(u_r − u_0, o_r − o_0)``.

    Needs two rounds of the same records at different states of the model; at the same state the
    difference is zero, and tells nothing. :func:`adaptive` comes here by itself where :func:`repeats` notices it. Adam
    on softly signed gradients from grey, with total variation for images.
    """

    models_defense: ClassVar[Literal["one"]] = "one"

    steps: int = 1000
    tv_weight: float = 1e-4

    def __post_init__(self) -> None:
        guards.count(self.steps, "steps", "repeated_noise")
        guards.non_negative(self.tv_weight, "tv_weight", "repeated_noise")

    def __call__(
        self,
        task: Task,
        observations: Sequence[Observation],
        *,
        seed: int = 0,
        progress: Progress | None = None,
        begin: Tensor | None = None,
        **_: Any,
    ) -> Reconstruction:
        """``begin`` ``[n, B, …]`` is where each starts, such as what one of its rounds tells; grey by default."""
        check(task, observations)
        starts = [None] * len(observations) if begin is None else begin
        parts = [
            self._one(task, one, seed_of(seed, i), progress, start)
            for i, (one, start) in enumerate(zip(observations, starts, strict=True))
        ]
        return joined(parts, range(len(parts)))

    def _one(
        self, task: Task, observation: Observation, seed: int, progress: Progress | None, start: Tensor | None
    ) -> Reconstruction:
        first, *later = observation.rounds
        observed = [trees.mapped(torch.sub, one.observed, first.observed) for one in later]
        if not any(float(trees.norm(tree)) for tree in observed):
            raise ObservationError(
                "the rounds show one and the same update, whose difference is zero",
                where="repeated_noise",
                remedy="observe rounds at different states of the model",
            )
        like = next(iter(task.params.values()))
        labels = labels_of(task, observation).to(like.device)
        smooth = self.tv_weight * tv() if task.domain.kind == "image" else uniform()
        targets = torch.cat([_flat(tree) for tree in observed]).to(like)

        def update(r: int, inputs: Tensor) -> Tensor:
            one = observation.rounds[r]
            known = {a: v for a, v in one.granted.items() if a in task.nuisances and a != LABELS}
            return _joint(task.client(one.params, inputs, labels, known, buffers={**task.buffers, **one.buffers}))

        def evaluate(raw: Tree, which: Tensor) -> Value:
            candidate = Candidate(raw["inputs"], labels.expand(len(which), *labels.shape))
            matched = []
            for inputs in raw["inputs"]:
                begun = update(0, inputs)
                changed = torch.cat([update(r + 1, inputs) - begun for r in range(len(later))])
                matched.append(torch.nn.functional.cosine_similarity(changed, targets, dim=0) - 1)
            return Value(torch.stack(matched), smooth(candidate))

        box = task.domain.box
        grey = like.new_full((1, observation.batch, *task.domain.shape), 0.5 if box else 0.0)
        first_guess = grey if start is None else start.unsqueeze(0).to(like)
        problem = Problem({"inputs": first_guess}, evaluate, (seed,), box={"inputs": box} if box else {})
        solver = adam(lr=0.1, steps=self.steps, sign="soft", schedule=cosine_decay(floor=0.01))
        solution = solver.solve(problem, progress)
        return Reconstruction(
            solution.unknowns["inputs"],
            labels.unsqueeze(0) if labels.dim() == 1 else labels.argmax(-1).unsqueeze(0),
            -solution.objective,
            (solution.trace[:, 0],),
            tuple(solution.status),
            solution.evaluations,
            "loop",
        )


def _joint(tree: Tree) -> Tensor:
    return torch.cat([value.flatten() for value in tree.values()])


__all__ = ["RepeatedNoise", "repeats", "without_copies"]
