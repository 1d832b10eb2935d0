"""Inspecting captured updates: attack them with no knowledge of the client but its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from leakgauge.adversary import nulls
from leakgauge.adversary.statistics import are_leaked
from leakgauge.defenses import Protection
from leakgauge.errors import DataError, DomainError
from leakgauge.inspect.attacks import Attack, attacks_on, name_of
from leakgauge.inspect.captures import Capture
from leakgauge.inspect.client import Client
from leakgauge.inspect.cost import refuse_costs
from leakgauge.inspect.findings import Compared, Finding, Guess, explained
from leakgauge.inspect.readings import readings
from leakgauge.inspect.rounds import together, with_rounds
from leakgauge.inspect.scoring import Ruler
from leakgauge.observation import Observation
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Domain, Loss, Records

DRAWS = 5
LEAKED = (
    "the running statistics of batch norms came back with the update: those of the private batch were read off them, "
    "as after one local step"
)


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
    same_records: bool = False,
) -> list[Finding]:
    """Attack every capture, by default with ``standard()``; labels are read off the last layer unless given.

    ``batch`` is the number of examples behind each update (a guess is allowed: it is an assumption). ``known`` are
    records that may be among them; each is scored against its best match. ``defense`` is what the client does to its
    update, if known: the adversary models it. ``draws`` of noise, three at least, are what it is compared
    with. Rounds of one client are searched for noise that repeats; where it does, a further finding attacks their
    difference. ``same_records``: the client had the same ones in all its rounds, which are attacked together as well.
    """
    if not captures:
        raise DataError("there is no update to inspect", where="inspect", remedy="give at least one")
    if draws < 3:
        raise DomainError(f"{draws} draws of noise show no spread", where="inspect", remedy="use at least 3 draws")
    if known is not None:
        Ruler.of(known.domain)  # records that cannot be compared are refused before anything is attacked
    client = Client(model, domain, batch, mode, loss, defense)
    findings = []
    for place, capture in enumerate(captures):
        task = client.task(capture)
        chosen = attacks or attacks_on(task, batch)
        if not place:
            refuse_costs(task, chosen, batch, problems=(2 + draws) * len(captures) * (1 + same_records))
        possible = readings(task, capture, batch, labels)
        clear = [reading.observation for reading in possible]
        noise = [nulls.noise(clear[:1], seed=seed_of(seed, place, k))[0] for k in range(draws)]
        guesses = _best_guesses(task, chosen, [*clear, *noise], seed_of(seed, place))
        entries = sum(value.numel() for value in task.params.values())
        turned, told = [reading.turned for reading in possible], batch == 1 or clear[0].labels is not None
        compared = Compared(entries, turned, guesses[: len(clear)], guesses[len(clear) :], known, told)
        findings.append(compared.finding(_noted(task, capture)))
    how: Any = {"labels": labels, "known": known, "draws": draws, "seed": seed}
    found = with_rounds(client, captures, findings, **how)
    if not same_records:
        return found

    def attempt(task: Task, observations: Sequence[Observation], own: int) -> list[Guess]:
        return _best_guesses(task, chosen, observations, own)

    return [*found, *together(client, captures, findings, attempt, **how)]


def _noted(task: Task, capture: Capture) -> Capture:
    return replace(capture, notes=(*capture.notes, LEAKED)) if are_leaked(task) else capture


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
        guesses.append(Guess(explained(task, inputs, labels, observation), inputs, labels, name_of(attack)))
    return guesses
