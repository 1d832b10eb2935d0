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
    l2,
    through,
)
from leakgauge.adversary.adversary import MEMORY
from leakgauge.adversary.joining import joined
from leakgauge.adversary.likelihoods import Density
from leakgauge.adversary.paths import PathName
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounding import is_rounding
from leakgauge.adversary.simulation import Simulation, StandIn, simulate, simulate_whole
from leakgauge.adversary.simulation.labels import labels_by_simulation
from leakgauge.adversary.simulation.simulate import is_silent
from leakgauge.adversary.treatments import Case, with_treatment
from leakgauge.attacks import ats, mixing  # noqa: F401  (they register how their encodings are undone)
from leakgauge.attacks.adapting import decoder_of, hint_of
from leakgauge.attacks.analytic import Analytic, inverts
from leakgauge.attacks.averaging import by_means
from leakgauge.attacks.believed import believed, with_received_norm, without_small_noise
from leakgauge.attacks.differences import without_repeats
from leakgauge.attacks.exact_recovery import assembled
from leakgauge.attacks.norms import knows_statistics, with_statistics
from leakgauge.attacks.precode import NOISE, Latent, before_bottleneck, knows_noise, with_latent_noise, with_noise
from leakgauge.attacks.recovering import NOT_APPLICABLE, first_layer, obstacle, recover
from leakgauge.attacks.shared_rates import with_shared_rates
from leakgauge.attacks.surrogate import PLACES, is_worth, surrogate, treated
from leakgauge.client import BATCH_STATISTICS, LABELS
from leakgauge.defenses import Protection, UpdatePart
from leakgauge.defenses import protection as read
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import AssumptionWarning, NoDensityError, NotModelledWarning
from leakgauge.expr import Part, register
from leakgauge.observation import Observation, check
from leakgauge.priors import tv, uniform
from leakgauge.task import Task
from leakgauge.types import Progress, Threat, Treatment

LENGTHS = through(l2(relative=True))
"""Of updates whose scale is not hidden, the norm tells something, too."""


