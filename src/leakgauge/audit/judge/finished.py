"""Finished cells, by what they are about: the only place of the judge that knows how cells are planned and stored."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from leakgauge.adversary import models_defense
from leakgauge.audit.cells import ARMS, AttackCell, Cell
from leakgauge.audit.judge.arms import Arms, ByMetric, Encodings
from leakgauge.audit.judge.single import Nearness, Places
from leakgauge.audit.plan import Plan, seeds
from leakgauge.audit.scoring import CROSS, blind, scores
from leakgauge.audit.store import Store
from leakgauge.defenses import Protection
from leakgauge.study.study import Study

Found = dict[str, Any]
"""What one cell says."""


@dataclass(frozen=True, eq=False)
class Where:
    """What was attacked: a defense at a step of training, of a model that was trained with ``trained``."""

    step: int
    defense: Protection
    trained: Protection

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))  # a part of somebody's own need not be hashable; its text always is


@dataclass(frozen=True)
class Finished:
    """The cells of a run, and the faults of those that failed."""

    study: Study
    plan: Plan
    store: Store
    faults: Mapping[str, str]
    borrowed: dict[tuple[Where, str], tuple[Where, str]] = field(default_factory=dict)
    """Adversaries that attack a defense after adding a stronger one: where their cells are, and under which name."""
    _places: dict[tuple[Where, str, str], list[tuple[int, str]]] = field(default_factory=dict, repr=False)
    """The first record of every cell of an arm, in order; each record of a result asks."""

    def cells(self, where: Where, adversary: str, arm: str = "real", without: str | None = None) -> list[Cell]:
        """The cells of an arm, in the order of the records."""
        where, adversary = self.borrowed.get((where, adversary), (where, adversary))
        return self.plan.of(
            step=where.step,
            defense=where.defense,
            trained=where.trained if where.step else None,
            adversary=self.study.adversaries[adversary],
            arm=arm,
            without=without,
        )

    def read(self, where: Where, adversary: str, arm: str = "real", without: str | None = None) -> list[Found] | None:
        """What those cells say; None where one is missing, or none was planned."""
        cells = self.cells(where, adversary, arm, without)
        finished = bool(cells) and all(self.store.done(cell.id) for cell in cells)
        return [self.store.result(cell.id) for cell in cells] if finished else None

    def place(self, where: Where, adversary: str, arm: str, record: int) -> tuple[str, int]:
        """The cell that holds a record's reconstruction, and its row there."""
        key = (where, adversary, arm)
        if key not in self._places:
            cells = [cell for cell in self.cells(where, adversary, arm) if isinstance(cell, AttackCell)]
            self._places[key] = sorted((cell.updates[0] * self.study.task.recipe.batch, cell.id) for cell in cells)
        places = self._places[key]
        start, identity = places[bisect_right(places, record, key=lambda place: place[0]) - 1]
        return identity, record - start

    def reasons(self, where: Where) -> list[str]:
        """Why a defense has no verdict, each reason once."""
        cells = self.plan.of(step=where.step, defense=where.defense)
        faults = [self.faults[cell.id] for cell in cells if cell.id in self.faults]
        return list(dict.fromkeys(faults)) or ["one of the positive control"]

    def accuracies(self, where: Where) -> list[float]:
        """Test accuracy of the model of every seed that was trained to this step; of those trainings that ended."""
        wanted: dict[str, Any] = {"defense": where.trained, "train_steps": self.study.checkpoints.train_steps}
        cells = [cell for seed in seeds(self.study) for cell in self.plan.of(**wanted, seed=seed)]
        done = [self.store.result(cell.id) for cell in cells if self.store.done(cell.id)]
        return [round(float(result["accuracy"][str(where.step)]), 6) for result in done]


@dataclass(frozen=True)
class Baseline:
    """What every defense is compared with: the score of the guess without an update, which updates are alike, and which
    records are peers."""

    prior: ByMetric
    alike: npt.NDArray[np.bool_]
    groups: Places

    @classmethod
    def of(cls, study: Study) -> Baseline:
        guessed = scores(study.metrics, study.guess(), study.records.inputs)
        return cls({metric: np.asarray(by) for metric, by in guessed.items()}, alike(study), study.peer_groups.numpy())


def alike(study: Study) -> npt.NDArray[np.bool_]:
    """``[J, m]``: whether the update that stood in for j came with the grants of record i.

    Where labels are granted, an update of another class is no null for this one. Batches are told apart by their
    sorted labels; where hardly any two agree, every update counts, for else there is nothing to compare with.
    """
    size = study.task.recipe.batch
    labels = study.records.labels.unflatten(0, (-1, size)).sort(1).values.numpy()
    _, kind, many = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    kind = kind.reshape(-1)
    same: npt.NDArray[np.bool_] = kind[:, None] == kind[None, :CROSS]
    if not study.labels_granted or np.square(many).sum() < 2 * len(labels):  # as many pairs agree
        same = np.ones_like(same)
    return same.repeat(size, 1)


def arms(finished: Finished, where: Where, baseline: Baseline) -> Arms | None:
    """The scores of a defense in every arm; None where a cell is missing."""
    by: dict[str, dict[str, ByMetric]] = {arm: {} for arm in ARMS}
    cross, nearness, labels = dict[str, ByMetric](), dict[str, Nearness](), dict[str, int]()
    for arm in ARMS:
        for name in finished.study.adversaries:
            cells = finished.read(where, name, arm)
            if cells is None:
                return None
            by[arm][name] = _joined(cells, "scores")
            if arm == "another":
                cross[name] = _joined(cells, "cross")
            if arm == "real":
                nearness[name] = Nearness.of([cell["nearness"] for cell in cells])
                labels[name] = sum(sum(cell["labels"]) for cell in cells)
    batch = finished.study.task.recipe.batch
    ignored, lower = unmodelled(finished, where), finished.study.metrics.lower
    return Arms(by, cross, baseline.alike, baseline.prior, batch, nearness, baseline.groups, labels, ignored, lower)


def unmodelled(finished: Finished, where: Where) -> dict[str, str]:
    """The adversaries that do not model a defense, and why: they ignore defenses, or could not simulate a part."""
    if where.defense == Protection():
        return {}
    reasons = {}
    for name, settings in finished.study.adversaries.items():
        sentences = [each for cell in finished.read(where, name) or () for each in cell.get("unmodelled", ())]
        if sentences:
            reasons[name] = sentences[0]
        elif all(models_defense(attack) == "none" for attack in settings):
            reasons[name] = f"{name} ignores defenses"
    return reasons


def encodings(finished: Finished, where: Where, baseline: Baseline) -> Encodings | None:
    """The scores against what the client trained on; None where that is the records, or where a cell is missing."""
    parts, by = where.defense.input, dict[str, dict[str, ByMetric]]()
    for arm in ARMS if parts else ():
        for name in finished.study.adversaries:
            cells = finished.read(where, name, arm)
            if cells is None:
                return None
            by.setdefault(arm, {})[name] = _joined(cells, "encoding")
    if not by:
        return None
    guessed = blind(finished.study, finished.study.under(where.defense))
    prior = {metric: np.asarray(values) for metric, values in guessed.items()}
    batch, lower = finished.study.task.recipe.batch, finished.study.metrics.lower
    own = Arms(by, {}, baseline.alike, prior, batch, lower=lower)
    return Encodings(own, all(part.lone for part in parts))


def _joined(cells: list[Found], key: str) -> ByMetric:
    """Metric → the scores of all cells, in the order of the records."""
    return {metric: np.concatenate([cell[key][metric] for cell in cells]) for metric in cells[0][key]}
