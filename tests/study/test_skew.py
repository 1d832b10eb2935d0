"""Skewed batches: the counts that are asked for, of records in one role only."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.study import SpecError
from leakgauge.study.skew import labels_of_batches, places_of
from leakgauge.types import Threat

X, Y = torch.rand(400, 1, 4, 4), torch.arange(400) % 5


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 5))


def skewed(counts: list[int], *, labels: str = "known", updates: int = 6) -> lg.Study:
    return lg.Study(
        model(),
        (X, Y),
        recipe=lg.Recipe(batch=8),
        threat=Threat(labels=labels),  # type: ignore[arg-type]
        updates=updates,
        class_counts=counts,
        adversaries={"two": ["adaptive(steps=1)", "adaptive(steps=2)"]},
        tuning=2,
    )


@pytest.mark.parametrize("labels", ["known", "inferred"])
def test_every_batch_has_the_counts_asked_for(labels: str) -> None:
    study = skewed([5, 2, 1], labels=labels)
    for records in (study.records, study.tuning, study.others):
        batches = records.labels.view(-1, 8)
        counts = [sorted(batch.bincount(minlength=5).tolist(), reverse=True) for batch in batches]
        assert counts == [[5, 2, 1, 0, 0]] * len(batches)
    assert {int(batch.mode().values) for batch in study.records.labels.view(-1, 8)} == set(range(5))
    own, other = study.records.labels, study.others.labels
    assert torch.equal(own, other) == (labels == "known")


def test_skewed_batches_need_no_tuning() -> None:
    one = {"one": "adaptive(steps=1)"}
    study = lg.Study(model(), (X, Y), recipe=lg.Recipe(batch=8), updates=6, class_counts=[5, 3], adversaries=one)
    assert len(study.tuning) == 0
    assert len(study.records) == 48


@pytest.mark.parametrize("complete", [True, False])
def test_an_attack_that_chooses_has_skewed_batches_to_choose_on(complete: bool) -> None:
    absent = int(labels_of_batches([5, 3], 5, 2, seed=0)[-1])  # a class that the second batch needs
    there = torch.ones(200, dtype=torch.bool) if complete else Y[200:] != absent
    study = lg.Study(
        model(),
        (X[:200], Y[:200]),
        reference=(X[200:][there], Y[200:][there]),
        recipe=lg.Recipe(batch=8),
        updates=6,
        class_counts=[5, 3],
        threat=Threat(labels="inferred"),
        adversaries={"one": "standard(work='quick')"},
    )
    assert len(study.tuning) == 8 * (8 if complete else 1)


def test_the_counts_are_in_the_text_of_the_study() -> None:
    assert skewed([5, 3]).spec.task.class_counts == [5, 3]


@pytest.mark.parametrize(
    ("counts", "updates", "message"),
    [
        ([5, 2], 5, r"task.class_counts: \[5, 2\] are 7 records, a batch has 8; let the counts add up to recipe.batch"),
        ([3, 1, 1, 1, 1, 1], 5, "task.class_counts: 6 classes, the records have 5; give at most 5 counts"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts: list[int], updates: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        skewed(counts, updates=updates)


def test_a_class_that_runs_out_is_named() -> None:
    labels = labels_of_batches([8], 5, 6, seed=0)
    with pytest.raises(lg.errors.DataError, match=r"16 records of class . are needed for these counts, there are 10"):
        places_of(labels, torch.arange(50) % 5, "task.data")
