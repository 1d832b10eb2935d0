"""Running one cell: observe, attack, score; tune; train. Only the scoring sees the records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from leakgauge import parse
from leakgauge.adversary import Adversary, Reconstruction, nulls
from leakgauge.audit.plan import Cell
from leakgauge.audit.prepare import Prepared, batches
from leakgauge.audit.scoring import cross, errors_by_feature, scores
from leakgauge.audit.store import Store
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import DomainMetrics
from leakgauge.observation import Observation, encoded, observe
from leakgauge.seeds import seed_of
from leakgauge.study.clients import CHUNK
from leakgauge.task import Task
from leakgauge.training import accuracy, train
from leakgauge.types import Domain, Progress, Records, Threat

Made = tuple[dict[str, Any], dict[str, Tensor]]


def run(cell: Cell, prepared: Prepared, store: Store, progress: Progress | None = None) -> Made:
    """What a cell found, as JSON and as tensors. Its parents are done."""
    work: dict[str, Callable[..., Made]] = {"train": _train, "tune": _tune, "attack": _attack}
    found, tensors = work[cell.kind](cell, prepared, store, progress)
    return {"cell": cell.id, "kind": cell.kind, "params": cell.params, **found}, tensors


def _train(cell: Cell, prepared: Prepared, store: Store, progress: Progress | None) -> Made:
    """The states of a training at the steps asked for, and their accuracy; step 0 is the model as given."""
    params = cell.params
    kept = train(
        prepared.task.protect(params["defense"]),
        prepared.train,
        steps=max(params["train_steps"]),
        batch=params["batch"],
        learning_rate=params["learning_rate"],
        momentum=params["momentum"],
        weight_decay=params["weight_decay"],
        seed=params["seed"],
        keep=params["train_steps"],
        progress=progress,
    )
    reached = {str(c.step): accuracy(prepared.task.protect(params["defense"]).at(c.state), prepared.test) for c in kept}
    states = {f"{c.step}/{name}": value.contiguous().clone() for c in kept for name, value in c.state.items()}
    return {"accuracy": reached}, states


def state(store: Store, identity: str, step: int) -> dict[str, Tensor]:
    """The state that a training left at a step."""
    kept = store.tensors(identity)
    return {name.partition("/")[2]: value for name, value in kept.items() if name.startswith(f"{step}/")}


def _at(cell: Cell, prepared: Prepared, store: Store) -> Task:
    """The task of a cell: at its checkpoint, under its defense."""
    task = prepared.task.protect(cell.params["defense"])
    return task.at(state(store, cell.parents[0], cell.params["step"])) if cell.params["step"] else task


def _tune(cell: Cell, prepared: Prepared, store: Store, progress: Progress | None) -> Made:
    """The mean score of every setting on records that are not reported; the first best is chosen."""
    params, task, private = cell.params, _at(cell, prepared, store), prepared.tuning
    seen = observe(task, private, threat=_threat(params, task), seed=seed_of(params["seed"], 3))
    means = []
    for text in params["settings"]:
        made, _ = _attacked(text, task, seen, params, seed_of(params["seed"], 4), progress)
        reached = _scored(made, private, prepared)[0]
        means.append(round(float(np.mean(reached[prepared.metrics.judge.meaning.name])), 6))
    return {"means": means, "chosen": params["settings"][int(np.argmax(means))]}, {}


def _attack(cell: Cell, prepared: Prepared, store: Store, progress: Progress | None) -> Made:
    """The scores of an adversary, per record, and the reconstructions behind them."""
    params, size = cell.params, prepared.task.recipe.batch
    start, stop = (edge * size for edge in params["records"])
    private, task = prepared.records[start:stop], _at(cell, prepared, store)
    text = params["adversary"] if isinstance(params["adversary"], str) else store.result(cell.parents[-1])["chosen"]
    seen = _seen(params, task, private, prepared.others[start:stop])
    made, assumed = _attacked(text, task, seen, params, seed_of(params["seed"], start, 1), progress)
    reached, inputs, labels = _scored(made, private, prepared)
    found = {
        "adversary": text,
        "metric": prepared.metrics.judge.meaning.name,
        "scores": reached,
        "errors": errors_by_feature(private.domain, inputs, private.inputs),
        "labels": [int(a == b) for a, b in zip(labels.tolist(), private.labels.tolist(), strict=True)],
        "status": list(made.status),
        "evaluations": made.evaluations,
        "assumed": assumed,
    }
    if params["arm"] == "another":
        found["cross"] = cross(prepared.metrics, made.inputs.detach().cpu(), batches(prepared.records.inputs, size))
    kept = {"inputs": _boxed(inputs, private.domain), "labels": labels.contiguous()}
    if task.protection.input:
        truth = encoded(task, private, seed=_clients(params["seed"], params["records"][0])).inputs
        early = made if made.encodings is None else replace(made, inputs=made.encodings)
        found["encoding"], shown, _ = _scored(early, replace(private, inputs=truth), prepared)
        kept |= {"encodings": _boxed(shown, private.domain), "encoded": _boxed(truth, private.domain)}
    return found, kept


def _boxed(inputs: Tensor, domain: Domain) -> Tensor:
    """As the report shows it: inside the box of its domain."""
    return (inputs if domain.box is None else inputs.clamp(*domain.box)).float().contiguous()


def blind(task: Task, records: Records, guess: Tensor, seed: int, measures: DomainMetrics) -> dict[str, list[float]]:
    """The scores of a guess without an update against the encodings of an audit, encoded by draws of its own."""
    size, found = task.recipe.batch * CHUNK, dict[str, list[float]]()
    for start in range(0, len(records), size):
        mine = records[start : start + size]
        truth = encoded(task, mine, seed=_clients(seed, start // task.recipe.batch)).inputs
        tried = encoded(task, replace(mine, inputs=guess[start : start + size]), seed=seed_of(seed, start, 5)).inputs
        for metric, values in scores(measures, tried, truth).items():
            found.setdefault(metric, []).extend(values)
    return found


def _seen(params: dict[str, Any], task: Task, private: Records, others: Records) -> list[Observation]:
    """What the adversary gets in this arm; the grants are the private records' in every arm."""
    source = others if params["arm"] == "another" else private
    seen = observe(task, source, threat=_threat(params, task), seed=_clients(params["seed"], params["records"][0]))
    if params["arm"] == "another" and seen[0].labels is not None:
        granted = batches(private.labels, task.recipe.batch)
        seen = [one.given(LABELS, labels) for one, labels in zip(seen, granted, strict=True)]
    return nulls.noise(seen, seed=seed_of(params["seed"], 2)) if params["arm"] == "noise" else seen


