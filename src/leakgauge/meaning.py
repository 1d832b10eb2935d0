"""What a score means: its direction, its thresholds and its words. Without torch: a report needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

CAP = 999.0
"""JSON has no infinity: the score of an identical record, where it is infinite, is written as this."""


@dataclass(frozen=True)
class Meaning:
    """How the scores of one metric are read. Plain values only, so that ``asdict`` writes it and ``**`` reads it back.

    ``threshold`` is the default for *recognisable*; ``exact`` the score from which a record counts as recovered to
    numerical precision, None where the metric cannot tell; ``worst`` and ``best`` end the scale, None if nothing does.
    ``label`` stands in sentences ("reaches ssim 0.5"), ``title`` explains it once, ``unit`` follows a value.
    """

    name: str
    label: str
    title: str
    threshold: float
    exact: float | None = None
    direction: Literal["higher", "lower"] = "higher"
    worst: float | None = 0.0
    best: float | None = 1.0
    unit: str = ""
    digits: int = 2

    def text(self, value: float | None) -> str:
        """A score as people read it: ``0.53``, ``21.4 dB``, ``identical``, ``–`` for none."""
        if value is None:
            return "–"
        if self.best is None and value >= CAP:
            return "identical"
        return f"{_plain(value, f'.{self.digits}f')}{self._behind}"

    def signed(self, value: float) -> str:
        """A difference of scores, with its sign and without its unit: ``+0.21``, ``−3.0``."""
        return _plain(value, f"+.{self.digits}f")

    def at(self, threshold: float | None = None) -> str:
        """The metric at a threshold, its own by default: ``ssim 0.5``, ``psnr 20 dB``."""
        return f"{self.label} {self.threshold if threshold is None else threshold:g}{self._behind}"

    def better(self, score: float, other: float) -> bool:
        """Whether a score is strictly better than another."""
        return score > other if self.direction == "higher" else score < other

    def reached(self, score: float, threshold: float | None = None) -> bool:
        """Whether a score is at least as good as a threshold, by default that of *recognisable*."""
        return not self.better(self.threshold if threshold is None else threshold, score)

    @property
    def _behind(self) -> str:
        return f" {self.unit}" if self.unit else ""


SSIM = Meaning(
    "ssim",
    "ssim",
    "structural similarity (SSIM): 1 is the same picture, about 0 is unrelated",
    threshold=0.5,
    worst=-1.0,
)
PSNR = Meaning(
    "psnr",
    "psnr",
    "peak signal-to-noise ratio (PSNR) in dB: higher is closer; from 60 dB on no eye can tell the difference",
    threshold=20.0,
    exact=60.0,
    best=None,
    unit="dB",
    digits=1,
)
"""Those of images: results that are older than meanings were scored by them, and reading one needs no torch."""


def readable(values: Sequence[float], categories: Sequence[str], *, offset: float = 0.0, unit: float = 1.0) -> str:
    """A feature of a table as people read it, from its columns: ``offset + unit · value`` to four digits, or the name
    of the category with the largest entry; ``?`` where no entry is the largest, or one is not finite."""
    if not categories:
        return f"{offset + unit * values[0]:.4g}".replace("-", "−")
    if len(categories) == 1:
        return categories[0]
    largest = [i for i, value in enumerate(values) if value == max(values)]
    clear = len(largest) == 1 and all(isfinite(value) for value in values)
    return categories[largest[0]] if clear else "?"


def storable(score: float) -> float:
    """A score for JSON: six decimals, infinity as :data:`CAP`."""
    return round(max(-CAP, min(CAP, score)), 6)


def _plain(value: float, how: str) -> str:
    """With a real minus sign, and no sign before a zero."""
    text = format(value, how)
    return text.replace("-", "−") if float(text) else text.lstrip("+-")
