"""What the adversary sees: observed updates, model state, and what the threat grants; nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakgauge import batch_norm, guards
from leakgauge.client import BATCH_STATISTICS, LABELS, LEARNING_RATE
from leakgauge.defenses.stages import Encoded
from leakgauge.defenses.update.chain import misfits, released
from leakgauge.errors import ObservationError, nearest
from leakgauge.seeds import seed_of
from leakgauge.task import ClientContext, Task
from leakgauge.types import Nuisances, Records, Threat, Tree, Value, sized


@dataclass(frozen=True, repr=False)
class Round:
    """One round: the observed update, the state it was computed at, and the granted nuisances by address.

    ``granted`` holds named tensors for what belongs to the entries of the update (``random_prune.mask``), one row per
    example for what belongs to examples (``mixup.indices``, ``recipe.labels``), else one number or one per local step
    (``recipe.learning_rate``, ``lrp.scale``). ``buffers`` are state that is used but not trained, where it is not the
    task's own; ``clients`` is how many clients' updates it is the mean of, as the recipe says, too. ``sent`` are the
    running statistics that came back with the update, by their names in the state dict, where the client shares them.
    """

    observed: Tree
    params: Tree
    granted: Nuisances = field(default_factory=dict)
    buffers: Tree = field(default_factory=dict)
    clients: int = 1
    sent: Tree = field(default_factory=dict)

    def __repr__(self) -> str:
        known = ", ".join(self.granted) or "nothing"
        return f"Round(observed={sized(self.observed)}, granted: {known}, clients={self.clients})"


@dataclass(frozen=True, repr=False)
class Observation:
    """One client's rounds. ``batch`` is the number of examples behind an update; of a sum, those of all its clients."""

    rounds: tuple[Round, ...]
    batch: int

    @property
    def labels(self) -> Tensor | None:
        """The granted labels of the first round: classes ``[B]``, or ``[B, classes]`` where the input stage mixes."""
        labels = self.rounds[0].granted.get(LABELS) if self.rounds else None
        return labels if isinstance(labels, Tensor) else None

    def given(self, address: str, value: Value | None) -> Observation:
        """The same observation with one nuisance granted in every round at this value, or hidden (None)."""
        rounds = []
        for one in self.rounds:
            others = {known: held for known, held in one.granted.items() if known != address}
            rounds.append(replace(one, granted=others if value is None else {**others, address: value}))
        return replace(self, rounds=tuple(rounds))

    def __repr__(self) -> str:
        return f"Observation({len(self.rounds)} rounds, batch={self.batch}, {self.rounds[0] if self.rounds else ''})"


