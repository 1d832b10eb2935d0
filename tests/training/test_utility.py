"""Utility: accuracies over seeds, and a ratio of times."""

from __future__ import annotations

import pytest

from leakgauge.errors import DomainError
from leakgauge.testing import small_records, small_task
from leakgauge.training import accuracy, train, utility


def test_accuracy_is_that_of_the_training_and_the_ratio_that_of_times() -> None:
    task, records, test = small_task(), small_records(16), small_records(40, seed=5)
    defenses = {"none": "identity()", "noise": "gaussian(std=10.0)", "mixed": "mixup(k=2)"}
    found = utility(task, defenses, records, test, steps=5, seeds=(0, 1), batch=8)
    assert list(found) == list(defenses)
    last = train(task, records, steps=5, seed=1, batch=8, keep=())[-1]
    assert found["none"].accuracies[1] == accuracy(task.at(last.state), test)
    for made in found.values():
        assert len(made.accuracies) == len(made.overheads) == 2
        assert made.overhead > 0
        assert made.interval().low <= made.accuracy <= made.interval().high


def test_nothing_to_train_is_refused() -> None:
    records = small_records(8)
    with pytest.raises(DomainError, match="utility: there is no seed to train with"):
        utility(small_task(), {}, records, records, steps=1, seeds=())
    with pytest.raises(DomainError, match="utility: steps must be an integer ≥ 1"):
        utility(small_task(), {}, records, records, steps=0)
