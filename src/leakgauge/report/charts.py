"""The charts of a report: scores against the null, leakage over training, utility against privacy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from statistics import median

from markupsafe import Markup

from leakgauge.report.formats import gain, score
from leakgauge.report.schema import Checkpoint, Defense, Result
from leakgauge.report.story import IDENTITY
from leakgauge.report.svg import SERIES, Scale, apart, chart, element, marker, text, tick
from leakgauge.report.tradeoff import Null, Point, tradeoff

WIDTH, GUTTER, ROW, TOP = 860.0, 210.0, 64.0, 24.0
RUNG = 100.0
"""Decibels at which the axis ends: beyond, a picture is the same picture."""


def distributions(result: Result, checkpoint: Checkpoint) -> Markup | None:
    """Every record's best reconstruction (filled) above its best null (hollow), one band per defense."""
    defenses = [d for d in checkpoint.defenses if d.records]
    if not defenses:
        return None
    x, bottom = _scores_axis(result, defenses), TOP + ROW * len(defenses)
    parts = [_grid(x, bottom, f"{result.metric} of the best reconstruction (right is closer to the private record)")]
    for i, defense in enumerate(defenses):
        parts.append(_band(defense, x, TOP + ROW * i))
    threshold = result.thresholds.recognisable
    if threshold is not None:
        at = x(threshold)
        parts.append(element("line", x1=at, x2=at, y1=TOP - 6, y2=bottom, class_="threshold"))
        parts.append(text(f"recognisable from {tick(threshold)}", at, TOP - 10, css="note", anchor="middle", limit=60))
    told = "; ".join(_told(d, result.metric) for d in defenses)
    return chart(WIDTH, bottom + 46, "Scores of reconstructions against the null", told, *parts)


def _scores_axis(result: Result, defenses: Sequence[Defense]) -> Scale:
    values = [v for d in defenses for r in d.records for v in (r.score, r.null)]
    values += [result.thresholds.recognisable or 0.0]
    low, high = (min(-0.1, *values), 1.0) if result.metric == "ssim" else (0.0, min(RUNG, max(values) + 5))
    return Scale(low, high, GUTTER, WIDTH - 20)


def _grid(x: Scale, bottom: float, label: str) -> Markup:
    parts = []
    for value in x.ticks(8):
        at = x(value)
        parts.append(element("line", x1=at, x2=at, y1=TOP, y2=bottom, class_="grid"))
        parts.append(text(tick(value), at, bottom + 16, css="tick", anchor="middle"))
    parts.append(text(label, (x.start + x.stop) / 2, bottom + 36, css="axis", anchor="middle", limit=120))
    return Markup().join(parts)


def _band(defense: Defense, x: Scale, top: float) -> Markup:
    parts = [
        element("line", x1=0.0, x2=WIDTH, y1=top, y2=top, class_="grid"),
        text(defense.name, 0, top + 37, css="name", limit=17),
        text("attack", GUTTER - 14, top + 22, css="tick", anchor="end"),
        text("null", GUTTER - 14, top + 50, css="tick", anchor="end"),
    ]
    lanes = (
        ("dot real", top + 18, [r.score for r in defense.records]),
        ("dot null", top + 46, [r.null for r in defense.records]),
    )
    for css, middle, values in lanes:
        parts += [
            element("circle", cx=x(v), cy=middle + wiggle, r=4.5, class_=css)
            for v, wiggle in zip(values, _wiggles(len(values)), strict=True)
        ]
        centre = x(median(values))
        parts.append(element("line", x1=centre, x2=centre, y1=middle - 11, y2=middle + 11, class_="median"))
    return Markup().join(parts)


def _wiggles(n: int) -> list[float]:
    """Small fixed shifts that keep equal scores from hiding one another."""
    return [0.0] * n if n < 4 else [((i * 5) % 7 - 3) * 2.0 for i in range(n)]


def _told(defense: Defense, metric: str) -> str:
    best, null = max(r.score for r in defense.records), max(r.null for r in defense.records)
    return f"{defense.name}: best reconstruction {score(best, metric)}, best null {score(null, metric)}"


def corridor(result: Result, checkpoint: Checkpoint) -> Markup | None:
    """The chance that a record is recognised: reached below (dot and interval), proven above (bar to the right)."""
    seen = [(d, d.bound, d.bound.corridor) for d in checkpoint.defenses if d.bound and d.bound.corridor]
    if not seen:
        return None
    height = 44.0
    x, bottom = Scale(0, 1, GUTTER, WIDTH - 20), TOP + height * len(seen)
    parts = [_grid(x, bottom, "chance that a record reaches the threshold")]
    told = []
    for i, (defense, bound, reached) in enumerate(seen):
        top = TOP + height * i
        middle = top + height / 2
        parts.append(element("line", x1=0.0, x2=WIDTH, y1=top, y2=top, class_="grid"))
        parts.append(text(defense.name, 0, middle + 5, css="name", limit=17))
        if bound.ceiling is not None:
            at = x(bound.ceiling)
            parts.append(
                element("rect", x=at, y=top + 8, width=max(x.stop - at, 1.0), height=height - 16, class_="proven")
            )
            parts.append(element("line", x1=at, x2=at, y1=top + 4, y2=top + height - 4, class_="median"))
        parts.append(element("line", x1=x(reached.low), x2=x(reached.high), y1=middle, y2=middle, class_="reached"))
        parts.append(element("circle", cx=x(reached.success), cy=middle, r=5.0, class_="dot real"))
        if reached.state in ("tight", "contradiction"):
            parts.append(text(reached.state, GUTTER - 14, middle + 5, css="tick", anchor="end"))
        told.append(f"{defense.name}: {reached.sentence}")
    return chart(WIDTH, bottom + 46, "The risk corridor", "; ".join(told), *parts)


