"""Scores of reconstructions, by the metrics of the domain: only here are they compared with the records."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.audit.attacking import batches, clients_seed
from leakgauge.meaning import storable
from leakgauge.metrics import DomainMetrics, feature_errors
from leakgauge.observation import encoded
from leakgauge.seeds import seed_of
from leakgauge.study.clients import clients
from leakgauge.study.study import Study
from leakgauge.task import Task
from leakgauge.types import Domain, Records

Scores = dict[str, list[float]]
"""Metric → one score per record."""
CROSS = 50
"""Updates whose records every unrelated update is scored against: enough for a rate, and the work stays linear."""


def scores(measures: DomainMetrics, inputs: Tensor, truth: Tensor) -> Scores:
    """Metric → one score per record."""
    return {name: list(map(storable, by.tolist())) for name, by in measures.scores(inputs, truth).items()}


def cross(measures: DomainMetrics, inputs: Tensor, truth: Tensor) -> dict[str, list[list[float]]]:
    """Metric → unrelated update → its score against every record; batches ``[J, B, …]`` and ``[U, B, …]``."""
    table = measures.cross(inputs, truth)
    return {name: [list(map(storable, row)) for row in by.tolist()] for name, by in table.items()}


def errors_by_feature(domain: Domain, inputs: Tensor, truth: Tensor) -> list[list[float]]:
    """Per record the error of each feature of a table, see :func:`~leakgauge.metrics.feature_errors`; else nothing."""
    if domain.kind != "table":
        return []
    errors = feature_errors(inputs, truth, domain.features)
    return [list(map(storable, row)) for row in errors.tolist()]


def scored(study: Study, reconstruction: Reconstruction, private: Records) -> tuple[Scores, Tensor, Tensor]:
    """Scores, reconstructions and labels in the order of the records: within a batch, one to one by least error."""
    inputs, labels = reconstruction.inputs.detach().cpu(), reconstruction.labels.cpu()
    size = study.task.recipe.batch
    if size > 1:
        matching = study.metrics.match(inputs, batches(private.inputs, size))
        inputs, labels = matching.apply(inputs), matching.apply(labels)
    inputs, labels = inputs.flatten(0, 1), labels.flatten(0, 1)
    return scores(study.metrics, inputs, private.inputs), inputs, labels


def blind(study: Study, task: Task) -> Scores:
    """The scores of a guess without an update against the encodings of an audit, encoded by draws of its own."""
    size, guess, by = task.recipe.batch, study.guess(), Scores()
    for client in clients(study.spec):
        start, stop = client.start * size, client.stop * size
        mine = study.records[start:stop]
        truth = encoded(task, mine, seed=clients_seed(study.seed, client.start)).inputs
        guessed = replace(mine, inputs=guess[start:stop])
        tried = encoded(task, guessed, seed=seed_of(study.seed, start, 5)).inputs
        for metric, values in scores(study.metrics, tried, truth).items():
            by.setdefault(metric, []).extend(values)
    return by