@dataclass(frozen=True)
class Approach:
    """How ``adaptive()`` attacks a task under a threat: where it begins, and what it does about every nuisance."""

    adversary: Adversary
    treatments: tuple[Treatment, ...]
    exact: bool = False
    simulated: tuple[str, ...] = ()
    """What it made of every part that has only a ``release``, a sentence each."""
    recovery: str = ""
    """What exact recovery does about a batch, or why it does not apply; empty where the network gives it no hold."""

    def __str__(self) -> str:
        begins = "a linear layer is read off exactly" if self.exact else repr(self.adversary)
        lines = (f"  {line}" for line in (*self.simulated, *self.treatments))
        return "\n".join([*filter(None, [self.recovery]), begins, *lines])


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
      under Gaussian noise, else searched for beside the inputs; of several local steps, searched for.
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

    version: ClassVar[int] = 7
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
        knows = (threat or Threat()).mapping(task.nuisances)
        simulation = simulate(task, silent=_unknown)
        if simulation.stand_ins:
            threat = (threat or Threat()).about(simulation.task.nuisances)
        task = simulation.task
        adversary = self._adversary(task, known=knows.get(BATCH_STATISTICS) == "granted")
        exact = _is_exact(task, task.recipe.batch)
        listed = adversary.treatments(task, threat)
        changed = [*self._of_model(task, exact), *_of_scales(task)]
        for label, part in task.protection.stage("input").items():
            decoder = decoder_of(part)  # type: ignore[arg-type]
            changed += decoder.treat(part, label, knows) if decoder else ()
        changed += self._of_belief(task, listed)
        if is_worth(task, self.unroll):
            changed += treated(task, listed)
        exact = exact or _ratio_is_exact(task, task.recipe.batch)
        if exact and inverts(task):
            words = "hidden; cancelled in the ratio of weight and bias"
            changed += [Treatment(a, "cancelled", words) for a in Case(adversary, task, knows).rates]
        simulated = tuple(_sentences(simulation))
        treatments = with_treatment(listed, *changed)
        return Approach(adversary, treatments, exact and inverts(task), simulated, _recovery(task))

    def treatments(self, task: Task, threat: Threat | None = None) -> tuple[Treatment, ...]:
        """What it does about every nuisance of the task."""
        return self.against(task, threat).treatments

    def _of_belief(self, task: Task, listed: Sequence[Treatment]) -> Sequence[Treatment]:
        """What has no density is taken for what is near to it and has one."""
        assumed = believed(task.protection.update)
        if assumed == task.protection.update or not any(is_noise(part) for part in task.protection.chain.parts):
            return ()
        sentence = f"hidden; where that leaves no density, {assumed!r} is assumed"
        update = {nuisance.name for nuisance in task.protection.chain.nuisances}
        return [Treatment(t.address, "assumed", sentence) for t in listed if t.how == "assumed" and t.address in update]

    def _of_model(self, task: Task, exact: bool) -> Sequence[Treatment]:
        if not task.protection.model:
            return ()
        if exact:
            return (Treatment(NOISE, "read off", "hidden; recovered from the bottleneck's own gradients"),)
        if self.latent == "before":
            return (Treatment(NOISE, "cancelled", "hidden; only layers before the bottleneck are matched"),)
        return ()

    def _adversary(self, task: Task, *, known: bool) -> Adversary:
        """The adversary of a task's protection, recipe and network; ``known``: batch statistics are granted."""
        adversary = self.adversary(task.protection, images=_smooth(task), dropout=_drops(task))
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
        adversary = replace(adversary, likelihood=LENGTHS) if _lengths_tell(adversary, protection) else adversary
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
        how = {"seed": seed, "device": device, "path": path, "memory": memory, "progress": progress}

        def invert(some: Sequence[Observation]) -> Reconstruction:
            return without_repeats(task, some, fresh, seed)

        def fresh(some: Sequence[Observation]) -> Reconstruction:
            return by_means(task, some, lambda own, rest: self._invert_and_share(own, rest, how))

        part = task.protection.input[-1] if task.protection.input else None
        decoder = decoder_of(part) if part is not None else None
        return invert(observations) if decoder is None else decoder.undo(invert, part, observations)

    def _invert_and_share(
        self, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]
    ) -> Reconstruction:
        """Then, where hidden rates repeat, by the lengths of the updates as well, under rates that rounds share."""

        def closer(some: Sequence[Observation], begin: Tensor, shared: Shared) -> Reconstruction:
            own = _closer(self._adversary(task, known=knows_statistics(some)))
            return own(task, some, **how, begin=begin, shared=shared)

        guesses = self._invert(task, observations, how)
        if is_worth(task, self.unroll) or any(_unknown(part) for part in task.protection.chain.parts):
            return guesses
        return with_shared_rates(task, observations, guesses, closer)

    def _invert(self, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]) -> Reconstruction:
        """What the client computed on: the records, or what its input stage made of them."""
        simulation = simulate(task, silent=_unknown)
        for stand_in in simulation.stand_ins:
            warnings.warn(f"adaptive(): {stand_in!r} is {stand_in.sentence}", AssumptionWarning, stacklevel=4)
        task, observations = simulation.task, self._labelled(simulation, observations)
        quiet = without_small_noise(task.protection.update, [r.observed for one in observations for r in one.rounds])
        if quiet != task.protection.update:
            what = f"adaptive() assumes {quiet!r}: noise is small beside the steps after it"
            warnings.warn(what, AssumptionWarning, stacklevel=4)
            task = replace(task, protection=replace(task.protection, update=quiet))
        adversary = self._adversary(task, known=knows_statistics(observations))
        exact = all(one.rounds and _is_exact(task, one.batch) for one in observations)
        ratio = all(one.rounds and _ratio_is_exact(task, one.batch) for one in observations)
        if ratio and inverts(task):
            return Analytic()(task, observations, **how)
        if is_worth(task, self.unroll):
            return self._by_surrogate(task, observations, how)
        if not exact and obstacle(task) is None:
            return self._taken_apart(adversary, task, observations, how)
        reconstruction = self._optimised(adversary, task, observations, how, exact)
        recovery = _recovery(task)
        return replace(reconstruction, notes=(*reconstruction.notes, recovery)) if recovery else reconstruction

    def _taken_apart(
        self, adversary: Adversary, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]
    ) -> Reconstruction:
        """Every record that can be certified; the rest of each update is attacked as that of a smaller batch."""
        recoveries = [recover(task, one, seed=how["seed"]) for one in observations]
        ended: list[Reconstruction] = []

        def attacked(left: Sequence[Observation]) -> list[tuple[Tensor, Tensor]]:
            guesses: dict[int, tuple[Tensor, Tensor]] = {}
            for size in sorted({one.batch for one in left}):
                at = [i for i, one in enumerate(left) if one.batch == size]
                some = adversary(task, [left[i] for i in at], **how)
                ended.append(some)
                guesses |= dict(zip(at, zip(some.inputs, some.labels, strict=True), strict=True))
            return [guesses[i] for i in range(len(left))]

        whole = assembled(task, observations, recoveries, attacked)
        return replace(whole, evaluations=sum(some.evaluations for some in ended))

    def _optimised(
        self,
        adversary: Adversary,
        task: Task,
        observations: Sequence[Observation],
        how: Mapping[str, Any],
        exact: bool,
    ) -> Reconstruction:
        if task.protection.model:
            if exact:
                observations = [with_noise(task, one) for one in observations]
            elif self.latent == "before" and not knows_noise(task, observations):
                return before_bottleneck(task, adversary)(task, observations, **how)
        try:
            if self.bound == "received":
                return self._bound_received(adversary, task, observations, how)
            if _lengths_tell(adversary, task.protection) and not _hides_scale(task, observations):
                return _with_length(adversary, task, observations, how)
            return adversary(task, observations, **how)
        except NoDensityError as reason:
            return self._without_density(adversary, task, observations, how, reason)

    def _by_surrogate(self, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]) -> Reconstruction:
        """Many local steps as one gradient on the way; of the places tried, the one that fits best."""
        steps = task.recipe.total_steps
        what = f"adaptive() takes {steps} local steps for one gradient on the way; say unroll={steps}"
        warnings.warn(f"{what} to differentiate through all of them", AssumptionWarning, stacklevel=5)
        tried = []
        for place in PLACES:
            single, turned = surrogate(task, observations, place)
            plain = self._adversary(single, known=knows_statistics(turned))
            tried.append(plain(single, turned, **how))
        posteriors = torch.stack([one.log_posterior for one in tried])
        best = posteriors.nan_to_num(nan=-torch.inf).argmax(0).tolist()
        count = len(observations)
        chosen = joined(tried, [place * count + i for i, place in enumerate(best)])
        return replace(chosen, evaluations=sum(one.evaluations for one in tried))

    def _labelled(self, simulation: Simulation, observations: Sequence[Observation]) -> list[Observation]:
        """The observations of the simulated task; the labels that a stand-in hides come from simulated releases."""
        before = simulation.observed(observations)
        hidden = self.labels == "inferred" and any(one.labels is None for one in before)
        stands = any(isinstance(part, StandIn) for part in simulation.task.protection.chain.parts)
        if not stands or not hidden or any(one.batch > 1 for one in before):
            return before
        labels = labels_by_simulation(simulation.task, before)
        return [one.given(LABELS, label) for one, label in zip(before, labels, strict=True)]

    def _bound_received(
        self, adversary: Adversary, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]
    ) -> Reconstruction:
        """Each observation under the clipping bound that its own norm suggests."""
        reconstructions = []
        for one in observations:
            assumed = with_received_norm(task.protection.update, one.rounds[0].observed)
            changed = assumed != task.protection.update
            own = replace(adversary, likelihood=density(assumed=assumed)) if changed else adversary
            reconstructions.append(own(task, [one], **how))
        return joined(reconstructions, range(len(reconstructions)))

    def _without_density(
        self,
        adversary: Adversary,
        task: Task,
        observations: Sequence[Observation],
        how: Mapping[str, Any],
        reason: NoDensityError,
    ) -> Reconstruction:
        """What is nearest to the protection and has a density; else a cosine of what is not covered up."""
        assumed = believed(task.protection.update)
        if assumed != task.protection.update:
            try:
                reconstruction = replace(adversary, likelihood=density(assumed=assumed))(task, observations, **how)
            except NoDensityError:
                pass
            else:
                warnings.warn(f"adaptive() assumes {assumed!r}: {reason}", AssumptionWarning, stacklevel=4)
                return reconstruction
        drop = tuple(name for part in task.protection.chain.parts for name in hint_of(part).drop)
        category: type[AssumptionWarning] = AssumptionWarning
        # to leave out what a part covered up models it, but no other part
        if not drop or any(_unknown(part) for part in task.protection.chain.parts):
            simulation = simulate_whole(task)
            if not simulation.unmodelled:
                what = f"{_sentences(simulation)[0]}, since {reason}"
                warnings.warn(f"adaptive(): {what}", AssumptionWarning, stacklevel=4)
                own = self._adversary(simulation.task, known=knows_statistics(observations))
                own = replace(own, rule=adversary.rule, hidden=adversary.hidden)
                return own(simulation.task, self._labelled(simulation, observations), **how)
            part, why = simulation.unmodelled[0]
            category, reason = NotModelledWarning, NoDensityError(f"{part!r} is not modelled: {why}")
        warnings.warn(f"adaptive() falls back to a cosine: {reason}", category, stacklevel=4)
        plain = replace(self.adversary(Protection(), images=_smooth(task)), likelihood=cosine(drop=drop))
        plain = with_statistics(plain, task, known=knows_statistics(observations))
        plain = plain if adversary.hidden is None else with_latent_noise(plain)
        return plain(task, observations, **how)


