"""Inspecting captured updates: attack them with no knowledge of the client but its model.

With known records the reconstructions are scored. Without, what can be said is how much of the update each
reconstruction explains, beside what the same attack explains of noise in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from leakgauge import metrics
from leakgauge.adversary import nulls
from leakgauge.client import LABELS, Recipe
from leakgauge.errors import DataError
from leakgauge.inspect.attacks import Attack, attacks_on
from leakgauge.inspect.captures import Capture, upright
from leakgauge.observation import Observation, Round
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Domain, Records


@dataclass(frozen=True)
class Finding:
    """What one captured update gave away.

    ``inputs [B, …]`` and ``labels [B]`` are the reconstruction, ``explained`` its share ``cos²`` of the update;
    ``null`` and ``null_explained`` the same of noise in the update's place (its best draw). With known records,
    ``psnr`` and ``null_psnr`` score both, per known record.
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

    def as_json(self) -> dict[str, Any]:
        """Everything but the images."""
        return {
            "name": self.name,
            "labels": self.labels.tolist(),
            "explained": round(self.explained, 6),
            "null_explained": round(self.null_explained, 6),
            "adversary": self.adversary,
            "psnr": [round(v, 3) for v in self.psnr],
            "null_psnr": [round(v, 3) for v in self.null_psnr],
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


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
    draws: int = 2,
    seed: int = 0,
) -> list[Finding]:
    """Attack every capture; labels are read off the last layer unless given.

    ``batch`` is the number of examples behind each update (a guess is allowed: it is an assumption). ``known`` are
    records that may be among them; each is scored against its best match.
    """
    if not captures:
        raise DataError("there is no update to inspect", where="inspect", remedy="give at least one")
    findings = []
    for place, capture in enumerate(captures):
        task = _task(model, domain, capture, batch, mode)
        turned = upright(capture, domain.classes, batch)
        granted = {} if labels is None else {LABELS: labels}
        observation = Observation((Round(turned.gradient, task.params, granted),), batch)
        noise = [nulls.noise([observation], seed=seed_of(seed, place, k))[0] for k in range(max(1, draws))]
        chosen = attacks or attacks_on(task, batch)
        guesses = _best_guesses(task, chosen, [observation, *noise], seed_of(seed, place))
        findings.append(_finding(turned, guesses[0], guesses[1:], known))
    return findings


@dataclass(frozen=True)
class _Guess:
    """What an attack made of one observation, and the share of it that this explains."""

    explained: float
    inputs: Tensor
    labels: Tensor
    attack: str


def _task(model: nn.Module, domain: Domain, capture: Capture, batch: int, mode: str) -> Task:
    own = copy.deepcopy(model)
    capture.before.into(own)
    return Task(own, domain, Recipe(batch=batch, mode="train" if mode == "train" else "eval"))


def _best_guesses(
    task: Task, attacks: Sequence[Attack], observations: Sequence[Observation], seed: int
) -> list[_Guess]:
    """For each observation the guess, over all attacks, that explains most of it; the first of equal ones."""
    by_attack = [_guesses(task, attack, observations, seed) for attack in attacks]
    return [max(several, key=lambda guess: guess.explained) for several in zip(*by_attack, strict=True)]


def _guesses(task: Task, attack: Attack, observations: Sequence[Observation], seed: int) -> list[_Guess]:
    reconstruction = attack(task, observations, seed=seed)
    guesses = []
    for i, observation in enumerate(observations):
        inputs, labels = reconstruction.inputs[i].detach().float(), reconstruction.labels[i]
        if task.domain.box is not None:
            inputs = inputs.nan_to_num().clamp(*task.domain.box)
        guesses.append(_Guess(explained(task, inputs, labels, observation), inputs, labels, repr(attack)))
    return guesses


def _finding(capture: Capture, guess: _Guess, from_noise: Sequence[_Guess], known: Records | None) -> Finding:
    null = max(from_noise, key=lambda one: one.explained)
    psnr = _scores(guess.inputs, known)
    null_psnr = tuple(map(max, zip(*(_scores(one.inputs, known) for one in from_noise), strict=True)))
    return Finding(
        name=capture.name,
        inputs=guess.inputs,
        labels=guess.labels,
        explained=guess.explained,
        null=null.inputs,
        null_explained=null.explained,
        adversary=guess.attack,
        sentence=_sentence(guess.explained, null.explained, psnr, null_psnr),
        psnr=psnr,
        null_psnr=null_psnr,
        notes=capture.notes,
    )


def explained(task: Task, inputs: Tensor, labels: Tensor, observation: Observation) -> float:
    """``cos²`` between a candidate's update and the observed one: the share that it explains up to scale."""
    ours = task.update(Records(inputs, labels, task.domain))
    theirs = observation.rounds[0].observed
    dot = sum(float((ours[n].double() * theirs[n].double()).sum()) for n in ours)
    sizes = [sum(float(v.double().square().sum()) for v in tree.values()) for tree in (ours, theirs)]
    return max(dot, 0.0) ** 2 / max(sizes[0] * sizes[1], 1e-300)


def _scores(inputs: Tensor, known: Records | None) -> tuple[float, ...]:
    """The PSNR of each known record with its best match."""
    if known is None:
        return ()
    return tuple(min(999.0, float(metrics.psnr(inputs, x.expand_as(inputs)).max())) for x in known.inputs.to(inputs))


def _sentence(share: float, null: float, psnr: tuple[float, ...], null_psnr: tuple[float, ...]) -> str:
    if psnr:
        gains = [a - b for a, b in zip(psnr, null_psnr, strict=True)]
        best = max(range(len(psnr)), key=lambda i: psnr[i])
        beaten = f"{sum(g > 0 for g in gains)} of {len(gains)} known records are nearer than from noise"
        return f"Best known record {best}: {psnr[best]:.1f} dB, from noise {null_psnr[best]:.1f} dB; {beaten}."
    both = f"The reconstruction explains {share:.1%} of the update, the same attack {null:.1%} of noise in its place. "
    if share > 0.9 and share - null > 0.3:
        return both + "An update of this shape comes from inputs like these: take them for your data and look."
    if share - null > 0.1:
        return both + "Something was found, but not all of it: treat the picture as a hint."
    return both + "Nothing can be concluded: the attack did no better than on noise."
