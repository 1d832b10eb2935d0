"""Inspecting captured updates: attack them with no knowledge of the client but its model.

With known records the reconstructions are scored. Without, what can be said is how much of the update each
reconstruction explains, beside what the same attack explains of several draws of noise in its place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from leakgauge import metrics
from leakgauge.adversary import nulls
from leakgauge.attacks import adaptive
from leakgauge.client import Recipe
from leakgauge.defenses import Protection
from leakgauge.errors import DataError, DomainError
from leakgauge.inspect.attacks import Attack, attacks_on
from leakgauge.inspect.captures import Capture
from leakgauge.inspect.comparison import LEVEL, threshold
from leakgauge.inspect.cost import refuse_costs
from leakgauge.inspect.readings import EXPLAINS, TURNED, UNDECIDED, Reading, decided, readings
from leakgauge.losses import CrossEntropy
from leakgauge.observation import Observation
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Domain, Loss, Records

DECIBELS = 1.0
"""Gains in PSNR below this are too small to see, whatever their spread."""

DRAWS = 5


@dataclass(frozen=True)
class Guess:
    """What an attack made of one observation, and the share of it that this explains."""

    explained: float
    inputs: Tensor
    labels: Tensor
    attack: str


@dataclass(frozen=True)
class Finding:
    """What one captured update gave away.

    ``inputs [B, …]`` and ``labels [B]`` are the reconstruction, ``explained`` its share ``cos²`` of the update;
    ``null`` and ``null_explained`` the same of noise in the update's place (its best draw). ``above_noise``: the share
    is beyond the spread of all draws. With known records, ``psnr`` and ``null_psnr`` score both, per known record, and
    ``nearer`` says which are beyond that spread. ``other`` is the reconstruction of the opposite reading of the
    update's sign, where the two cannot be told apart.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    explained: float
    null: Tensor
    null_explained: float
    adversary: str
    sentence: str
    psnr: tuple[float, ...] = ()
    null_psnr: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    above_noise: bool = False
    nearer: tuple[bool, ...] = ()
    turned: bool = False
    other: Guess | None = None

    def as_json(self) -> dict[str, Any]:
        """Everything but the images."""
        other = self.other and {"labels": self.other.labels.tolist(), "explained": round(self.other.explained, 6)}
        return {
            "name": self.name,
            "labels": self.labels.tolist(),
            "explained": round(self.explained, 6),
            "null_explained": round(self.null_explained, 6),
            "above_noise": self.above_noise,
            "turned": self.turned,
            "opposite_sign": other,
            "adversary": self.adversary,
            "psnr": [round(v, 3) for v in self.psnr],
            "null_psnr": [round(v, 3) for v in self.null_psnr],
            "nearer": list(self.nearer),
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Client:
    """What is assumed of the client behind a captured update: its recipe, and the defense that it declares."""

    model: nn.Module
    domain: Domain
    batch: int = 1
    mode: str = "eval"
    loss: Loss | None = None
    defense: Protection | None = None

    def __post_init__(self) -> None:
        early = self.defense and (*self.defense.input, *self.defense.model)
        if early:
            raise DomainError(
                f"{early[0]!r} acts on the records or the model, and a capture shows the update alone",
                where="inspect",
                remedy="name the parts that act on the update, or run an audit",
            )

    def task(self, capture: Capture) -> Task:
        """The task at the weights of a capture. With a defense its scale counts: a change has an unknown rate."""
        own = copy.deepcopy(self.model)
        capture.before.into(own)
        recipe = Recipe(
            batch=self.batch,
            mode="train" if self.mode == "train" else "eval",
            loss=self.loss or CrossEntropy(),
            shares="gradient" if self.defense is None or capture.kind == "gradient" else "change",
        )
        return Task(own, self.domain, recipe, self.defense or Protection())


def inspect(
    model: nn.Module,
    domain: Domain,
    captures: Sequence[Capture],
    *,
    batch: int = 1,
    labels: Tensor | None = None,
    known: Records | None = None,
    attacks: Sequence[Attack] | None = None,
    mode: str = "eval",
    loss: Loss | None = None,
    defense: Protection | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Finding]:
    """Attack every capture; labels are read off the last layer unless given.

    ``batch`` is the number of examples behind each update (a guess is allowed: it is an assumption). ``known`` are
    records that may be among them; each is scored against its best match. ``defense`` is what the client does to its
    update, if known: the adaptive adversary models it. ``draws`` of noise, three at least, are what it is compared
    with.
    """
    if not captures:
        raise DataError("there is no update to inspect", where="inspect", remedy="give at least one")
    if draws < 3:
        raise DomainError(f"{draws} draws of noise show no spread", where="inspect", remedy="use at least 3 draws")
    client = Client(model, domain, batch, mode, loss, defense)
    findings = []
    for place, capture in enumerate(captures):
        task = client.task(capture)
        chosen = attacks or ([adaptive()] if defense is not None else attacks_on(task, batch))
        if not place:
            refuse_costs(task, chosen, batch, problems=(2 + draws) * len(captures))
        possible = readings(task, capture, batch, labels)
        clear = [reading.observation for reading in possible]
        noise = [nulls.noise(clear[:1], seed=seed_of(seed, place, k))[0] for k in range(draws)]
        guesses = _best_guesses(task, chosen, [*clear, *noise], seed_of(seed, place))
        compared = _Compared(task, possible, guesses[: len(clear)], guesses[len(clear) :], known)
        findings.append(compared.finding(capture))
    return findings


def _best_guesses(task: Task, attacks: Sequence[Attack], observations: Sequence[Observation], seed: int) -> list[Guess]:
    """For each observation the guess, over all attacks, that explains most of it; the first of equal ones."""
    by_attack = [_guesses(task, attack, observations, seed) for attack in attacks]
    return [max(several, key=lambda guess: guess.explained) for several in zip(*by_attack, strict=True)]


def _guesses(task: Task, attack: Attack, observations: Sequence[Observation], seed: int) -> list[Guess]:
    reconstruction = attack(task, observations, seed=seed)
    guesses = []
    for i, observation in enumerate(observations):
        inputs, labels = reconstruction.inputs[i].detach().float(), reconstruction.labels[i]
        if task.domain.box is not None:
            inputs = inputs.nan_to_num().clamp(*task.domain.box)
        guesses.append(Guess(explained(task, inputs, labels, observation), inputs, labels, repr(attack)))
    return guesses


@dataclass(frozen=True)
class _Compared:
    """The guesses from every reading of a capture, beside those from noise in its place."""

    task: Task
    possible: Sequence[Reading]
    guesses: Sequence[Guess]
    from_noise: Sequence[Guess]
    known: Records | None

    def finding(self, capture: Capture) -> Finding:
        above = [self._above_noise(guess) for guess in self.guesses]
        best, other = 0, None
        if len(self.guesses) > 1:
            choice = decided([guess.explained for guess in self.guesses], above)
            best = choice or 0
            other = self.guesses[1] if choice is None else None
        guess, turned = self.guesses[best], self.possible[best].turned
        notes = capture.notes + ((TURNED,) if turned else ()) + ((UNDECIDED,) if other else ())
        null = max(self.from_noise, key=lambda one: one.explained)
        finding = Finding(
            name=capture.name,
            inputs=guess.inputs,
            labels=guess.labels,
            explained=guess.explained,
            null=null.inputs,
            null_explained=null.explained,
            adversary=guess.attack,
            sentence="",
            notes=notes,
            above_noise=any(above) if other else above[best],
            turned=turned,
            other=other,
        )
        return self._scored(finding)

    def _above_noise(self, guess: Guess) -> bool:
        """Correlations are compared; those with noise cannot spread less than ``1/√P``, for P entries."""
        entries = sum(value.numel() for value in self.task.params.values())
        nulls_ = [math.sqrt(one.explained) for one in self.from_noise]
        level = LEVEL / len(self.guesses)
        return math.sqrt(guess.explained) > threshold(nulls_, level=level, least=entries**-0.5)

    def _scored(self, finding: Finding) -> Finding:
        """With the PSNR of known records, and the sentence."""
        psnr = _scores(finding.inputs, self.known)
        if finding.other is not None:
            psnr = tuple(map(max, psnr, _scores(finding.other.inputs, self.known)))
        by_record = list(zip(*(_scores(one.inputs, self.known) for one in self.from_noise), strict=True))
        level = LEVEL / max(1, len(psnr) * len(self.guesses))
        limits = [max(threshold(some, level=level, least=0.0), max(some) + DECIBELS) for some in by_record]
        nearer = tuple(value > limit for value, limit in zip(psnr, limits, strict=True))
        scored = replace(finding, psnr=psnr, null_psnr=tuple(map(max, by_record)), nearer=nearer)
        return replace(scored, sentence=_sentence(scored))


def explained(task: Task, inputs: Tensor, labels: Tensor, observation: Observation) -> float:
    """``cos²`` between a candidate's update and the observed one: the share that it explains up to scale."""
    ours = task.update(Records(inputs, labels, task.domain), observation.rounds[0].params)
    theirs = observation.rounds[0].observed
    dot = sum(float((ours[n].double() * theirs[n].double()).sum()) for n in ours)
    sizes = [sum(float(v.double().square().sum()) for v in tree.values()) for tree in (ours, theirs)]
    return max(dot, 0.0) ** 2 / max(sizes[0] * sizes[1], 1e-300)


def _scores(inputs: Tensor, known: Records | None) -> tuple[float, ...]:
    """The PSNR of each known record with its best match."""
    if known is None:
        return ()
    return tuple(min(999.0, float(metrics.psnr(inputs, x.expand_as(inputs)).max())) for x in known.inputs.to(inputs))


def _sentence(finding: Finding) -> str:
    if finding.psnr:
        psnr, null = finding.psnr, finding.null_psnr
        best = max(range(len(psnr)), key=lambda i: psnr[i])
        beyond = f"{sum(finding.nearer)} of {len(psnr)} known records are nearer than from noise"
        return f"Best known record {best}: {psnr[best]:.1f} dB, from noise {null[best]:.1f} dB; {beyond}."
    share, null_share = finding.explained, finding.null_explained
    both = (
        f"The reconstruction explains {share:.1%} of the update, the same attack {null_share:.1%} of noise "
        "in its place. "
    )
    if not finding.above_noise:
        return both + "Nothing can be concluded: the attack did no better than on noise."
    if share > EXPLAINS:
        return both + "An update of this shape comes from inputs like these: take them for your data and look."
    return both + (
        f"That is beyond the spread of noise (level {LEVEL}): something was found. Of an update with noise even "
        "the truth explains only a part: look at the picture."
    )