def training(result: Result) -> Markup | None:
    """Mean gain over the null at each checkpoint, with intervals; None for a single checkpoint."""
    points = result.checkpoints
    names = list(dict.fromkeys(d.name for c in points for d in c.defenses))
    found = {
        n: [(i, d) for i, c in enumerate(points) for d in c.defenses if d.name == n and d.attack.excess] for n in names
    }
    found = {n: seen for n, seen in found.items() if seen}
    if len(points) < 2 or not found:
        return None
    ends = [
        v
        for seen in found.values()
        for _, d in seen
        if d.attack.excess
        for v in (d.attack.excess.low, d.attack.excess.high)
    ]
    pad = 0.05 * (max(*ends, 0.0) - min(*ends, 0.0) or 1.0)
    height, right = 300.0, WIDTH - 220
    y = Scale(min(*ends, 0.0) - pad, max(*ends, 0.0) + pad, height, TOP)
    x = Scale(0, len(points) - 1, 80, right)
    parts = [
        Markup().join(
            (
                element("line", x1=60.0, x2=right + 10, y1=y(v), y2=y(v), class_="zero" if abs(v) < 1e-9 else "grid"),
                text(tick(v), 52, y(v) + 4, css="tick", anchor="end"),
            )
        )
        for v in y.ticks()
    ]
    parts += [text(f"step {c.step}", x(i), height + 20, css="tick", anchor="middle") for i, c in enumerate(points)]
    parts.append(
        text(
            f"gain in {result.metric} over the null (mean and interval); 0 is no better than guessing",
            60,
            12,
            css="axis",
            limit=120,
        )
    )
    labels = apart([y(seen[-1][1].attack.excess.mean) for seen in found.values() if seen[-1][1].attack.excess], 18)
    for kind, (name, seen), label in zip(count(), found.items(), labels, strict=False):
        parts.append(_line(kind, seen, x, y))
        parts.append(_key(kind, name, right + 48, label))
    told = "; ".join(
        f"{n}: " + ", ".join(f"step {points[i].step} {gain(d.attack.excess, result.metric)}" for i, d in seen)
        for n, seen in found.items()
    )
    return chart(WIDTH, max(height + 34, *(label + 16 for label in labels)), "Leakage over training", told, *parts)


def _line(kind: int, seen: Sequence[tuple[int, Defense]], x: Scale, y: Scale) -> Markup:
    look = f"series{kind % SERIES + 1}"
    places = [(x(i) + 3 * (kind % SERIES) - 6, d.attack.excess) for i, d in seen]
    path = " ".join(f"{a:.1f},{y(e.mean):.1f}" for a, e in places if e)
    parts = [element("polyline", points=path, class_=f"line {look}")]
    for a, e in places:
        if e:
            parts.append(element("line", x1=a, x2=a, y1=y(e.low), y2=y(e.high), class_=f"bar {look}"))
            parts.append(marker(kind, a, y(e.mean), _look(kind)))
    return Markup().join(parts)


def _key(kind: int, name: str, x: float, y: float) -> Markup:
    return marker(kind, x, y, _look(kind)) + text(name, x + 12, y + 4, css="name", limit=17)


def _look(kind: int) -> str:
    return f"mark series{kind % SERIES + 1}"


def utility(result: Result) -> Markup | None:
    """Accuracy after the last step against the leak at the checkpoint where it is largest, mean and worst record.

    None where all accuracies are the same: then nothing is known about their price.
    """
    last = result.checkpoints[-1]
    points, nulls = [], []
    for defense in last.defenses:
        rights = defense.accuracies or ((defense.accuracy,) if defense.accuracy is not None else ())
        shown = [d for c in result.checkpoints for d in c.defenses if d.name == defense.name and d.records]
        if not rights or not shown:
            continue
        means = [sum(r.score for r in d.records) / len(d.records) for d in shown]
        worst = max(r.score for d in shown for r in d.records)
        points.append(Point(defense.name, rights, max(means), worst, bare=defense.expression == IDENTITY))
        nulls += [r.null for d in shown for r in d.records]
    if len({p.accuracy for p in points}) < 2:
        return None
    null = Null(sum(nulls) / len(nulls), max(nulls))
    return tradeoff(points, null, result.metric, result.thresholds.recognisable)