def observe(
    task: Task, records: Records, *, threat: Threat | None = None, seed: int = 0, rounds: int | Sequence[Tree] = 1
) -> list[Observation]:
    """Let clients with ``task.recipe.batch`` records each compute, protect and send their updates.

    ``rounds`` says in how many rounds the same records take part, at the task's own parameters; or it lists the
    parameters of every round. Each release draws from its own generator, so that a client's update does not
    depend on the others. An input stage that mixes records mixes those given here: they are one client's set, and
    every observation is a batch of it.
    """
    threat = Threat() if threat is None else threat
    _check_arguments(task, records, threat)
    size = task.recipe.batch
    if len(records) < size:
        raise ObservationError(
            f"{len(records)} records do not fill a batch of {size}",
            where="observe",
            remedy="give more records or a smaller batch",
        )
    knows = threat.mapping(task.nuisances)
    guards.seed(seed, "observe")
    states = _states(task, rounds)
    for part in task.protection.input:
        part.check(task.domain, len(records))
    encodings = [encoded(task, records, seed=seed, round=r) for r in range(len(states))]
    observations = []
    for client in range(len(records) // size):
        batches = [every[client * size : (client + 1) * size] for every in encodings]
        sent = [
            send(task, batch, theta, (seed, client, r), measure=BATCH_STATISTICS in task.nuisances)
            for r, (batch, theta) in enumerate(zip(batches, states, strict=True))
        ]
        observations.append(
            Observation(
                tuple(
                    Round(
                        one.observed,
                        theta,
                        {a: v for a, v in one.drawn.items() if knows[a] == "granted"},
                        clients=task.recipe.clients,
                        sent=one.buffers,
                    )
                    for one, theta in zip(sent, states, strict=True)
                ),
                size,
            )
        )
    return observations


def _states(task: Task, rounds: object) -> list[Tree]:
    """The parameters of every round: the task's own so many times, or those given, which must be of its model."""
    if not isinstance(rounds, Iterable) or isinstance(rounds, str | Tensor | Mapping):
        if isinstance(rounds, Tensor | Mapping):
            what, remedy = f"the rounds are a {type(rounds).__name__}", "give a list of parameters by name"
            raise ObservationError(what, where="observe", remedy=remedy)
        return [task.params] * guards.count(rounds, "rounds", "observe")  # type: ignore[arg-type]
    states = list(rounds)
    if not states:
        raise ObservationError("there is no round", where="observe", remedy="say how many, or give their parameters")
    for number, state in enumerate(states):
        if fault := _misfit(task.params, state):
            remedy = "give every trained parameter as task.params has them, and nothing else"
            raise ObservationError(f"the state of round {number} {fault}", where="observe", remedy=remedy)
    return states


def _misfit(params: Tree, state: object) -> str:
    """How a state differs from the parameters in its names and shapes; empty where it does not."""
    if not isinstance(state, Mapping):
        return f"is a {type(state).__name__}, not tensors by name"
    if lacking := [name for name in params if name not in state]:
        return f"lacks {len(lacking)} of {len(params)} parameters, {lacking[0]!r} first"
    if foreign := [name for name in state if name not in params]:
        return f"has {foreign[0]!r}, which is no parameter of the model ({nearest(str(foreign[0]), params)})"
    for name, value in state.items():
        if not isinstance(value, Tensor):
            return f"has a {type(value).__name__} as {name!r}"
        if value.shape != params[name].shape:
            return f"has {name!r} of shape {tuple(value.shape)}, the model's has {tuple(params[name].shape)}"
    return ""


def _check_arguments(task: object, records: object, threat: object) -> None:
    if not isinstance(task, Task):
        raise ObservationError(
            f"the first argument is a {type(task).__name__}", where="observe", remedy="give a Task, then Records"
        )
    if not isinstance(records, Records):
        raise ObservationError(
            f"the records are a {type(records).__name__}",
            where="observe",
            remedy="give Records(inputs, labels, task.domain)",
        )
    if not isinstance(threat, Threat):
        raise ObservationError(
            f"the threat is a {type(threat).__name__}",
            where="observe",
            remedy='give a Threat, as in Threat(labels="known")',
        )


def encoded(task: Task, records: Records, rows: Tensor | None = None, *, seed: int = 0, round: int = 0) -> Encoded:
    """What the input stage makes of ``rows`` of the records (default: all) in one round of :func:`observe`.

    It is as private as the records: only the client, and metrics that score against encodings, may ask.
    """
    generator = torch.Generator().manual_seed(seed_of(seed, round, 1))
    return task.protection.encode(records, torch.arange(len(records)) if rows is None else rows, generator=generator)


@dataclass(frozen=True, repr=False)
class Sent:
    """What leaves a client, and every nuisance behind it, by address; ``buffers`` where it shares those."""

    observed: Tree
    drawn: Nuisances
    buffers: Tree = field(default_factory=dict)


def send(
    task: Task,
    batch: Records | Encoded,
    params: Tree,
    key: tuple[int, ...],
    *,
    rate: float | None = None,
    measure: bool = False,
) -> Sent:
    """One update of one (encoded) batch through the model, training and update stage. ``key`` seeds every draw.

    ``rate`` is the learning rate of this update where it is not the recipe's: that of its round. ``measure`` adds the
    statistics of the batch to what was drawn, which takes a pass more for every local step.
    """
    drawn = task.draw(len(batch), key)
    if rate is not None:
        drawn[LEARNING_RATE] = torch.tensor(rate)
    update, statistics = (
        task.update_and_statistics(batch, params, drawn) if measure else (task.update(batch, params, drawn), {})
    )
    release = released(
        task.protection.chain, update, ClientContext(task, batch, params, drawn), generator=_generator(*key)
    )
    encoding = batch.drawn if isinstance(batch, Encoded) else {}
    recipe = task.drawn_by_recipe(batch.labels)
    if statistics:
        recipe[BATCH_STATISTICS] = statistics
    buffers = _shared_buffers(task, statistics) if statistics and task.recipe.shares_buffers else {}
    return Sent(release.observed, {**recipe, **encoding, **drawn, **release.drawn}, buffers)


def _shared_buffers(task: Task, statistics: Tree) -> dict[str, Tensor]:
    """The running statistics after the client's steps; of several clients their mean, which is what a sum lets out."""
    steps, recipe = task.recipe.local_steps, task.recipe
    each = [
        batch_norm.moved(
            task.working,
            {},
            {name: value[k * steps : (k + 1) * steps] for name, value in statistics.items()},
            recipe.examples,
        )
        for k in range(recipe.clients)
    ]
    return {name: torch.stack([own[name] for own in each]).mean(0) for name in each[0]}


def _generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*key))


