"""What the adversary sees: observed updates, model state, and what the threat model grants; nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.defenses.stages import Encoded
from leakgauge.errors import ObservationError, nearest
from leakgauge.expr import REGISTRY
from leakgauge.seeds import seed_of
from leakgauge.task import ClientContext, Task
from leakgauge.types import Records, Side, Threat, Tree


@dataclass(frozen=True)
class Round:
    """One round: the observed update, the parameters it was computed at, the granted nuisances.

    ``side`` holds those of the update stage, named like the update; ``nuisances`` those of the stages before it, one
    row per example where they belong to examples (``indices``, ``coefficients``, ``noise``), else one number
    (``scale``).
    """

    observed: Tree
    params: Tree
    side: Side = field(default_factory=dict)
    nuisances: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """One client's rounds, and its labels if they are granted. ``batch`` is the number of examples per update.

    Labels are classes ``[B]``, or ``[B, classes]`` probabilities where the input stage mixes them.
    """

    rounds: tuple[Round, ...]
    batch: int
    labels: Tensor | None = None


def observe(
    task: Task, records: Records, *, threat: Threat | None = None, seed: int = 0, rounds: int | Sequence[Tree] = 1
) -> list[Observation]:
    """Let clients with ``task.recipe.batch`` records each compute, protect and send their updates.

    ``rounds`` says in how many rounds the same records take part, at the task's own parameters; or it lists the
    parameters of every round. Each release draws from its own generator, so that a client's update does not
    depend on the others. An input stage that mixes records mixes those given here: they are one client's set, and
    every observation is a batch of it; granted labels are then those of the first round.
    """
    threat = threat or Threat()
    size = task.recipe.batch
    if len(records) < size:
        raise ObservationError(
            f"{len(records)} records do not fill a batch of {size}",
            where="observe",
            remedy="give more records or a smaller batch",
        )
    _check_grants(task, threat)
    states = [task.params] * guards.count(rounds, "rounds", "observe") if isinstance(rounds, int) else list(rounds)
    if not states:
        raise ObservationError("there is no round", where="observe", remedy="say how many, or give their parameters")
    for part in task.protection.input:
        part.check(task.domain, len(records))
    shown = [encoded(task, records, seed=seed, round=r) for r in range(len(states))]
    seen = []
    for client in range(len(records) // size):
        batches = [every[client * size : (client + 1) * size] for every in shown]
        made = []
        for r, (batch, theta) in enumerate(zip(batches, states, strict=True)):
            sent = send(task, batch, theta, (seed, client, r))
            given = threat.given(sent.nuisances)
            if task.protection.input and threat.labels == "known":  # each round has encodings and labels of its own
                given["labels"] = batch.labels
            made.append(Round(sent.observed, theta, threat.granted(sent.side), given))
        seen.append(Observation(tuple(made), size, batches[0].labels if threat.labels == "known" else None))
    return seen


def _check_grants(task: Task, threat: Threat) -> None:
    """Refuse a name that is no nuisance of this protection or any part: most likely a slip of the pen."""
    parts = REGISTRY.get("defense", {}).values()
    known = {name for made in parts for name in getattr(made, "nuisances", ())} | set(task.protection.nuisances)
    for name in sorted(threat.grants - known):
        raise ObservationError(f"there is no nuisance {name!r} to grant", where="threat", remedy=nearest(name, known))


def encoded(task: Task, records: Records, rows: Tensor | None = None, *, seed: int = 0, round: int = 0) -> Encoded:
    """What the input stage makes of ``rows`` of the records (default: all) in one round of :func:`observe`.

    It is as private as the records: only the client, and metrics that score against encodings, may ask.
    """
    generator = torch.Generator().manual_seed(seed_of(seed, round, 1))
    return task.protection.encode(records, torch.arange(len(records)) if rows is None else rows, generator=generator)


@dataclass(frozen=True)
class Sent:
    """What leaves a client, and every nuisance behind it: of the update stage, and of the stages before."""

    observed: Tree
    side: Side
    nuisances: Tree


def send(task: Task, batch: Records | Encoded, params: Tree, key: tuple[int, ...]) -> Sent:
    """One update of one (encoded) batch through the model, training and update stage. ``key`` seeds every draw."""
    how = task.protection
    hidden = how.draw(task.working, len(batch), generator=_generator(*key, 2)) if how.model else {}
    update = how.perturb(task.update(batch, params, hidden), generator=_generator(*key, 3))
    context = ClientContext(task, batch, params, hidden)
    released = how.update.release(update.observed, context, generator=_generator(*key))
    side = batch.side if isinstance(batch, Encoded) else {}
    return Sent(released.observed, released.side, {**side, **hidden, **_numbers(update.side)})


def _numbers(side: Side) -> dict[str, Tensor]:
    """The nuisances of the training stage: one number for the whole update."""
    return {name: next(iter(value.values())) for name, value in side.items()}


def _generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*key))


def check(task: Task, observations: Sequence[Observation]) -> None:
    """Refuse what cannot be attacked, with all problems at once."""
    problems = [p for i, seen in enumerate(observations) for p in _problems(task, seen, f"observation {i}")]
    if not observations:
        problems = ["there is no observation to attack; give at least one"]
    if problems:
        more = f" (and {len(problems) - 5} more problems)" if len(problems) > 5 else ""
        raise ObservationError("; ".join(problems[:5]) + more)


def _problems(task: Task, seen: Observation, where: str) -> list[str]:
    found: list[str] = []
    if seen.batch < 1:
        found.append(f"{where}: a batch of {seen.batch}; an update comes from at least one example")
    if not seen.rounds:
        found.append(f"{where}: there is no round in it; give at least one observed update")
    labels = seen.labels
    if labels is not None and labels.is_floating_point() and labels.dim() == 2:
        if labels.shape != (seen.batch, task.domain.classes):
            found.append(
                f"{where}: soft labels of shape {tuple(labels.shape)}; give [{seen.batch}, {task.domain.classes}]"
            )
    elif labels is not None and (labels.dim() != 1 or labels.is_floating_point()):
        found.append(
            f"{where}: labels are {labels.dtype} of shape {tuple(labels.shape)}; give one class number per example"
        )
    elif labels is not None and len(labels) != seen.batch:
        found.append(f"{where}: {len(labels)} labels for a batch of {seen.batch}; give one per example")
    elif labels is not None and len(labels) and not (0 <= int(labels.min()) <= int(labels.max()) < task.domain.classes):
        found.append(
            f"{where}: labels span {int(labels.min())}..{int(labels.max())}; they must lie in "
            f"0..{task.domain.classes - 1}"
        )
    for r, made in enumerate(seen.rounds):
        found += _tree_problems(task.params, made.observed, f"{where}, round {r}")
        if {n: p.shape for n, p in made.params.items()} != {n: p.shape for n, p in task.params.items()}:
            found.append(f"{where}, round {r}: its parameters are not the model's; give those it was computed at")
        for key, granted in made.side.items():
            found += _side_problems(task.params, granted, f"{where}, round {r}: the granted {key!r}")
    return found


def _side_problems(params: Mapping[str, Tensor], granted: Tree, where: str) -> list[str]:
    """A nuisance has the names of the update, and shapes that meet its entries."""
    if set(granted) != set(params):
        return [f"{where} has other names than the update; give it for every trained parameter"]
    return [
        f"{where} has shape {tuple(value.shape)} for {name!r} of shape {tuple(params[name].shape)}; give one value, "
        "or one per entry"
        for name, value in granted.items()
        if not _meets(value.shape, params[name].shape)
    ]


def _meets(one: torch.Size, entries: torch.Size) -> bool:
    return len(one) == len(entries) and all(a in (1, b) for a, b in zip(one, entries, strict=True))


def _tree_problems(params: Mapping[str, Tensor], observed: Tree, where: str) -> list[str]:
    found = [
        f"{where}: parameter {name!r} is missing from the update; send every trained parameter"
        for name in params
        if name not in observed
    ]
    for name, value in observed.items():
        if name not in params:
            found.append(f"{where}: the model has no parameter {name!r}; {nearest(name, params)}")
        elif value.shape != params[name].shape:
            found.append(
                f"{where}: {name!r} has shape {tuple(value.shape)}, the model's has {tuple(params[name].shape)}; "
                "give the update of this model"
            )
        elif not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).sum())
            found.append(f"{where}: {name!r} has {bad} values that are NaN or infinite; drop that round or client")
    return found
