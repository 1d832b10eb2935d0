"""Utility: accuracies over seeds, and a ratio of times."""

from __future__ import annotations

import pytest

from leakgauge.errors import DomainError
from leakgauge.testing import small_records, small_task
from leakgauge.training import accuracy, find_rate, train, utility


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


def test_a_defense_may_have_a_rate_of_its_own() -> None:
    task, records, test = small_task(), small_records(16), small_records(40, seed=5)
    defenses = {"none": "identity()", "same": "identity()"}
    found = utility(task, defenses, records, test, steps=5, seeds=(0,), batch=8, rates={"same": 0.5})
    last = train(task, records, steps=5, batch=8, learning_rate=0.5, keep=())[-1]
    assert found["same"].accuracies[0] == accuracy(task.at(last.state), test)
    with pytest.raises(DomainError, match="utility: there is no defense 'sam'"):
        utility(task, defenses, records, test, steps=1, rates={"sam": 0.5})


def test_the_rate_is_the_best_on_validation_records_and_the_search_goes_beyond_an_end() -> None:
    task, records, validation = small_task(), small_records(32), small_records(60, seed=5)
    found = find_rate(task, records, validation, steps=10, rates=(1e-6, 1e-5), batch=8)
    assert len(found.tried) > 2  # neither of these rates learns
    for rate, right in found.tried.items():
        last = train(task, records, steps=10, batch=8, learning_rate=rate, keep=())[-1]
        assert accuracy(task.at(last.state), validation) == right
    assert found.tried[found.best] == max(found.tried.values())
    with pytest.raises(DomainError, match="two rates or more"):
        find_rate(task, records, validation, steps=1, rates=(0.1,))
