"""``adaptive()``: from a Protection to the adversary that is built against it.

The lesson of the Bayes paper: a heuristic defense looks good until somebody models it. A defense with a density
gets the Bayes adversary; a deterministic one is applied to the candidate as it was to the victim; what can be read
off the released update (the mask of a pruning, its threshold) is read off.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch

from leakgauge import guards
from leakgauge.adversary import (
    Adversary,
    Likelihood,
    Reconstruction,
    adam,
    cosine,
    cosine_decay,
    density,
    forgiving,
    l2,
    through,
)
from leakgauge.adversary.likelihoods import rounds
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.run import MEMORY, joined
from leakgauge.attacks.analytic import Analytic, inverts
from leakgauge.attacks.ats import undo_transformation
from leakgauge.attacks.believed import believed, with_received_norm, without_small_noise
from leakgauge.attacks.mixing import undo_mixing
from leakgauge.attacks.precode import Latent, before_bottleneck, knows_noise, with_latent_noise, with_noise
from leakgauge.defenses import (
    AutomaticTransformation,
    Clip,
    Identity,
    InstaHide,
    MixUp,
    Protection,
    Quantise,
    RandomPrune,
    Sign,
    Soteria,
    UpdatePart,
    parts_of,
)
from leakgauge.defenses import protection as read
from leakgauge.defenses.update.chain import is_noise
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.errors import AssumptionWarning, NoDensityError
from leakgauge.expr import Part, register
from leakgauge.observation import Observation
from leakgauge.priors import tv, uniform
from leakgauge.task import Task
from leakgauge.types import Progress


@register("attack", "adaptive")
@dataclass(frozen=True, repr=False)
class Adaptive(Part):
    """The adversary of whatever protection the task has; ``adaptive().against(protection)`` shows where it begins.

    - None, or clipping of the whole update: cosine, since a clipped update is a positive multiple of the raw one; one
      example through a first linear layer with a bias is read off exactly.
    - Pruning, top-k: cosine, where of a pruned zero only what exceeds the smallest survivor counts; then, from where
      that ended, as many steps by relative distance, since the norm tells something, too (not from the
      start: chosen on train records, before and after training). The fewer survive, the more the prior weighs.
    - Other maps: cosine after the map; of a layer under Soteria the columns that are not zero.
    - Signs: cosine of what was sent and the candidate's soft signs. Stochastic quantisation, pruned or not: its
      probabilities, if a few entries may be anywhere; so, too, after noise that is small beside its steps. Both say
      little, and the prior weighs ten times as much.
    - With noise: the density of the protection; hidden masks are summed out, granted ones used. Where there is none,
      that of what it is near to (:func:`~leakgauge.attacks.believed.believed`: a hidden threshold drops at random,
      clipping after a hidden mask comes before it), else cosine; a warning says why.
    - ``bound="received"``: of ``clip | noise`` the bound is not known, but read off the norm that was received.
    - Under a hidden scale (LRP): cosine, which is blind to it; with Gaussian noise the scale is integrated out.
    - PRECODE: a first linear layer is inverted; else the latent noise is recovered, where one example with biases and
      no noise allow it, else it is optimised beside the inputs; with ``latent="before"`` only what lies before the
      bottleneck is matched.
    - MixUp, InstaHide: the encodings of every round are inverted, then decoded: MixUp's coefficients are fitted where
      they are hidden, and over several rounds its indices are found; InstaHide needs the indices, and takes
      hidden coefficients from soft labels.
    - ATS: the transformed record is reconstructed, then undone as far as its policy allows.
    - With random pruning, labels come from the rows of the last weight: its bias may have lost the telling entry.

    ``tv_weight`` weighs the mean total variation against a cosine, ``tv_density`` the summed one against a log
    density, which is measured in nats; records that are no images get no prior. Adam on softly signed gradients from
    grey, for all, chosen on train records of Fashion-MNIST (Bayes CNN, noise of std 0.001 to 0.1).
    """

    version: ClassVar[int] = 3

    steps: int = 1000
    restarts: int = 1
    tv_weight: float = 1e-3
    tv_density: float = 3.0
    bound: Literal["granted", "received"] = "granted"
    latent: Latent = "joint"

    def __post_init__(self) -> None:
        guards.count(self.steps, "steps", "adaptive")
        guards.count(self.restarts, "restarts", "adaptive")
        guards.non_negative(self.tv_weight, "tv_weight", "adaptive")
        guards.non_negative(self.tv_density, "tv_density", "adaptive")
        guards.choice(self.bound, "bound", "adaptive", ("granted", "received"))
        guards.choice(self.latent, "latent", "adaptive", get_args(Latent))

    def against(self, protection: str | Protection, *, images: bool = True) -> Adversary:
        """The adversary of one protection, as it begins.

        A call adds what follows: a second stage, the decoding of mixtures, the undoing of ATS.
        """
        protection = read(protection)
        parts = parts_of(protection.update)
        noisy = any(is_noise(part) for part in parts)
        rounded = rounds(parts)
        nats = noisy and not rounded
        smooth = self.tv_density * tv(reduce="sum") if nats else self._weight(parts) * tv()
        made = Adversary(
            likelihood=forgiving() if rounded else _likelihood(parts, noisy=noisy),
            prior=smooth if images else uniform(),
            solver=adam(lr=0.1, steps=self.steps, sign="soft", schedule=cosine_decay(floor=0.01)),
            rule="rows" if any(isinstance(part, RandomPrune) for part in parts) else "auto",
            restarts=self.restarts,
            start="grey",
        )
        if not protection.model or self.latent == "before":
            return made
        # in one stage: a second would not begin at the noise that the first one found
        return with_latent_noise(replace(made, likelihood=LENGTHS) if _thresholded(made, protection) else made)

    def _weight(self, parts: Sequence[UpdatePart]) -> float:
        """Fewer survivors say less, and so do bits: chosen on train records of MNIST, for shares of 0.5 to 0.001."""
        share = min((part.share for part in parts if isinstance(part, Thresholded)), default=1.0)
        coarse = any(isinstance(part, Sign | Quantise) for part in parts)
        return self.tv_weight * max(10.0 if coarse else 1.0, 3.0 / share**0.5 if share < 1 else 1.0)

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
        part = task.protection.input[-1] if task.protection.input else None
        given = {"seed": seed, "device": device, "path": path, "memory": memory, "progress": progress}

        def invert(some: Sequence[Observation]) -> Reconstruction:
            return self._invert(task, some, given, flipped=isinstance(part, InstaHide))

        if isinstance(part, MixUp):
            return undo_mixing(invert, part, observations)
        if isinstance(part, AutomaticTransformation):
            return undo_transformation(invert, part, observations)
        return invert(observations)

    def _invert(
        self, task: Task, observations: Sequence[Observation], given: Mapping[str, Any], *, flipped: bool
    ) -> Reconstruction:
        """What the client computed on: the records, or what its input stage made of them."""
        images = task.domain.kind == "image" and not flipped  # flipped pixels are not smooth
        quiet = without_small_noise(task.protection.update, [r.observed for seen in observations for r in seen.rounds])
        if quiet != task.protection.update:
            what = f"adaptive() assumes {quiet!r}: noise is small beside the steps after it"
            warnings.warn(what, AssumptionWarning, stacklevel=4)
            task = replace(task, protection=replace(task.protection, update=quiet))
        adversary = self.against(task.protection, images=images)
        bare = all(map(_only_scales, parts_of(task.protection.update)))
        exact = bare and _single(task, observations)
        if exact and inverts(task):
            return Analytic()(task, observations, **given)
        if task.protection.model:
            if exact:
                observations = [with_noise(task, seen) for seen in observations]
            elif self.latent == "before" and not knows_noise(task, observations):
                return before_bottleneck(task, adversary)(task, observations, **given)
        try:
            if self.bound == "received":
                return self._bound_received(adversary, task, observations, given)
            if _thresholded(adversary, task.protection):
                return _with_length(adversary, task, observations, given)
            return adversary(task, observations, **given)
        except NoDensityError as reason:
            return self._without_density(adversary, task, observations, given, reason, images=images)

    def _bound_received(
        self, adversary: Adversary, task: Task, observations: Sequence[Observation], given: Mapping[str, Any]
    ) -> Reconstruction:
        """Each observation under the clipping bound that its own norm suggests."""
        made = []
        for seen in observations:
            assumed = with_received_norm(task.protection.update, seen.rounds[0].observed)
            own = (
                replace(adversary, likelihood=density(assumed=assumed))
                if assumed != task.protection.update
                else adversary
            )
            made.append(own(task, [seen], **given))
        return joined(made, range(len(made)))

    def _without_density(
        self,
        adversary: Adversary,
        task: Task,
        observations: Sequence[Observation],
        given: Mapping[str, Any],
        reason: NoDensityError,
        *,
        images: bool,
    ) -> Reconstruction:
        """What is nearest to the protection and has a density; else a cosine of what is not covered up."""
        assumed = believed(task.protection.update)
        if assumed != task.protection.update:
            try:
                found = replace(adversary, likelihood=density(assumed=assumed))(task, observations, **given)
            except NoDensityError:
                pass
            else:
                warnings.warn(f"adaptive() assumes {assumed!r}: {reason}", AssumptionWarning, stacklevel=4)
                return found
        warnings.warn(f"adaptive() falls back to a cosine: {reason}", AssumptionWarning, stacklevel=4)
        drop = tuple(
            part.weight for part in parts_of(task.protection.update) if isinstance(part, Soteria) and part.p > 0
        )
        plain = replace(self.against(Protection(), images=images), likelihood=cosine(drop=drop), rule=adversary.rule)
        plain = plain if adversary.latent is None else with_latent_noise(plain)
        return plain(task, observations, **given)


def _likelihood(parts: Sequence[UpdatePart], *, noisy: bool) -> Likelihood:
    return density() if noisy else cosine() if all(map(_only_scales, parts)) else through(cosine())


LENGTHS = through(l2(relative=True))
"""Of updates whose scale is not hidden, the norm tells something, too."""


def _thresholded(adversary: Adversary, protection: Protection) -> bool:
    """Whether directions of thresholded updates are matched, and lengths may be, too: no scale is hidden."""
    some = any(isinstance(part, Thresholded) for part in parts_of(protection.update))
    return some and adversary.likelihood == through(cosine()) and not protection.training


def _with_length(
    adversary: Adversary, task: Task, observations: Sequence[Observation], given: Mapping[str, Any]
) -> Reconstruction:
    """First by direction, then, from where that ended, as many steps by relative distance."""
    tell: Progress | None = given["progress"]

    def told(half: int) -> Progress | None:
        return tell and (lambda done, total, objective: tell(half * total + done, 2 * total, objective))

    first = adversary(task, observations, **{**given, "progress": told(0)})
    smaller = adam(lr=0.03, steps=adversary.solver.steps, sign="soft", schedule=cosine_decay(floor=0.01))
    closer = replace(adversary, likelihood=LENGTHS, solver=smaller, restarts=1)
    last = closer(task, observations, **{**given, "progress": told(1)}, begin=first.inputs)
    return replace(last, evaluations=first.evaluations + last.evaluations)


def _single(task: Task, observations: Sequence[Observation]) -> bool:
    """Whether every update is a multiple of one example's gradient."""
    recipe = task.recipe
    stepped = recipe.local_steps == 1 and not recipe.weight_decay
    return stepped and all(seen.batch == 1 and seen.rounds for seen in observations)


def _only_scales(part: UpdatePart) -> bool:
    return isinstance(part, Identity) or (isinstance(part, Clip) and part.per == "update")
