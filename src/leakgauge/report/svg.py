"""Small parts of hand-made charts: elements, scales, markers. Colours come from the page's style sheet by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from leakgauge.meaning import Meaning

SERIES = 6
"""Colours (with their dashes) of series; markers vary too, so that colour never carries meaning alone."""


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """One SVG element; a trailing or inner ``_`` of an attribute stands for ``-``; everything is escaped."""
    written = "".join(f' {k.rstrip("_").replace("_", "-")}="{escape(_short(v))}"' for k, v in attributes.items())
    return Markup(f"<{name}{written}>{Markup().join(escape(c) for c in children)}</{name}>")


def _short(value: object) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(content: str, x: float, y: float, *, css: str = "", anchor: str = "start", limit: int = 22) -> Markup:
    """A label; a long one is shortened, and whole in its tooltip."""
    label = content if len(content) <= limit else content[: limit - 1] + "…"
    tip = (element("title", content),) if label != content else ()
    return element("text", label, *tip, x=x, y=y, class_=css, text_anchor=anchor)


def chart(width: float, height: float, title: str, description: str, *children: str) -> Markup:
    """A whole drawing, with a name and a description for those who do not see it."""
    inner = (element("title", title), element("desc", description), *children)
    return element("svg", *inner, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img", class_="chart")


@dataclass(frozen=True)
class Scale:
    """Values to pixels, linearly; values beyond the ends are drawn at the ends."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low or 1.0)
        return self.start + share * (self.stop - self.start)

    def ticks(self, about: int = 6) -> list[float]:
        """Round numbers between the ends."""
        span = (self.high - self.low) or 1.0
        if not 1e-300 < span < 1e300:  # a result may have been written by anybody
            return []
        power = 10.0 ** math.floor(math.log10(span / about))
        step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= about)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def ends(metric: Meaning, values: Sequence[float]) -> tuple[float, float]:
    """Where an axis of scores begins and ends: at zero or below, and at the best score there is.

    Without a best score it ends where the values do, at the latest well beyond what counts as exact.
    """
    low = min(0.0, *values) if metric.worst is None else max(metric.worst, min(0.0, *values))
    if metric.best is not None:
        return low, metric.best
    largest = 5 / 3 * (metric.exact or metric.threshold)
    return low, max(min(largest, max(values)), metric.threshold)


def tick(value: float) -> str:
    return f"{round(value, 6):g}".replace("-", "−")


def marker(kind: int, x: float, y: float, css: str, size: float = 5.0) -> Markup:
    """Circle, square, triangle, diamond or triangle upside down: with six colours, thirty looks before one returns."""
    shapes: tuple[Sequence[tuple[float, float]], ...] = (
        (),
        ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        ((0, -1.3), (1.2, 0.9), (-1.2, 0.9)),
        ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
        ((0, 1.3), (1.2, -0.9), (-1.2, -0.9)),
    )
    corners = shapes[kind % len(shapes)]
    if not corners:
        return element("circle", cx=x, cy=y, r=size, class_=css)
    points = " ".join(f"{x + size * a:.1f},{y + size * b:.1f}" for a, b in corners)
    return element("polygon", points=points, class_=css)


def apart(values: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved as little as needed so that labels do not overlap."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    placed = list(values)
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    return placed