def _clients(seed: int, first: int) -> int:
    """The seed of everything random that the clients of a chunk do, from the number of its first update."""
    return seed_of(seed, first)


def _threat(params: dict[str, Any], task: Task) -> Threat:
    """The threat model of the audit, as far as this defense has what it grants."""
    return Threat(**{**params["threat"], "grants": frozenset(params["threat"]["grants"])}).about(task.nuisances)


def _attacked(
    text: str, task: Task, seen: list[Observation], params: dict[str, Any], seed: int, progress: Progress | None
) -> tuple[Reconstruction, list[str]]:
    """What the attack found, and what it had to assume."""
    attack = parse(text, "attack")
    if params["threat"]["labels"] == "joint" and isinstance(attack, Adversary):
        attack = replace(attack, labels="joint")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", AssumptionWarning)
        made: Reconstruction = attack(task, seen, seed=seed, progress=progress)
    for one in heard:
        if not issubclass(one.category, AssumptionWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return made, sorted({str(one.message) for one in heard if issubclass(one.category, AssumptionWarning)})


def _scored(
    made: Reconstruction, private: Records, prepared: Prepared
) -> tuple[dict[str, list[float]], Tensor, Tensor]:
    """Scores, reconstructions and labels in the order of the records: within a batch, one to one by least error."""
    inputs, labels, size = made.inputs.detach().cpu(), made.labels.cpu(), prepared.task.recipe.batch
    if size > 1:
        matching = prepared.metrics.match(inputs, batches(private.inputs, size))
        inputs, labels = matching.apply(inputs), matching.apply(labels)
    inputs, labels = inputs.flatten(0, 1), labels.flatten(0, 1)
    return scores(prepared.metrics, inputs, private.inputs), inputs, labels
