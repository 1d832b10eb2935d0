"""The charts of a report: scores against the null, the risk corridor, utility against privacy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Checkpoint, Defense
from leakgauge.meaning import Meaning
from leakgauge.report.history import training
from leakgauge.report.svg import Scale, chart, element, ends, text, tick
from leakgauge.report.tradeoff import Null, Point, tradeoff

__all__ = ["corridor", "distributions", "training", "utility"]

WIDTH, GUTTER, ROW, TOP = 860.0, 210.0, 64.0, 24.0


def distributions(result: Result, checkpoint: Checkpoint) -> Markup | None:
    """Every record's best reconstruction (filled) above its best null (hollow), one band per defense."""
    defenses = [d for d in checkpoint.defenses if d.records]
    if not defenses:
        return None
    x, bottom = _scores_axis(result, defenses), TOP + ROW * len(defenses)
    parts = [
        _grid(x, bottom, f"{result.judge.label} of the best reconstruction (right is closer to the private record)")
    ]
    for i, defense in enumerate(defenses):
        parts.append(_band(defense, x, TOP + ROW * i))
    threshold = result.thresholds.recognisable
    if threshold is not None:
        at = x(threshold)
        parts.append(element("line", x1=at, x2=at, y1=TOP - 6, y2=bottom, class_="threshold"))
        parts.append(text(f"recognisable from {tick(threshold)}", at, TOP - 10, css="note", anchor="middle", limit=60))
    told = "; ".join(_told(d, result.judge) for d in defenses)
    return chart(WIDTH, bottom + 46, "Scores of reconstructions against the null", told, *parts)


def _scores_axis(result: Result, defenses: Sequence[Defense]) -> Scale:
    values = [v for d in defenses for r in d.records for v in (r.score, r.null)]
    low, high = ends(result.judge, [*values, result.thresholds.recognisable or 0.0])
    return Scale(low - 0.05 * (high - low), high, GUTTER, WIDTH - 20)


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
        # of records that fall on one spot, as thousands do, one is drawn
        places = dict.fromkeys((round(2 * x(v)) / 2, w) for v, w in zip(values, _wiggles(len(values)), strict=True))
        parts += [element("circle", cx=at, cy=middle + wiggle, r=4.5, class_=css) for at, wiggle in places]
        centre = x(median(values))
        parts.append(element("line", x1=centre, x2=centre, y1=middle - 11, y2=middle + 11, class_="median"))
    return Markup().join(parts)


def _wiggles(n: int) -> list[float]:
    """Small fixed shifts that keep equal scores from hiding one another."""
    return [0.0] * n if n < 4 else [((i * 5) % 7 - 3) * 2.0 for i in range(n)]


def _told(defense: Defense, metric: Meaning) -> str:
    best, null = max(r.score for r in defense.records), max(r.null for r in defense.records)
    return f"{defense.name}: best reconstruction {metric.text(best)}, best null {metric.text(null)}"


def corridor(result: Result, checkpoint: Checkpoint) -> Markup | None:
    """The chance that a record is recognised: reached below (dot and interval), proven above (bar to the right)."""
    corridors = [(d, d.bound, d.bound.corridor) for d in checkpoint.defenses if d.bound and d.bound.corridor]
    if not corridors:
        return None
    height = 44.0
    x, bottom = Scale(0, 1, GUTTER, WIDTH - 20), TOP + height * len(corridors)
    parts = [_grid(x, bottom, "chance that a record reaches the threshold")]
    told = []
    for i, (defense, bound, reached) in enumerate(corridors):
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


def utility(result: Result) -> Markup | None:
    """Accuracy after the last step against the leak at the checkpoint where it is largest, mean and worst record.

    None where all accuracies are the same: then nothing is known about their price.
    """
    last = result.checkpoints[-1]
    points, nulls = [], []
    for defense in last.defenses:
        rights = defense.accuracies or ((defense.accuracy,) if defense.accuracy is not None else ())
        history = [d for _, d in result.history[defense.name] if d.records]
        if not rights or not history:
            continue
        means = [sum(r.score for r in d.records) / len(d.records) for d in history]
        worst = max(r.score for d in history for r in d.records)
        points.append(Point(defense.name, rights, max(means), worst, bare=defense.bare))
        nulls += [r.null for d in history for r in d.records]
    if len({p.accuracy for p in points}) < 2:
        return None
    null = Null(sum(nulls) / len(nulls), max(nulls))
    return tradeoff(points, null, result.judge, result.thresholds.recognisable)
