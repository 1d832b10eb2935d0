"""``adaptive()``: from a Protection to the adversary that is built against it.

The lesson of the Bayes paper: a heuristic defense looks good until somebody models it. A defense with a density
gets the Bayes adversary; a deterministic one is applied to the candidate as it was to the victim; what can be read
off the released update (the mask of a pruning, its threshold) is read off.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

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
    through,
)
from leakgauge.adversary.adversary import MEMORY
from leakgauge.adversary.joining import joined
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounding import is_rounding
from leakgauge.adversary.simulation import simulate
from leakgauge.adversary.treatments import knowledge, with_treatment
from leakgauge.attacks import ats, mixing  # noqa: F401  (they register how their encodings are undone)
from leakgauge.attacks.adapting import hint_of, last_decoded, left_encoded
from leakgauge.attacks.analytic import Analytic, inverts
from leakgauge.attacks.approach import Approach, of_belief, of_bottleneck, of_encodings, of_ratio, of_scales
from leakgauge.attacks.averaging import by_means
from leakgauge.attacks.believed import without_small_noise
from leakgauge.attacks.calling import Options
from leakgauge.attacks.circumstances import (
    has_dropout,
    is_exact,
    is_opaque,
    is_smooth,
    ratio_is_exact,
    recovery_sentence,
    simulation_sentences,
)
from leakgauge.attacks.differences import without_repeats
from leakgauge.attacks.exact_recovery import assembled
from leakgauge.attacks.lengths import LENGTHS, closer, hides_scale, lengths_tell, with_lengths
from leakgauge.attacks.norms import knows_statistics, with_statistics
from leakgauge.attacks.precode import (
    Latent,
    before_bottleneck,
    has_bottleneck,
    knows_noise,
    with_latent_noise,
    with_noise,
)
from leakgauge.attacks.recovering import obstacle, recover
from leakgauge.attacks.shared_rates import with_shared_rates
from leakgauge.attacks.surrogate import PLACES, is_worth, surrogate, treated
from leakgauge.attacks.without_density import (
    by_belief,
    by_cosine,
    by_received_norm,
    by_simulation,
    labelled,
    models_all_by_leaving_out,
)
from leakgauge.client import BATCH_STATISTICS
from leakgauge.defenses import Protection, UpdatePart
from leakgauge.defenses import protection as read
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import AssumptionWarning, NoDensityError, NotModelledWarning
from leakgauge.expr import Part, register
from leakgauge.observation import Observation, check
from leakgauge.priors import tv, uniform
from leakgauge.task import Task
from leakgauge.types import Progress, Threat, Treatment


@register("attack", "adaptive")
@dataclass(frozen=True, repr=False)
class Adaptive(Part):
    """The adversary of whatever protection the task has; ``adaptive().against(task, threat)`` shows it.

    - None, or clipping of the whole update: cosine, since a clipped update is a positive multiple of the raw one; one
      example through a first linear layer with a bias is read off exactly, and a batch is taken apart as far as
      :func:`~leakgauge.attacks.recover` certifies, where that layer meets ReLU; the rest of the update is attacked.
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
    - Hidden learning rates (LRP, or a rate that is not granted): of one local step cancelled by a cosine, summed out
      under Gaussian noise, fitted under Laplace noise, else searched for; of several local steps, searched for.
    - PRECODE: a first linear layer is inverted; else the latent noise is recovered, where one example with biases and
      no noise allow it, else it is optimised beside the inputs; with ``latent="before"`` only what lies before the
      bottleneck is matched. Dropout masks are optimised beside the inputs.
    - Batch norm in train mode: a candidate is normalised by its own statistics, which the prior ``batch_norm()`` draws
      toward those of the private batch where they are granted or shared buffers give them away, else the running ones.
    - MixUp, InstaHide: the encodings of every round are inverted, then decoded: MixUp's coefficients are fitted where
      they are hidden, and over several rounds its indices are found; InstaHide needs the indices, and takes
      hidden coefficients from soft labels.
    - Noise that repeats between rounds (:mod:`~leakgauge.adversary.repeats`): cancelled by differences of the rounds,
      which are attacked without it; at the same weights in every round, rounds that share their noise count once.
    - Hidden rates that repeat between rounds (:mod:`~leakgauge.adversary.rates`): a further stage, in which the rounds
      share them, so that the lengths of their updates count.
    - Rounds that differ in nothing but Gaussian noise: their mean, which says as much (its ``log_posterior`` lacks what
      does not depend on the records).
    - ATS: the transformed record is reconstructed, then undone as far as its policy allows.
    - More than ``unroll`` local steps of SGD: not unrolled, but taken for one gradient on the way
      (:mod:`leakgauge.attacks.surrogate`), which needs neither rates nor order nor their number; a warning says so.
    - Hidden labels are counted by likelihood, from all that the last layer still shows; each restart tries the next
      likely hypothesis.

    ``tv_weight`` weighs the mean total variation against a cosine, ``tv_density`` the summed one against a log
    density, which is measured in nats; records that are no images get no prior. ``labels`` says what is done where
    they are hidden. Adam on softly signed gradients from grey, for all, chosen on train records of Fashion-MNIST (Bayes
    CNN, noise of std 0.001 to 0.1).
    """

    version: ClassVar[int] = 11
    models_defense: ClassVar[Literal["any"]] = "any"

    steps: int = 1000
    restarts: int = 1
    tv_weight: float = 1e-3
    tv_density: float = 3.0
    bound: Literal["granted", "received"] = "granted"
    latent: Latent = "joint"
    labels: Literal["inferred", "joint"] = "inferred"
    unroll: int = 16

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.steps, "steps", "adaptive")
            guards.count(self.unroll, "unroll", "adaptive", least=0)
            guards.count(self.restarts, "restarts", "adaptive")
            guards.non_negative(self.tv_weight, "tv_weight", "adaptive")
            guards.non_negative(self.tv_density, "tv_density", "adaptive")
            guards.choice(self.bound, "bound", "adaptive", ("granted", "received"))
            guards.choice(self.latent, "latent", "adaptive", get_args(Latent))
            guards.choice(self.labels, "labels", "adaptive", ("inferred", "joint"))

    def against(self, task: Task, threat: Threat | None = None) -> Approach:
        """How it attacks this task under this threat. A call adds what follows: a second stage, decoding, undoing."""
        knows = knowledge(task, threat)
        simulation = simulate(task, silent=is_opaque)
        if simulation.stand_ins:
            threat = (threat or Threat()).about(simulation.task.nuisances)
        task = simulation.task
        adversary = self._adversary(task, known=knows.get(BATCH_STATISTICS) == "granted")
        listed = adversary.treatments(task, threat)
        batch = task.recipe.batch
        changed = of_bottleneck(task, self.latent, exact=is_exact(task, batch))
        changed += [*of_scales(task), *of_encodings(task, knows), *of_belief(task, listed)]
        if is_worth(task, self.unroll):
            changed += treated(task, listed)
        exact = ratio_is_exact(task, batch) and inverts(task)
        if exact:
            changed += of_ratio(adversary, task, knows)
        simulated = tuple(simulation_sentences(simulation))
        return Approach(adversary, with_treatment(listed, *changed), exact, simulated, recovery_sentence(task))

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        """What it does about every nuisance of the task."""
        return self.against(task, threat).treatments

    def _adversary(self, task: Task, *, known: bool) -> Adversary:
        """The adversary of a task's protection, recipe and network; ``known``: batch statistics are granted."""
        adversary = self.adversary(task.protection, images=is_smooth(task), dropout=has_dropout(task))
        return with_statistics(adversary, task, known=known)

    def adversary(self, protection: str | Protection, *, images: bool = True, dropout: bool = False) -> Adversary:
        """The adversary of one protection, as it begins."""
        protection = read(protection)
        parts = protection.chain.parts
        noisy = any(is_noise(part) for part in parts)
        rounded = is_rounding(parts)
        nats = noisy and not rounded
        weight = self.tv_weight * max(hint_of(part).prior for part in parts)
        smooth = self.tv_density * tv(reduce="sum") if nats else weight * tv()
        adversary = Adversary(
            likelihood=forgiving() if rounded else _likelihood(parts, noisy=noisy),
            prior=smooth if images else uniform(),
            solver=adam(lr=0.1, steps=self.steps, sign="soft", schedule=cosine_decay(floor=0.01)),
            labels=self.labels,
            restarts=self.restarts,
            start="grey",
        )
        if not dropout and (not protection.model or self.latent == "before"):
            return adversary
        # in one stage: a second would not begin at the noise that the first one found
        adversary = replace(adversary, likelihood=LENGTHS) if lengths_tell(adversary, protection) else adversary
        return with_latent_noise(adversary)

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
        check(task, observations, sums=isinstance(task, Task) and obstacle(task) is None)
        options = {"seed": seed, "device": device, "path": path, "memory": memory, "progress": progress}

        def invert(some: Sequence[Observation]) -> Reconstruction:
            return without_repeats(task, some, fresh, seed)

        def fresh(some: Sequence[Observation]) -> Reconstruction:
            return by_means(task, some, lambda own, rest: self._invert_and_share(own, rest, options))

        for part in left_encoded(task.protection):
            what = f"adaptive() does not undo {part!r}: its encoding is taken for the record"
            warnings.warn(what, NotModelledWarning, stacklevel=2)
        undone = last_decoded(task.protection)
        return (
            invert(observations)
            if undone is None
            else undone.decoder.undo(invert, undone.part, undone.label, observations)
        )

    def _invert_and_share(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        """Then, where hidden rates repeat, by the lengths of the updates as well, under rates that rounds share."""

        def go_on(some: Sequence[Observation], begin: Tensor, shared: Shared) -> Reconstruction:
            own = closer(self._adversary(task, known=knows_statistics(some)))
            return own(task, some, **options, begin=begin, shared=shared)

        guesses = self._invert(task, observations, options)
        if is_worth(task, self.unroll) or any(is_opaque(part) for part in task.protection.chain.parts):
            return guesses
        return with_shared_rates(task, observations, guesses, go_on)

    def _invert(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        """What the client computed on: the records, or what its input stage made of them."""
        task, observations = self._modelled(task, observations)
        adversary = self._adversary(task, known=knows_statistics(observations))
        if inverts(task) and all(one.rounds and ratio_is_exact(task, one.batch) for one in observations):
            return Analytic()(task, observations, **options)
        if is_worth(task, self.unroll):
            return self._by_surrogate(task, observations, options)
        exact = all(one.rounds and is_exact(task, one.batch) for one in observations)
        if not exact and obstacle(task) is None:
            return _taken_apart(adversary, task, observations, options)
        reconstruction = self._optimised(adversary, task, observations, options, exact)
        recovery = recovery_sentence(task)
        return replace(reconstruction, notes=(*reconstruction.notes, recovery)) if recovery else reconstruction

    def _modelled(self, task: Task, observations: Sequence[Observation]) -> tuple[Task, list[Observation]]:
        """Stand-ins for parts with nothing but a release, and no noise that is small beside later roundings."""
        simulation = simulate(task, silent=is_opaque)
        for stand_in in simulation.stand_ins:
            warnings.warn(f"adaptive(): {stand_in!r} is {stand_in.sentence}", AssumptionWarning, stacklevel=5)
        task, modelled = simulation.task, labelled(simulation, observations, self.labels)
        quiet = without_small_noise(task.protection.update, [r.observed for one in modelled for r in one.rounds])
        if quiet != task.protection.update:
            what = f"adaptive() assumes {quiet!r}: noise is small beside the steps after it"
            warnings.warn(what, AssumptionWarning, stacklevel=5)
            task = replace(task, protection=replace(task.protection, update=quiet))
        return task, modelled

    def _optimised(
        self, adversary: Adversary, task: Task, observations: Sequence[Observation], options: Options, exact: bool
    ) -> Reconstruction:
        if has_bottleneck(task):
            if exact:
                observations = [with_noise(task, one) for one in observations]
            elif self.latent == "before" and not knows_noise(task, observations):
                return before_bottleneck(task, adversary)(task, observations, **options)
        try:
            if self.bound == "received":
                return by_received_norm(adversary, task, observations, options)
            if lengths_tell(adversary, task.protection) and not hides_scale(task, observations):
                return with_lengths(adversary, task, observations, options)
            return adversary(task, observations, **options)
        except NoDensityError as reason:
            return self._without_density(adversary, task, observations, options, reason)

    def _without_density(
        self,
        adversary: Adversary,
        task: Task,
        observations: Sequence[Observation],
        options: Options,
        reason: NoDensityError,
    ) -> Reconstruction:
        """What is nearest to the protection and has a density; else a simulation; else a cosine."""
        known = knows_statistics(observations)

        def adversary_of(simulated: Task) -> Adversary:
            own = self._adversary(simulated, known=known)
            return replace(own, rule=adversary.rule, hidden=adversary.hidden)

        believing = by_belief(adversary, task, observations, options, reason)
        if believing is not None:
            return believing
        if not models_all_by_leaving_out(task):
            simulated = by_simulation(adversary_of, task, observations, options, reason)
            if isinstance(simulated, Reconstruction):
                return simulated
            reason = simulated
        plain = with_statistics(self.adversary(Protection(), images=is_smooth(task)), task, known=known)
        plain = plain if adversary.hidden is None else with_latent_noise(plain)
        return by_cosine(plain, task, observations, options, reason)

    def _by_surrogate(self, task: Task, observations: Sequence[Observation], options: Options) -> Reconstruction:
        """Many local steps as one gradient on the way; of the places tried, the one that fits best."""
        steps = task.recipe.total_steps
        what = f"adaptive() takes {steps} local steps for one gradient on the way; say unroll={steps}"
        warnings.warn(f"{what} to differentiate through all of them", AssumptionWarning, stacklevel=5)
        tried = []
        for place in PLACES:
            single, turned = surrogate(task, observations, place)
            plain = self._adversary(single, known=knows_statistics(turned))
            tried.append(plain(single, turned, **options))
        posteriors = torch.stack([one.log_posterior for one in tried])
        best = posteriors.nan_to_num(nan=-torch.inf).argmax(0).tolist()
        count = len(observations)
        chosen = joined(tried, [place * count + i for i, place in enumerate(best)])
        return replace(chosen, evaluations=sum(one.evaluations for one in tried))


def _likelihood(parts: Sequence[UpdatePart], *, noisy: bool) -> Likelihood:
    return density() if noisy else cosine() if all(hint_of(part).scales for part in parts) else through(cosine())


def _taken_apart(
    adversary: Adversary, task: Task, observations: Sequence[Observation], options: Options
) -> Reconstruction:
    """Every record that can be certified; the rest of each update is attacked as that of a smaller batch."""
    recoveries = [recover(task, one, seed=options["seed"]) for one in observations]
    ended: list[Reconstruction] = []

    def attacked(left: Sequence[Observation]) -> list[tuple[Tensor, Tensor]]:
        guesses: dict[int, tuple[Tensor, Tensor]] = {}
        for size in sorted({one.batch for one in left}):
            at = [i for i, one in enumerate(left) if one.batch == size]
            some = adversary(task, [left[i] for i in at], **options)
            ended.append(some)
            guesses |= dict(zip(at, zip(some.inputs, some.labels, strict=True), strict=True))
        return [guesses[i] for i in range(len(left))]

    whole = assembled(task, observations, recoveries, attacked)
    return replace(whole, evaluations=sum(some.evaluations for some in ended))


__all__ = ["Adaptive", "Approach"]
