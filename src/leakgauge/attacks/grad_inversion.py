"""GradInversion: several seeds, priors of natural batches, noise, and a consensus that pulls the seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch

from leakgauge import guards
from leakgauge.adversary import Adversary, Reconstruction, adam, cosine_decay, l2
from leakgauge.adversary.joining import joined
from leakgauge.adversary.labels import Rule
from leakgauge.attacks.calling import CheckedAttack, Options, within
from leakgauge.attacks.consensus import Toward, consensus
from leakgauge.attacks.norms import has_statistics, knows_statistics
from leakgauge.attacks.staged import posterior, stage_after
from leakgauge.expr import register
from leakgauge.observation import Observation
from leakgauge.priors import batch_norm, norm, tv
from leakgauge.task import Task
from leakgauge.types import Threat, Treatment

NO_NORMS = "GradInversion's batch-norm prior is left out: no batch norm of the model has statistics to compare with"


@register("attack", "grad_inversion")
@dataclass(frozen=True, repr=False)
class GradInversion(CheckedAttack):
    """``‖u − o‖²/‖o‖² + w_tv·TV + w_norm·‖x‖ + w_bn·R_BN + w_group·‖x − x̄‖²``, by Adam with Langevin noise.

    Every update is attacked from ``seeds`` starts. After each of ``1 + meetings`` equal shares of the ``steps`` the
    seeds meet: images of the same label are paired, registered to their mean, and the mean of the registered images x̄
    draws every seed in the next share (:mod:`~leakgauge.attacks.consensus`). The best log posterior without the group
    term is returned. R_BN compares the statistics of batch norms with the running ones, or with those of the private
    batch where they are known; on a model without batch norm it is left out, and a note says so.

    Different from the paper: registration is by whole-pixel shifts, not by a learned flow; seeds meet a few times, not
    in every step; labels are counted by likelihood unless ``rule="unique"``, the paper's own; steps and seeds are
    fewer (20,000 and 8 there). ``noise`` times the learning rate is the size of the first step's noise; later it
    falls with the root of the rate. Weights are for images in [0, 1] and a relative distance.

    References:
        Yin et al., See through Gradients: Image Batch Recovery via GradInversion, 2021.
        https://arxiv.org/abs/2104.07586
    """

    version: ClassVar[int] = 1
    models_defense: ClassVar[Literal["none"]] = "none"

    steps: int = 2000
    seeds: int = 4
    meetings: int = 3
    lr: float = 0.1
    tv_weight: float = 1e-3
    norm_weight: float = 1e-6
    statistics_weight: float = 1e-3
    group_weight: float = 0.01
    noise: float = 0.05
    labels: Literal["inferred", "joint"] = "inferred"
    rule: Rule = "auto"

    def __post_init__(self) -> None:
        with guards.together():
            for name, least in (("steps", 1), ("seeds", 1), ("meetings", 0)):
                guards.count(getattr(self, name), name, "grad_inversion", least=least)
            guards.positive(self.lr, "lr", "grad_inversion")
            for name in ("tv_weight", "norm_weight", "statistics_weight", "group_weight", "noise"):
                guards.non_negative(getattr(self, name), name, "grad_inversion")
            guards.choice(self.labels, "labels", "grad_inversion", ("inferred", "joint"))
            guards.choice(self.rule, "rule", "grad_inversion", get_args(Rule))

    def stages(self, *, statistics: bool) -> list[Adversary]:
        """The shares of the work, without the group term: slower and slower, as one long decay."""
        prior: Any = self.tv_weight * tv() + self.norm_weight * norm()
        if statistics and self.statistics_weight:
            prior = prior + self.statistics_weight * batch_norm()
        count = min(self.steps, 1 + self.meetings)
        lengths = [self.steps // count + (k < self.steps % count) for k in range(count)]
        stages = []
        for k, steps in enumerate(lengths):
            rate = self.lr * (1 - k / count)
            floor = 0.01 if k == count - 1 else (count - k - 1) / (count - k)  # the rate that the next one begins with
            solver = adam(
                lr=rate, steps=steps, schedule=cosine_decay(floor=floor), langevin=self.lr * self.noise**2 / 2
            )
            stages.append(
                Adversary(l2(relative=True), prior, solver, labels=self.labels, rule=self.rule, start="normal")
            )
        return stages

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        known = "batch_statistics" in {name.rpartition(".")[2] for name in (threat or Threat()).grants}
        return self.stages(statistics=has_statistics(task, known=known))[-1].treatments(task, threat)

    def _attack(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        measured = has_statistics(task, known=knows_statistics(observations))
        stages = self.stages(statistics=measured)
        repeated = [one for one in observations for _ in range(self.seeds)]
        last, done = None, 0
        for stage in stages:
            if last is not None and self.group_weight:
                targets = self._met(last, len(observations))
                stage = replace(stage, prior=stage.prior + self.group_weight * Toward(targets.numpy()))  # type: ignore[operator]
            (last,) = stage_after([last], [stage], task, repeated, **within(options, done, self.steps))
            done += stage.solver.steps
        assert last is not None
        values = posterior(stages[-1], task, repeated, last)
        best = values.view(len(observations), self.seeds).argmax(1)
        chosen = joined([last], (torch.arange(len(observations)) * self.seeds + best.cpu()).tolist())
        notes = () if measured or not self.statistics_weight else (NO_NORMS,)
        return replace(chosen, notes=(*chosen.notes, *notes))

    def _met(self, last: Reconstruction, count: int) -> torch.Tensor:
        """What every seed of every observation is drawn toward, in the order of its own rows."""
        inputs, labels = (t.unflatten(0, (count, self.seeds)) for t in (last.inputs, last.labels))
        scores = last.log_posterior.view(count, self.seeds)
        each = [consensus(*one) for one in zip(inputs, labels, scores, strict=True)]
        return torch.cat(each).cpu()


grad_inversion = GradInversion
__all__ = ["GradInversion", "grad_inversion"]
