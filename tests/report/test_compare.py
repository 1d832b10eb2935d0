"""Comparing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leakgauge.intervals import difference_interval, mean_interval
from leakgauge.report import Comparison, compare, read
from tests.report.samples import make


def between(tmp_path: Path, before: dict[str, str], after: dict[str, str], **changes: object) -> Comparison:
    return compare(read(make(tmp_path / "a", before)), read(make(tmp_path / "b", after, **changes)))


def test_verdicts_that_changed_are_said_in_words(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        {
            "worse": "no evidence",
            "better": "exact",
            "lost": "exact",
            "won": "too weak",
            "same": "exact",
            "gone": "exact",
        },
        {
            "worse": "detectable",
            "better": "detectable",
            "lost": "too weak",
            "won": "exact",
            "same": "exact",
            "new": "exact",
        },
    )
    assert {change.name: change.sentence for change in found.changes} == {
        "worse": "worse verdict",
        "better": "milder verdict",
        "lost": "can no longer be judged",
        "won": "could not be judged before",
        "same": "same",
        "gone": "only in the first run",
        "new": "only in the second run",
    }


def test_scores_change_with_intervals(tmp_path: Path) -> None:
    found = between(tmp_path, {"noisy": "detectable"}, {"noisy": "recognisable"})
    assert found.paired
    shift = found.changes[0].shift
    assert shift is not None
    mean, low, high = shift
    assert abs(mean - 0.3) < 1e-9
    assert low <= mean + 1e-9
    assert high >= mean - 1e-9


def test_an_unclear_change_is_called_so(tmp_path: Path) -> None:
    make(tmp_path / "a", {"noisy": "detectable"})
    make(tmp_path / "b", {"noisy": "detectable"})
    (tmp_path / "b" / "manifest.json").write_text(json.dumps({"reported": "others"}))
    found = compare(read(tmp_path / "a"), read(tmp_path / "b"))
    assert not found.paired
    assert "may be chance" in found.markdown()
    assert "not paired" in found.note


def test_different_metrics_are_not_compared(tmp_path: Path) -> None:
    found = between(tmp_path, {"noisy": "detectable"}, {"noisy": "detectable"}, metric="psnr")
    assert found.changes[0].shift is None
    assert "different metrics" in found.note


def test_settings_that_differ_are_listed(tmp_path: Path) -> None:
    spec = {"task": {"model": "bayes_cnn", "data": "mnist", "records": 5}, "seed": 1}
    found = between(tmp_path, {"noisy": "detectable"}, {"noisy": "detectable"}, spec=spec)
    assert ("seed", "0", "1") in found.settings
    assert ("task.data", "fashion_mnist_sample", "mnist") in found.settings
    assert not [s for s in found.settings if s[0] == "task.model"]


def test_a_run_equals_itself(tmp_path: Path) -> None:
    run = read(make(tmp_path / "run"))
    found = compare(run, run)
    assert found.settings == ()
    assert {c.sentence for c in found.changes} == {"same"}
    assert "No difference." in found.markdown()
    assert found.markdown().count("unchanged") == 2


def test_a_bound_that_changed_is_shown_and_one_that_did_not_is_not(tmp_path: Path) -> None:
    with_bound = make(tmp_path / "a", {"bounded": "no evidence", "noisy": "no evidence"})
    made = json.loads((with_bound / "result.json").read_text())
    made["checkpoints"][0]["defenses"][0]["bound"]["ceiling"] = 0.4
    other = make(tmp_path / "b", {"bounded": "no evidence", "noisy": "no evidence"}, checkpoints=made["checkpoints"])
    assert compare(read(with_bound), read(other)).tables()["Bounds"][1] == [
        ("bounded", "0", "at most 2 %", "at most 40 %")
    ]


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_are_the_studentised_ones_for_few_records(tmp_path: Path, paired: bool) -> None:
    """Few and skewed scores: the plain percentile interval of these would be too short."""
    runs = [make(tmp_path / name, {"noisy": "detectable"}) for name in ("a", "b")]
    if not paired:
        (runs[1] / "manifest.json").write_text(json.dumps({"reported": "others"}))
    scores = [[0.1, 0.2, 0.15, 0.1, 0.9], [0.2, 0.5, 0.2, 0.3, 0.8]]
    for run, new in zip(runs, scores, strict=True):
        result = json.loads((run / "result.json").read_text())
        records = result["checkpoints"][0]["defenses"][0]["records"]
        assert len(records) == len(new)
        for record, score in zip(sorted(records, key=lambda one: one["record"]), new, strict=True):
            record["score"] = score
        (run / "result.json").write_text(json.dumps(result))
    gains = [after - before for before, after in zip(*scores, strict=True)]
    expected = mean_interval(gains) if paired else difference_interval(scores[1], scores[0])
    shift = compare(*map(read, runs)).changes[0].shift
    assert shift == pytest.approx((expected.mean, expected.low, expected.high), abs=1e-12)