def _recovery(task: Task) -> str:
    """What exact recovery does about a batch, as a sentence; nothing where the network gives it no hold."""
    if task.recipe.batch == 1 or first_layer(task) is None:
        return ""
    reason = obstacle(task)
    return NOT_APPLICABLE + reason if reason else "exact recovery first: peeling, then sparse directions"


def _likelihood(parts: Sequence[UpdatePart], *, noisy: bool) -> Likelihood:
    return density() if noisy else cosine() if all(hint_of(part).scales for part in parts) else through(cosine())


def _unknown(part: UpdatePart) -> bool:
    """Whether nothing is known of a part but its release."""
    return is_silent(part) and not hint_of(part).scales


def _sentences(simulation: Simulation) -> list[str]:
    return [
        *(f"{part!r} is {part.sentence}" for part in simulation.stand_ins),
        *(f"{part!r} is not modelled: {reason}" for part, reason in simulation.unmodelled),
    ]


def _smooth(task: Task) -> bool:
    """Whether what the client computes on looks like images: flipped pixels are not smooth."""
    decoders = [decoder_of(part) for part in task.protection.input]
    return task.domain.kind == "image" and all(decoder is None or decoder.smooth for decoder in decoders)


def _drops(task: Task) -> bool:
    return "recipe.dropout" in task.nuisances


