"""Running one cell: observe, attack, score; tune; train. Only the scoring sees the records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge import metrics, parse
from leakgauge.adversary import Adversary, Reconstruction, nulls
from leakgauge.audit.plan import Cell
from leakgauge.audit.prepare import Prepared, batches
from leakgauge.audit.store import Store
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning
from leakgauge.observation import Observation, encoded, observe
from leakgauge.seeds import seed_of
from leakgauge.study.checks import SMALLEST_SSIM
from leakgauge.study.clients import CHUNK
from leakgauge.task import Task
from leakgauge.training import accuracy, train
from leakgauge.types import Progress, Records, Threat

CAP = 999.0
"""JSON has no infinity: the PSNR of an identical image is written as this."""
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
        scores = _scored(made, private, task.recipe.batch)[0]
        means.append(round(float(np.mean(scores.get("ssim", scores["psnr"]))), 6))
    return {"means": means, "chosen": params["settings"][int(np.argmax(means))]}, {}


def _attack(cell: Cell, prepared: Prepared, store: Store, progress: Progress | None) -> Made:
    """The scores of an adversary, per record, and the reconstructions behind them."""
    params, size = cell.params, prepared.task.recipe.batch
    start, stop = (edge * size for edge in params["records"])
    private, task = prepared.records[start:stop], _at(cell, prepared, store)
    text = params["adversary"] if isinstance(params["adversary"], str) else store.result(cell.parents[-1])["chosen"]
    seen = _seen(params, task, private, prepared.others[start:stop])
    made, assumed = _attacked(text, task, seen, params, seed_of(params["seed"], start, 1), progress)
    scores, inputs, labels = _scored(made, private, size)
    found = {
        "adversary": text,
        "scores": scores,
        "labels": [int(a == b) for a, b in zip(labels.tolist(), private.labels.tolist(), strict=True)],
        "status": list(made.status),
        "evaluations": made.evaluations,
        "assumed": assumed,
    }
    if params["arm"] == "another":
        found["cross"] = _cross(made, prepared.records, size)
    kept = {"inputs": _picture(inputs), "labels": labels.contiguous()}
    if task.protection.input:
        truth = encoded(task, private, seed=_clients(params["seed"], params["records"][0])).inputs
        early = made if made.encodings is None else replace(made, inputs=made.encodings)
        found["encoding"], shown, _ = _scored(early, replace(private, inputs=truth), size)
        kept |= {"encodings": _picture(shown), "encoded": _picture(truth)}
    return found, kept


def _picture(inputs: Tensor) -> Tensor:
    return inputs.clamp(0, 1).float().contiguous()


def blind(task: Task, records: Records, guess: Tensor, seed: int) -> dict[str, list[float]]:
    """The scores of a guess without an update against the encodings of an audit, encoded by draws of its own."""
    size, found = task.recipe.batch * CHUNK, dict[str, list[float]]()
    for start in range(0, len(records), size):
        mine = records[start : start + size]
        truth = encoded(task, mine, seed=_clients(seed, start // task.recipe.batch)).inputs
        tried = encoded(task, replace(mine, inputs=guess[start : start + size]), seed=seed_of(seed, start, 5)).inputs
        for metric, values in scores(tried, truth).items():
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


def _scored(made: Reconstruction, private: Records, size: int) -> tuple[dict[str, list[float]], Tensor, Tensor]:
    """Scores, reconstructions and labels in the order of the records: within a batch, one to one by least error."""
    inputs, labels = made.inputs.detach().cpu(), made.labels.cpu()
    if size > 1:
        matching = metrics.match(inputs, batches(private.inputs, size))
        inputs, labels = matching.apply(inputs), matching.apply(labels)
    inputs, labels = inputs.flatten(0, 1), labels.flatten(0, 1)
    return scores(inputs, private.inputs), inputs, labels


def _cross(made: Reconstruction, records: Records, size: int) -> dict[str, list[list[float]]]:
    """Metric → unrelated update → its score against every record."""
    found: dict[str, list[list[float]]] = {}
    updates = len(records) // size
    for one in range(len(made.inputs)):
        every = replace(
            made,
            inputs=made.inputs[one].expand(updates, *made.inputs.shape[1:]),
            labels=made.labels[one].expand(updates, *made.labels.shape[1:]),
        )
        for metric, values in _scored(every, records, size)[0].items():
            found.setdefault(metric, []).append(values)
    return found


def scores(inputs: Tensor, truth: Tensor) -> dict[str, list[float]]:
    """Metric → per record."""
    found = {"psnr": metrics.psnr(inputs, truth)}
    if min(truth.shape[-2:]) >= SMALLEST_SSIM:
        found["ssim"] = metrics.ssim(inputs, truth)
    return {name: [round(min(float(v), CAP), 6) for v in torch.nan_to_num(values)] for name, values in found.items()}
