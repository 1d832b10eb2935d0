"""Draw the figures of the explanations from the stored evidence.

python docs/make_figures.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakgauge.metrics import named
from leakgauge.report.svg import Scale, element, marker
from leakgauge.report.tradeoff import Null, Point, tradeoff

HERE = Path(__file__).parent
SOURCE = HERE / "evidence" / "capacity_figure_1.json"
FIGURE = HERE / "explanation" / "capacity-figure-1.svg"
WIDTH, HEIGHT, MARGIN = 430.0, 250.0, 56.0
STYLE = """
text { font: 12px sans-serif; fill: #222 } .tick { font-size: 10px; fill: #555 } .grid { stroke: #ddd }
.gaussian { fill: #0b6e99; stroke: #0b6e99 } .vmf { fill: #c2410c; stroke: #c2410c } .bar { stroke-width: 1.2 }
.back { fill: #fff }
"""
UTILITY = HERE / "explanation" / "utility-and-privacy.svg"
LIGHT = "--surface: #fff; --ink: #1b1d22; --soft: #565b66; --line: #d9d8d4; "
LIGHT += "--s1: #b03a05; --s2: #0b5c8f; --s3: #1a7a5e; --s4: #8a3d78; --s5: #765700; --s6: #41454f"
DARK = "--surface: #1d2026; --ink: #eceae6; --soft: #b0b3bb; --line: #383c45; "
DARK += "--s1: #ffb182; --s2: #8cc8f5; --s3: #7ad9b7; --s4: #e5a6d6; --s5: #f0d070; --s6: #c8ccd6"
LOOK = f"""
svg {{ {LIGHT} }} @media (prefers-color-scheme: dark) {{ svg {{ {DARK} }} }}
text {{ font: 13px sans-serif; fill: var(--soft) }} .name {{ fill: var(--ink); font-weight: 600 }}
.note {{ fill: var(--ink); font-size: 12px }} .back {{ fill: var(--surface) }} .grid {{ stroke: var(--line) }}
.zero {{ stroke: var(--soft) }} .threshold {{ stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4 }}
.proven {{ fill: var(--ink); opacity: 0.14 }} .bar {{ stroke: var(--look); stroke-width: 1.5 }}
.mark {{ fill: var(--look); stroke: var(--surface) }}
.mark.open {{ fill: var(--surface); stroke: var(--look); stroke-width: 1.8 }}
""" + " ".join(f".series{i} {{ --look: var(--s{i}) }}" for i in range(1, 7))
NAMES = {"gaussian": "Gaussian DP-SGD", "vmf": "von Mises-Fisher DP-SGD"}
KINDS = {"gaussian": 0, "vmf": 2}

Row = dict[str, Any]


def figure(rows: Sequence[Row]) -> str:
    """MSE of inverting gradients against ε (left) and log capacity (right), one line of panels per data set."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    panels = [
        _panel([row for row in rows if row["data"] == name], name, axis, MARGIN + j * (WIDTH + MARGIN), 40 + i * HEIGHT)
        for i, name in enumerate(names)
        for j, axis in enumerate(("epsilon", "log capacity"))
    ]
    width, height = 2 * (WIDTH + MARGIN) + 20, 40 + HEIGHT * len(names) + 10
    legend = [
        part
        for k, (kind, said) in enumerate(NAMES.items())
        for part in (
            marker(KINDS[kind], MARGIN + 10 + 210 * k, 16, kind),
            element("text", said, x=MARGIN + 22 + 210 * k, y=20),
        )
    ]
    drawn = element(
        "svg",
        element("title", "Mean squared error of inverting gradients against ε and against log Bayes capacity"),
        element("style", STYLE),
        element("rect", width=width, height=height, class_="back"),
        *legend,
        *panels,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
    )
    return f"{drawn}\n"


def _panel(rows: Sequence[Row], name: str, axis: str, left: float, top: float) -> str:
    logs = [math.log10(row[axis]) for row in rows]
    x = Scale(math.floor(min(logs)), math.ceil(max(logs)), left, left + WIDTH)
    y = Scale(0.0, max(row["high"] for row in rows) * 1.05, top + HEIGHT - 60, top + 10)
    parts = []
    for power in range(round(x.low), round(x.high) + 1):
        parts.append(element("line", x1=x(power), x2=x(power), y1=y.start, y2=y.stop, class_="grid"))
        parts.append(element("text", f"1e{power}", x=x(power), y=y.start + 14, class_="tick", text_anchor="middle"))
    for value in y.ticks(5):
        parts.append(element("line", x1=x.start, x2=x.stop, y1=y(value), y2=y(value), class_="grid"))
        parts.append(element("text", f"{value:g}", x=left - 6, y=y(value) + 4, class_="tick", text_anchor="end"))
    for row, at in zip(rows, logs, strict=True):
        kind = row["mechanism"]
        parts.append(element("line", x1=x(at), x2=x(at), y1=y(row["low"]), y2=y(row["high"]), class_=f"{kind} bar"))
        parts.append(marker(KINDS[kind], x(at), y(row["mse"]), kind, 3.5))
    label = "ε (δ = 1e-5)" if axis == "epsilon" else "log Bayes capacity (nats)"
    parts.append(element("text", label, x=(x.start + x.stop) / 2, y=y.start + 32, text_anchor="middle"))
    parts.append(element("text", f"MSE, {name}", x=left, y=top + 4))
    return element("g", *parts)


def utility(trained: Sequence[Row], attacked: Sequence[Row]) -> str:
    """Accuracy of every defense against what its fresh network leaks, by the tables of the two checks."""
    leaks = {row["defense"]: row for row in attacked}
    most = max(row["steps"] for row in trained)
    points = [
        Point(row["defense"], _seeds(row), *_scores(leaks[row["defense"]], ""), bare=row["defense"] == "none")
        for row in trained
        if row["steps"] == most
    ]
    nulls = [_scores(leaks[point.name], "null, ") for point in points]
    null = Null(sum(mean for mean, _ in nulls) / len(nulls), max(best for _, best in nulls))
    drawn = tradeoff(points, null, named("ssim").meaning, 0.5, width=1180.0)
    box = re.search(r'viewBox="([^"]*)"', drawn)
    assert box is not None
    width, height = box[1].split()[2:]
    made = element(
        "svg",
        element("style", LOOK),
        element("rect", width=width, height=height, class_="back"),
        drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=box[1],
        role="img",
    )
    return f"{made}\n"


def _seeds(row: Row) -> tuple[float, ...]:
    """The three accuracies, from their mean and their ends."""
    low, high = map(float, row["over seeds"].split(" to "))
    between = min(max(3 * row["accuracy"] - low - high, low), high)
    return low / 100, between / 100, high / 100


def _scores(row: Row, arm: str) -> tuple[float, float]:
    return row[f"{arm}strongest, mean ssim"], row[f"{arm}strongest, worst ssim"]


def stored(name: str) -> list[Row]:
    """The table of a stored result."""
    rows: list[Row] = json.loads((HERE / "evidence" / f"{name}.json").read_text(encoding="utf-8"))["table"]
    return rows


if __name__ == "__main__":
    FIGURE.write_text(figure(stored("capacity_figure_1")), encoding="utf-8")
    UTILITY.write_text(utility(stored("utility"), stored("utility_leak")), encoding="utf-8")
