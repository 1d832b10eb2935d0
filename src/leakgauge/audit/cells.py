"""Running one cell: observe, attack, score. Only the scoring sees the records."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leakgauge import metrics, parse
from leakgauge.adversary import nulls
from leakgauge.audit.plan import Cell
from leakgauge.audit.prepare import Prepared, batches
from leakgauge.observation import Observation, mixed, observe
from leakgauge.types import Records, Threat

CAP = 999.0
"""JSON has no infinity: the PSNR of an identical image is written as this."""


def run(cell: Cell, prepared: Prepared) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The scores of a cell, per record, and the reconstructions behind them."""
    params, size = cell.params, prepared.task.recipe.batch
    start, stop = params["records"]
    private = prepared.records[start * size : stop * size]
    task = prepared.task.protect(params["defense"])
    given = params["threat"]
    threat = Threat(grants=frozenset(given["grants"]), labels=given["labels"])
    seen = _arm(params["arm"], observe(task, private, threat=threat, seed=mixed(params["seed"], start)), params["seed"])
    attack = parse(params["adversary"], "attack")
    made = attack(task, seen, seed=mixed(params["seed"], start, 1))
    inputs, labels = _matched(made.inputs.detach().cpu(), made.labels.cpu(), private, size)
    scores = _scores(inputs, private.inputs)
    result = {
        "cell": cell.id,
        "params": params,
        "scores": scores,
        "labels": [int(a == b) for a, b in zip(labels.tolist(), private.labels.tolist(), strict=True)],
        "status": list(made.status),
        "evaluations": made.evaluations,
    }
    return result, {"inputs": inputs.clamp(0, 1).float().contiguous(), "labels": labels.contiguous()}


def _arm(arm: str, seen: list[Observation], seed: int) -> list[Observation]:
    if arm == "noise":
        return nulls.noise(seen, seed=mixed(seed, 2))
    return nulls.another(seen) if arm == "another" else seen


def _matched(inputs: Tensor, labels: Tensor, private: Records, size: int) -> tuple[Tensor, Tensor]:
    """Reconstructions in the order of the records: within a batch, one to one by least error."""
    if size > 1:
        matching = metrics.match(inputs, batches(private.inputs, size))
        inputs, labels = matching.apply(inputs), matching.apply(labels)
    return inputs.flatten(0, 1), labels.flatten(0, 1)


def _scores(inputs: Tensor, truth: Tensor) -> dict[str, list[float]]:
    found = {"psnr": metrics.psnr(inputs, truth)}
    if min(truth.shape[-2:]) >= 11:
        found["ssim"] = metrics.ssim(inputs, truth)
    return {name: [round(min(float(v), CAP), 6) for v in torch.nan_to_num(values)] for name, values in found.items()}