def _of_scales(task: Task) -> list[Treatment]:
    """The nuisances of parts that only scale the update, where nothing else acts on it."""
    parts = task.protection.chain.labelled
    if not all(hint_of(part).scales for part in parts.values()):
        return []
    addresses = [f"{label}.{nuisance.name}" for label, part in parts.items() for nuisance in part.nuisances]
    return [Treatment(a, "cancelled", "hidden; cancelled, since directions alone are matched") for a in addresses]


def _lengths_tell(adversary: Adversary, protection: Protection) -> bool:
    """Whether directions of thresholded updates are matched, and lengths may be, too: no scale is hidden."""
    some = any(hint_of(part).lengths for part in protection.chain.parts)
    return some and adversary.likelihood == through(cosine()) and not protection.training


def _hides_scale(task: Task, observations: Sequence[Observation]) -> bool:
    rate = "recipe.learning_rate"
    return rate in task.nuisances and any(rate not in r.granted for one in observations for r in one.rounds)


def _with_length(
    adversary: Adversary, task: Task, observations: Sequence[Observation], how: Mapping[str, Any]
) -> Reconstruction:
    """First by direction, then, from where that ended, as many steps by relative distance."""
    tell: Progress | None = how["progress"]

    def told(half: int) -> Progress | None:
        return tell and (lambda done, total, objective: tell(half * total + done, 2 * total, objective))

    first = adversary(task, observations, **{**how, "progress": told(0)})
    closer = _closer(adversary)
    if adversary.labels == "joint":  # what the first stage found is where the second begins
        observations = [
            one if one.labels is not None else one.given(LABELS, labels)
            for one, labels in zip(observations, first.labels, strict=True)
        ]
    last = closer(task, observations, **{**how, "progress": told(1)}, begin=first.inputs)
    return replace(last, evaluations=first.evaluations + last.evaluations)


def _closer(adversary: Adversary) -> Adversary:
    """What goes on where directions alone were matched: smaller steps, by relative distance; a density stays."""
    smaller = adam(lr=0.03, steps=adversary.solver.steps, sign="soft", schedule=cosine_decay(floor=0.01))
    likelihood = adversary.likelihood if isinstance(adversary.likelihood, Density) else LENGTHS
    return replace(adversary, likelihood=likelihood, solver=smaller, restarts=1)


def _ratio_is_exact(task: Task, batch: int) -> bool:
    """Whether a first linear layer's change is ``(Σ_t η_t δ_t) xᵀ`` beside ``Σ_t η_t δ_t``: one example, however often.

    Momentum only mixes the δ_t; weight decay and Adam would act on weight and bias apart.
    """
    recipe = task.recipe
    plain = batch == 1 and recipe.optimiser == "sgd" and not recipe.weight_decay and not _drops(task)
    return plain and all(hint_of(part).scales for part in task.protection.chain.parts)


def _is_exact(task: Task, batch: int) -> bool:
    """Whether every update is a positive multiple of one example's gradient."""
    return task.recipe.local_steps == 1 and _ratio_is_exact(task, batch)


__all__ = ["Adaptive", "Approach"]
