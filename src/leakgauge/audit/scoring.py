"""Scores of reconstructions against records: the only place of an audit that compares with the truth."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from leakgauge import metrics
from leakgauge.adversary import Reconstruction
from leakgauge.audit.attacking import batches, clients_seed
from leakgauge.observation import encoded
from leakgauge.seeds import seed_of
from leakgauge.study.checks import SMALLEST_SSIM
from leakgauge.study.clients import clients
from leakgauge.study.study import Study
from leakgauge.task import Task
from leakgauge.types import Records

CAP = 999.0
"""JSON has no infinity: the PSNR of an identical image is written as this."""
Scores = dict[str, list[float]]
"""Metric → per record."""


def scores(inputs: Tensor, truth: Tensor) -> Scores:
    """Metric → per record."""
    by = {"psnr": metrics.psnr(inputs, truth)}
    if min(truth.shape[-2:]) >= SMALLEST_SSIM:
        by["ssim"] = metrics.ssim(inputs, truth)
    return {name: [round(min(float(v), CAP), 6) for v in torch.nan_to_num(values)] for name, values in by.items()}


def scored(reconstruction: Reconstruction, private: Records, size: int) -> tuple[Scores, Tensor, Tensor]:
    """Scores, reconstructions and labels in the order of the records: within a batch, one to one by least error."""
    inputs, labels = reconstruction.inputs.detach().cpu(), reconstruction.labels.cpu()
    if size > 1:
        matching = metrics.match(inputs, batches(private.inputs, size))
        inputs, labels = matching.apply(inputs), matching.apply(labels)
    inputs, labels = inputs.flatten(0, 1), labels.flatten(0, 1)
    return scores(inputs, private.inputs), inputs, labels


def cross(reconstruction: Reconstruction, records: Records, size: int) -> dict[str, list[list[float]]]:
    """Metric → unrelated update → its score against every record."""
    by: dict[str, list[list[float]]] = {}
    updates = len(records) // size
    for one in range(len(reconstruction.inputs)):
        every = replace(
            reconstruction,
            inputs=reconstruction.inputs[one].expand(updates, *reconstruction.inputs.shape[1:]),
            labels=reconstruction.labels[one].expand(updates, *reconstruction.labels.shape[1:]),
        )
        for metric, values in scored(every, records, size)[0].items():
            by.setdefault(metric, []).append(values)
    return by


def blind(task: Task, study: Study) -> Scores:
    """The scores of a guess without an update against the encodings of an audit, encoded by draws of its own."""
    size, guess, by = task.recipe.batch, study.guess(), Scores()
    for client in clients(study.spec):
        start, stop = client.start * size, client.stop * size
        mine = study.records[start:stop]
        truth = encoded(task, mine, seed=clients_seed(study.seed, client.start)).inputs
        guessed = replace(mine, inputs=guess[start:stop])
        tried = encoded(task, guessed, seed=seed_of(study.seed, start, 5)).inputs
        for metric, values in scores(tried, truth).items():
            by.setdefault(metric, []).extend(values)
    return by
