"""Utility against privacy: mean and worst record of every defense, at its accuracy, above what guessing scores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from leakgauge.report import charts, read
from tests.report.samples import defense, make


def drawn(folder: Path, *accuracies: tuple[float, ...]) -> str | None:
    words = ("recognisable", "detectable", "no evidence")
    names = ("none", "noisy", "quiet")
    made: list[dict[str, Any]] = [
        {**defense(n, w), "accuracy": a[0], "accuracies": list(a)}
        for n, w, a in zip(names, words, accuracies, strict=True)
    ]
    run = make(folder, checkpoints=[{"step": 5, "accuracy": None, "defenses": made}])
    figure = charts.utility(read(run).result)
    return None if figure is None else str(figure)


def test_every_defense_has_two_marks_joined_and_words_for_those_who_do_not_see(tmp_path: Path) -> None:
    figure = drawn(tmp_path / "run", (0.9, 0.86), (0.8, 0.78), (0.5, 0.4))
    assert figure is not None
    groups = re.findall(r"<g><title>(.*?)</title>(.*?)</g>", figure)
    assert [told.partition(":")[0] for told, _ in groups] == ["noisy", "quiet", "none"]  # the yardstick on top
    for _, parts in groups:
        assert parts.count('class="mark open') == 1  # the worst record
        assert parts.count('class="mark series') == 1  # the mean
        assert parts.count("<line") == 2  # mean to worst; the spread over seeds
    rows = defense("none", "recognisable")["records"]
    mean, worst = sum(r["score"] for r in rows) / len(rows), max(r["score"] for r in rows)
    assert f"accuracy 88 % (86 % to 90 %), mean ssim {mean:.2f}, worst record {worst:.2f}" in groups[-1][0]
    assert "<desc>" in figure
    assert "without a defense, mean" in figure
    assert "guessing: from the mean to the best null" in figure


def test_a_worse_record_is_drawn_higher_and_a_better_model_further_right(tmp_path: Path) -> None:
    figure = drawn(tmp_path / "run", (0.9,), (0.8,), (0.5,))
    assert figure is not None
    bars = re.findall(r'x1="([\d.]+)" x2="[\d.]+" y1="([\d.]+)" y2="([\d.]+)" class="bar', figure)
    noisy, quiet, none = (tuple(map(float, bar)) for bar in bars)
    places = [none, noisy, quiet]
    assert all(worst < mean for _, mean, worst in places)  # SVG counts downwards
    assert places[0][0] > places[1][0] > places[2][0]
    assert places[0][1] < places[1][1] < places[2][1]


def test_one_accuracy_for_all_says_nothing_about_a_price(tmp_path: Path) -> None:
    assert drawn(tmp_path / "run", (0.9,), (0.9,), (0.9,)) is None