def summed(observations: Sequence[Observation]) -> Observation:
    """What a secure sum shows of several clients: their added updates, and nothing of a single one.

    All must be of the same rounds, at the same parameters. Only labels stay granted, where every client's were.
    """
    if not observations or len({len(one.rounds) for one in observations}) != 1:
        raise ObservationError(
            f"{len(observations)} observations of different rounds have no sum",
            where="summed",
            remedy="give observations of several clients, all of the same rounds",
        )
    rounds = []
    for together in zip(*(one.rounds for one in observations), strict=True):
        labels = [each.granted.get(LABELS) for each in together]
        told = {LABELS: torch.cat(labels)} if all(isinstance(each, Tensor) for each in labels) else {}
        observed = {n: torch.stack([each.observed[n] for each in together]).sum(0) for n in together[0].observed}
        clients = sum(each.clients for each in together)
        rounds.append(replace(together[0], observed=observed, granted=told, clients=clients))
    return Observation(tuple(rounds), sum(one.batch for one in observations))


def check(task: Task, observations: Sequence[Observation], *, sums: bool = False) -> None:
    """Refuse what cannot be attacked, with all problems at once; sums of clients, unless the attack takes ``sums``."""
    _check_types(task, observations)
    problems = [
        p for i, observation in enumerate(observations) for p in _problems(task, observation, f"observation {i}")
    ]
    if not sums:
        problems += [
            p for i, observation in enumerate(observations) for p in _sums(task, observation, f"observation {i}")
        ]
    if problems:
        more = f" (and {len(problems) - 5} more problems)" if len(problems) > 5 else ""
        raise ObservationError("; ".join(problems[:5]) + more)


def _check_types(task: object, observations: object) -> None:
    """Arguments that are something else, each in one sentence."""
    what, remedy = "", "call it with a task and what observe(task, records) returns"
    if not isinstance(task, Task):
        what = f"the first argument is a {type(task).__name__}"
    elif isinstance(observations, Observation):
        what, remedy = "there is one observation and no list", "give [observation]"
    elif isinstance(observations, Records):
        what = "an attack gets observations, never records"
    elif not isinstance(observations, Sequence) or not all(isinstance(one, Observation) for one in observations):
        what = f"the observations are a {type(observations).__name__} that does not hold observations"
    elif not observations:
        what, remedy = "there is no observation to attack", "give at least one"
    elif task.domain.kind == "tokens":
        what, remedy = "tokens are not attacked", "ask preflight(task) which tokens an update names"
    if what:
        raise ObservationError(what, where="attack", remedy=remedy)


def _problems(task: Task, observation: Observation, where: str) -> list[str]:
    problems: list[str] = []
    if observation.batch < 1:
        problems.append(f"{where}: a batch of {observation.batch}; an update comes from at least one example")
    if not observation.rounds:
        problems.append(f"{where}: there is no round in it; give at least one observed update")
    labels = observation.labels
    if labels is not None and labels.is_floating_point() and labels.dim() == 2:
        if labels.shape != (observation.batch, task.domain.classes):
            problems.append(
                f"{where}: soft labels of shape {tuple(labels.shape)}; "
                f"give [{observation.batch}, {task.domain.classes}]"
            )
    elif labels is not None and (labels.dim() != 1 or labels.is_floating_point()):
        problems.append(
            f"{where}: labels are {labels.dtype} of shape {tuple(labels.shape)}; give one class number per example"
        )
    elif labels is not None and len(labels) != observation.batch:
        problems.append(f"{where}: {len(labels)} labels for a batch of {observation.batch}; give one per example")
    elif labels is not None and len(labels) and not (0 <= int(labels.min()) <= int(labels.max()) < task.domain.classes):
        problems.append(
            f"{where}: labels span {int(labels.min())}..{int(labels.max())}; they must lie in "
            f"0..{task.domain.classes - 1}"
        )
    for r, each in enumerate(observation.rounds):
        problems += _tree_problems(task.params, each.observed, f"{where}, round {r}")
        if {n: p.shape for n, p in each.params.items()} != {n: p.shape for n, p in task.params.items()}:
            problems.append(f"{where}, round {r}: its parameters are not the model's; give those it was computed at")
        problems += _granted_problems(task, each, observation.batch, f"{where}, round {r}")
    return problems


