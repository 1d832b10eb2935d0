"""``adaptive()``: from a Protection to the adversary that is built against it.

The lesson of the Bayes paper: a heuristic defense looks good until somebody models it. A defense with a density
gets the Bayes adversary; a deterministic one is applied to the candidate as it was to the victim; what can be read
off the released update (the mask of a pruning, its threshold) is read off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from leakgauge.adversary import Adversary, Reconstruction, adam, cosine, cosine_decay, density, signed_adam, through
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.run import MEMORY
from leakgauge.defenses import Protection
from leakgauge.expr import Part, register
from leakgauge.mechanisms import Clip, Identity, parts_of
from leakgauge.mechanisms.chain import is_noise
from leakgauge.observation import Observation
from leakgauge.priors import PriorPart, tv
from leakgauge.task import Task
from leakgauge.types import Progress


@register("attack", "adaptive")
@dataclass(frozen=True, repr=False)
class Adaptive(Part):
    """The adversary of whatever protection the task has; :meth:`against` shows it.

    ===================== ==============================================================================
    protection            likelihood
    ===================== ==============================================================================
    none, clip            cosine: a clipped update is a positive multiple of the raw one
    pruning               cosine of the survivors, and of a zero only what exceeds the smallest survivor
    contains noise        its density; hidden masks summed out, granted ones used
    ===================== ==============================================================================

    ``tv_weight`` weighs the prior against a cosine; against a density the prior's weight is ``tv_density``,
    because a log density is measured in nats and a cosine is not.
    """

    steps: int = 1000
    restarts: int = 1
    tv_weight: float = 1e-3
    tv_density: float = 1.0
    prior: PriorPart = field(default_factory=tv)

    def against(self, protection: Protection) -> Adversary:
        """The adversary of one protection."""
        parts = parts_of(protection.update)
        if any(is_noise(part) for part in parts):
            quadratic = tv(kind="quadratic", reduce="sum")
            return Adversary(
                likelihood=density(),
                prior=self.tv_density * quadratic,
                solver=adam(lr=0.05, steps=self.steps, schedule=cosine_decay(floor=0.02)),
                restarts=self.restarts,
            )
        plain = all(isinstance(part, Identity) or (isinstance(part, Clip) and part.per == "update") for part in parts)
        return Adversary(
            likelihood=cosine() if plain else through(likelihood=cosine()),
            prior=self.tv_weight * self.prior,
            solver=signed_adam(lr=0.1, steps=self.steps),
            restarts=self.restarts,
        )

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
    ) -> Reconstruction:
        adversary = self.against(task.protection)
        return adversary(task, observations, seed=seed, device=device, path=path, memory=memory, progress=progress)
