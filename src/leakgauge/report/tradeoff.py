"""Utility against privacy in one figure: accuracy across, leakage upwards, on average and in the worst case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.meaning import Meaning
from leakgauge.report.formats import share
from leakgauge.report.svg import SERIES, Scale, apart, chart, element, ends, marker, text, tick

WIDTH, TOP, LEFT, LEGEND = 860.0, 34.0, 70.0, 240.0
ROW, KEYS = 20.0, 68.0


@dataclass(frozen=True)
class Point:
    """One defense: accuracy of each seed, and what its records score: the mean, and the worst (the best recovered)."""

    name: str
    accuracies: tuple[float, ...]
    mean: float
    worst: float
    bare: bool = False

    @property
    def accuracy(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)

    def told(self, metric: Meaning) -> str:
        spread = (
            f" ({share(min(self.accuracies))} to {share(max(self.accuracies))})" if len(self.accuracies) > 1 else ""
        )
        return (
            f"{self.name}: accuracy {share(self.accuracy)}{spread}, mean {metric.label} {metric.text(self.mean)}, "
            f"worst record {metric.text(self.worst)}"
        )


@dataclass(frozen=True)
class Null:
    """What guessing scores: the mean over records and the best of them."""

    mean: float
    best: float


def tradeoff(
    points: Sequence[Point], null: Null, metric: Meaning, threshold: float | None = None, *, width: float = WIDTH
) -> Markup:
    """Filled: the mean record; hollow: the worst; joined by a line. Down and right is better."""
    rights = [a for p in points for a in p.accuracies]
    pad = 0.06 * (max(rights) - min(rights) or 0.1)
    right = width - LEGEND
    x = Scale(max(0.0, min(rights) - pad), min(1.0, max(rights) + pad), LEFT + 14, right - 14)
    bottom = max(420.0, TOP + KEYS + ROW * len(points) - 30)
    y = _leaks(points, null, metric, threshold, bottom)
    parts = [_axes(x, y, right, metric), *_references(points, null, y, right, threshold)]
    order = sorted(enumerate(points), key=lambda one: one[1].bare)  # the yardstick on top
    parts += [_drawn(kind, point, x, y, metric) for kind, point in order]
    parts += [_legend(points, right + 24)]
    told = "; ".join(p.told(metric) for p in points)
    told += f"; guessing: mean {metric.text(null.mean)}, best {metric.text(null.best)}"
    return chart(width, bottom + 46, "Utility against privacy, on average and in the worst case", told, *parts)


def _leaks(points: Sequence[Point], null: Null, metric: Meaning, threshold: float | None, bottom: float) -> Scale:
    values = [v for p in points for v in (p.mean, p.worst)] + [null.mean, null.best, threshold or 0.0]
    low, high = ends(metric, values)
    pad = 0.03 * (high - low)
    return Scale(low - pad, high + pad, bottom, TOP)


def _axes(x: Scale, y: Scale, right: float, metric: Meaning) -> Markup:
    parts = [
        text(
            f"{metric.label} of the strongest adversary’s reconstruction (down is more private)",
            LEFT - 40,
            14,
            css="axis",
            limit=99,
        )
    ]
    for value in x.ticks(8):
        parts.append(element("line", x1=x(value), x2=x(value), y1=TOP, y2=y.start, class_="grid"))
        parts.append(text(f"{tick(100 * value)} %", x(value), y.start + 16, css="tick", anchor="middle"))
    for value in y.ticks(6):
        parts.append(element("line", x1=LEFT, x2=right, y1=y(value), y2=y(value), class_="grid"))
        parts.append(text(tick(value), LEFT - 8, y(value) + 4, css="tick", anchor="end"))
    parts.append(
        text("test accuracy (right is better)", (LEFT + right) / 2, y.start + 36, css="axis", anchor="middle", limit=60)
    )
    return Markup().join(parts)


def _references(points: Sequence[Point], null: Null, y: Scale, right: float, threshold: float | None) -> list[Markup]:
    """What guessing scores, what undefended records score on average, and from where on a record is recognised."""
    top, low = y(null.best), y(null.mean)
    drawn = [element("rect", x=LEFT, y=top, width=right - LEFT, height=max(low - top, 2.0), class_="proven")]
    marks = [(top, "guessing: from the mean to the best null", "")]
    marks += [(y(p.mean), "without a defense, mean", "zero") for p in points if p.bare][:1]
    marks += [(y(threshold), f"recognisable from {tick(threshold)}", "threshold")] if threshold is not None else []
    for (at, note, css), label in zip(marks, apart([at for at, *_ in marks], 16), strict=True):
        drawn += [element("line", x1=LEFT, x2=right, y1=at, y2=at, class_=css)] if css else []
        below = label > at  # above the line there is another label
        drawn.append(text(note, LEFT + 6, max(label - 5, at + 13) if below else at - 5, css="note", limit=60))
    return drawn


def _drawn(kind: int, point: Point, x: Scale, y: Scale, metric: Meaning) -> Markup:
    look, at = f"series{kind % SERIES + 1}", x(point.accuracy)
    parts = [
        element("title", point.told(metric)),
        element("line", x1=at, x2=at, y1=y(point.mean), y2=y(point.worst), class_=f"bar {look}"),
    ]
    if len(point.accuracies) > 1:
        ends = x(min(point.accuracies)), x(max(point.accuracies))
        parts.append(element("line", x1=ends[0], x2=ends[1], y1=y(point.mean), y2=y(point.mean), class_=f"bar {look}"))
    parts.append(marker(kind, at, y(point.worst), f"mark open {look}", 5))
    parts.append(marker(kind, at, y(point.mean), f"mark {look}", 5.5))
    return element("g", *parts)


def _legend(points: Sequence[Point], left: float) -> Markup:
    spread = any(len(p.accuracies) > 1 for p in points)
    parts = [
        marker(0, left, TOP + 2, "mark series6", 5.5)
        + text("filled: mean over records", left + 14, TOP + 6, css="note", limit=40),
        marker(0, left, TOP + 20, "mark open series6", 5)
        + text("hollow: the worst record", left + 14, TOP + 24, css="note", limit=40),
    ]
    if spread:
        parts.append(element("line", x1=left - 7, x2=left + 7, y1=TOP + 38, y2=TOP + 38, class_="bar series6"))
        parts.append(text("across: all seeds", left + 14, TOP + 42, css="note", limit=40))
    for kind, point in enumerate(points):
        at = TOP + KEYS + ROW * kind
        parts.append(marker(kind, left, at, f"mark series{kind % SERIES + 1}"))
        parts.append(text(point.name, left + 14, at + 4, css="name", limit=24))
    return Markup().join(parts)
