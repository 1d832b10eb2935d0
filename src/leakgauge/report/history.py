"""Leakage over training: the gain over the null at every checkpoint, one line per defense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Excess
from leakgauge.report.formats import gain
from leakgauge.report.svg import SERIES, Scale, apart, chart, element, marker, text, tick

WIDTH, HEIGHT, TOP, LEFT, LEGEND = 860.0, 300.0, 24.0, 60.0, 220.0


@dataclass(frozen=True)
class Series:
    """One defense: the number of a checkpoint, and the gain there."""

    name: str
    points: tuple[tuple[int, Excess], ...]

    @property
    def values(self) -> list[float]:
        """Everything that has to fit on the axis."""
        ends = [v for _, excess in self.points for v in (excess.low, excess.mean, excess.high)]
        return [value for value in ends if value is not None]


def training(result: Result) -> Markup | None:
    """Mean gain over the null at each checkpoint, with intervals; None for a single checkpoint."""
    lines = series(result)
    if len(result.checkpoints) < 2 or not lines:
        return None
    x, y = Scale(0, len(result.checkpoints) - 1, LEFT + 20, WIDTH - LEGEND), _gains_axis(lines)
    labels = apart([y(line.points[-1][1].mean) for line in lines], 18)
    parts = [_grid(result, x, y)]
    for kind, (line, label) in enumerate(zip(lines, labels, strict=True)):
        parts.append(_line(kind, line, x, y))
        parts.append(_key(kind, line.name, x.stop + 48, label))
    height = max(HEIGHT + 34, *(label + 16 for label in labels))
    return chart(WIDTH, height, "Leakage over training", _told(result, lines), *parts)


def series(result: Result) -> list[Series]:
    """The defenses with a gain at any checkpoint."""
    number = {checkpoint.step: i for i, checkpoint in enumerate(result.checkpoints)}
    lines = [
        Series(name, tuple((number[at.step], d.attack.excess) for at, d in history if d.attack.excess))
        for name, history in result.history.items()
    ]
    return [line for line in lines if line.points]


def _gains_axis(lines: Sequence[Series]) -> Scale:
    values = [0.0, *(value for line in lines for value in line.values)]
    pad = 0.05 * (max(values) - min(values) or 1.0)
    return Scale(min(values) - pad, max(values) + pad, HEIGHT, TOP)


def _grid(result: Result, x: Scale, y: Scale) -> Markup:
    label = f"gain in {result.judge.label} over the null (mean and interval); 0 is no better than guessing"
    parts = [text(label, LEFT, 12, css="axis", limit=120)]
    for value in y.ticks():
        css = "zero" if abs(value) < 1e-9 else "grid"
        parts.append(element("line", x1=LEFT, x2=x.stop + 10, y1=y(value), y2=y(value), class_=css))
        parts.append(text(tick(value), LEFT - 8, y(value) + 4, css="tick", anchor="end"))
    for i, checkpoint in enumerate(result.checkpoints):
        parts.append(text(f"step {checkpoint.step}", x(i), HEIGHT + 20, css="tick", anchor="middle"))
    return Markup().join(parts)


def _line(kind: int, line: Series, x: Scale, y: Scale) -> Markup:
    """Shifted a little, so that the intervals of several defenses do not hide one another."""
    look = f"series{kind % SERIES + 1}"
    places = [(x(i) + 3 * (kind % SERIES) - 6, excess) for i, excess in line.points]
    path = " ".join(f"{at:.1f},{y(excess.mean):.1f}" for at, excess in places)
    parts = [element("polyline", points=path, class_=f"line {look}")]
    for at, excess in places:
        if excess.low is not None and excess.high is not None:
            parts.append(element("line", x1=at, x2=at, y1=y(excess.low), y2=y(excess.high), class_=f"bar {look}"))
        parts.append(marker(kind, at, y(excess.mean), f"mark {look}"))
    return Markup().join(parts)


def _key(kind: int, name: str, x: float, y: float) -> Markup:
    return marker(kind, x, y, f"mark series{kind % SERIES + 1}") + text(name, x + 12, y + 4, css="name", limit=17)


def _told(result: Result, lines: Sequence[Series]) -> str:
    steps = [checkpoint.step for checkpoint in result.checkpoints]
    told = {line.name: [f"step {steps[i]} {gain(g, result.judge)}" for i, g in line.points] for line in lines}
    return "; ".join(f"{name}: {', '.join(gains)}" for name, gains in told.items())
