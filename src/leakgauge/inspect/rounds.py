"""Several captured rounds of one client, looked at together: noise that repeats is cancelled by their difference, and
rounds of the same records are one observation, whose likelihoods add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from leakgauge.adversary import nulls
from leakgauge.adversary.rates import repeated_rates
from leakgauge.adversary.repeats import Repeat
from leakgauge.attacks import differences
from leakgauge.client import LABELS
from leakgauge.inspect.captures import Capture
from leakgauge.inspect.client import Client
from leakgauge.inspect.findings import Compared, Finding, Guess
from leakgauge.inspect.readings import read
from leakgauge.observation import Observation, Round
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Nuisances, Records

CONSEQUENCES = {
    "noise": "their difference is free of it",
    "mask": "it hides the same entries each time",
    "rates": "the lengths of the updates can be compared",
}
ADVERSARY = "the difference of rounds whose noise repeats"
SAME = "it is assumed that the client had the same records in all these rounds"

Attempt = Callable[[Task, Sequence[Observation], int], list[Guess]]
"""The best guess for each of several observations, by a seed."""


def together(
    client: Client,
    captures: Sequence[Capture],
    findings: Sequence[Finding],
    attempt: Attempt,
    *,
    labels: Tensor | None,
    known: Records | None,
    draws: int,
    seed: int,
) -> list[Finding]:
    """What all rounds of each client give, if it had the same records in them; the sign is that of the first alone."""
    granted: Nuisances = {} if labels is None else {LABELS: labels}
    made = []
    for name, places in _clients(captures).items():
        several, first = [captures[place] for place in places], findings[places[0]]
        task = client.task(several[0])
        signs = (1, -1) if first.other is not None else (-1 if first.turned else 1,)
        clear = [_joined(client, several, sign, granted) for sign in signs]
        own = seed_of(seed, places[0], draws, 1)
        noise = [nulls.noise(clear[:1], seed=seed_of(own, k))[0] for k in range(draws)]
        guesses = attempt(task, [*clear, *noise], own)
        entries = sum(value.numel() for value in task.params.values())
        told, turned = client.batch == 1 or labels is not None, [sign < 0 for sign in signs]
        compared = Compared(entries, turned, guesses[: len(signs)], guesses[len(signs) :], known, told)
        title = f"client {name}, {len(several)} rounds"
        made.append(compared.finding(replace(several[0], name=title, notes=(*several[0].notes, SAME))))
    return made


def _joined(client: Client, captures: Sequence[Capture], sign: int, granted: Nuisances) -> Observation:
    """The rounds of one client as one observation, each at the weights and running statistics that it began with."""
    rounds = []
    for one in captures:
        task = client.task(one)
        (own,) = read(task, one, sign, client.batch, granted).rounds
        rounds.append(replace(own, buffers={**task.buffers, **own.buffers}))
    return Observation(tuple(rounds), client.batch)


def with_rounds(
    client: Client,
    captures: Sequence[Capture],
    findings: Sequence[Finding],
    *,
    labels: Tensor | None,
    known: Records | None,
    draws: int,
    seed: int,
) -> list[Finding]:
    """The findings, with a note where rounds of one client share noise, mask or rates, and what that gives."""
    noted, further = list(findings), []
    for name, places in _clients(captures).items():
        several = [captures[place] for place in places]
        task = client.task(several[0])
        observation = _observation(task, several, client.batch, labels)
        repeats = differences.repeated(task, observation)
        guess = findings[places[0]]
        repeats += repeated_rates(task, observation, guess.inputs, guess.labels)[0]
        for repeat in repeats:
            for place in (places[repeat.first], places[repeat.second]):
                noted[place] = replace(noted[place], notes=(*noted[place].notes, _note(several, repeat)))
        pair = next((repeat for repeat in repeats if repeat.what == "noise"), None)
        free = differences.differences(task, observation, repeats) if pair else None
        if pair and free:
            capture = replace(several[pair.first], name=f"client {name}, difference", notes=(_note(several, pair),))
            compared = _compared(task, *free, capture, known, draws, seed_of(seed, places[0], draws))
            further.append(compared.finding(capture))
    return [*noted, *further]


def _clients(captures: Sequence[Capture]) -> dict[str, list[int]]:
    """The places of every client's captures, of those with at least two rounds of one kind."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, capture in enumerate(captures):
        if capture.client is not None:
            places.setdefault((capture.client, capture.kind), []).append(place)
    return {client: at for (client, _), at in places.items() if len(at) > 1}


def _observation(task: Task, captures: Sequence[Capture], batch: int, labels: Tensor | None) -> Observation:
    """The rounds in the scale they were sent in, which noise shares and gradients do not."""
    granted: Nuisances = {} if labels is None else {LABELS: labels}
    sign = -1 if task.recipe.shares == "change" else 1
    rounds = [
        Round(
            {name: sign * one.size * value for name, value in one.gradient.items()},
            {name: one.before.tensors[name].to(value) for name, value in task.params.items()},
            granted,
            sent=one.sent,
        )
        for one in captures
    ]
    return Observation(tuple(rounds), batch)


def _note(captures: Sequence[Capture], repeat: Repeat) -> str:
    first, second = (captures[place].round or str(place + 1) for place in (repeat.first, repeat.second))
    return f"{repeat.described(first, second)}: {CONSEQUENCES[repeat.what]}"


def _compared(
    task: Task, own: Task, difference: Observation, capture: Capture, known: Records | None, draws: int, seed: int
) -> Compared:
    """The attack on the difference in both signs, unless the file states it, and on noise in its place."""
    signs = (1,) if capture.declared else (1, -1)
    clear = [_turned(difference, sign) for sign in signs]
    noise = [nulls.noise([difference], seed=seed_of(seed, k))[0] for k in range(draws)]
    guesses = []
    for observation in (*clear, *noise):
        reconstruction, share = differences.attacked(task, own, observation, seed=seed)
        inputs = reconstruction.inputs[0].detach().float()
        if task.domain.box is not None:
            inputs = inputs.nan_to_num().clamp(*task.domain.box)
        guesses.append(Guess(share, inputs, reconstruction.labels[0], ADVERSARY))
    entries = sum(value.numel() for value in task.params.values())
    told, turned = difference.batch == 1 or difference.labels is not None, [sign < 0 for sign in signs]
    return Compared(entries, turned, guesses[: len(signs)], guesses[len(signs) :], known, told)


def _turned(observation: Observation, sign: int) -> Observation:
    rounds = [replace(r, observed={n: sign * v for n, v in r.observed.items()}) for r in observation.rounds]
    return replace(observation, rounds=tuple(rounds))