def _granted_problems(task: Task, one: Round, batch: int, where: str) -> list[str]:
    """Every grant has an address of this task; one of the update stage, the names and shapes of the update."""
    chained = {n.name for n in task.protection.chain.nuisances}
    problems = [
        f"{where}: nothing has the granted nuisance {address!r}; {nearest(address, task.nuisances)}"
        for address in one.granted
        if address not in task.nuisances
    ]
    for address, value in one.granted.items():
        place = f"{where}: the granted {address!r}"
        parts = list(value.values()) if isinstance(value, Mapping) else [value]
        if strange := [one for one in parts if not isinstance(one, Tensor)]:
            problems.append(f"{place} holds a {type(strange[0]).__name__}; give a tensor, as in torch.tensor(…)")
        elif address in chained:
            problems += _tree_problems_of_grant(task.params, value, place)
        elif address in task.nuisances and address.rpartition(".")[0] not in task.protection.stage("input"):
            problems += _shape_problems(task, address, value, batch, place)
    return problems


def _sums(task: Task, observation: Observation, where: str) -> list[str]:
    return [
        f"{where}, round {r}: it sums {one.clients} clients, which only exact recovery takes apart; give single updates"
        f", or the mean of clients={one.clients} in the recipe"
        for r, one in enumerate(observation.rounds)
        if one.clients != task.recipe.clients
    ]


def _shape_problems(task: Task, address: str, value: Value, batch: int, where: str) -> list[str]:
    """A nuisance of the recipe, the model or the training has the shape that the client draws it in, and is finite."""
    if address == LABELS:
        return [] if isinstance(value, Tensor) else [f"{where} is no tensor; give one class per example"]
    shapes = task.shapes(address, batch)
    named = {"": value} if isinstance(value, Tensor) else dict(value)
    if set(named) != set(shapes):
        return [f"{where} has the wrong form; give {'one tensor' if '' in shapes else ', '.join(shapes)}"]
    wrong = [
        f"{where} has shape {tuple(tensor.shape)}; give {shapes[name]}"
        for name, tensor in named.items()
        if tuple(tensor.shape) != shapes[name]
    ]
    return wrong or [
        f"{where} holds NaN or infinite values; give finite ones"
        for tensor in named.values()
        if not bool(tensor.isfinite().all())
    ]


def _tree_problems_of_grant(params: Mapping[str, Tensor], granted: Value, where: str) -> list[str]:
    """A nuisance of the update stage has the names of the update, and shapes that meet its entries."""
    return [f"{where} {what}; {remedy}" for what, remedy in misfits(granted, params)]


def _tree_problems(params: Mapping[str, Tensor], observed: Tree, where: str) -> list[str]:
    problems = [
        f"{where}: parameter {name!r} is missing from the update; send every trained parameter"
        for name in params
        if name not in observed
    ]
    foreign = [name for name in observed if name not in params]
    problems += [f"{where}: the model has no parameter {name!r}; {nearest(name, params)}" for name in foreign[:5]]
    if len(foreign) > 5:
        problems.append(f"{where}: the model lacks {len(foreign) - 5} more of its parameters; give its own update")
    for name, value in observed.items():
        if name not in params:
            continue
        if value.shape != params[name].shape:
            problems.append(
                f"{where}: {name!r} has shape {tuple(value.shape)}, the model's has {tuple(params[name].shape)}; "
                "give the update of this model"
            )
        elif not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).sum())
            problems.append(f"{where}: {name!r} has {bad} values that are NaN or infinite; drop that round or client")
    return problems
