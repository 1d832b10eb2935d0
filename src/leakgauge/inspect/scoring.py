"""How near a guess comes to known records, in the metric of their domain, and whether noise could have come as near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats
from torch import Tensor

from leakgauge import metrics
from leakgauge.inspect.comparison import threshold
from leakgauge.meaning import CAP
from leakgauge.metrics import DomainMetrics
from leakgauge.types import Domain, Metric, Records

DECIBEL = "dB"
VISIBLE = 1.0
"""Smaller gains in decibels cannot be seen, whatever their spread."""
CENTRE = 0.08
"""A guess in the middle of a normal column is within a tenth of its standard deviation so often. Guesses from noise may
all lie far outside, by their scale alone, and would make a single hit look rare."""

Scores = tuple[float, ...]


@dataclass(frozen=True)
class Ruler:
    """The metric that known records are scored with, and a test of its scores against those of noise.

    It is the domain's own in decibels where it has one (PSNR of images of any size), else its judge: the share of a
    row's features. Decibels of several draws of noise are about normal. A share moves in steps, and those of a few
    draws may all be equal: it is beyond noise if so many of ``places`` come out by chance with probability ``level`` at
    most (a binomial tail, each as often as of noise, and as a guess in the middle of the data), or if the record is
    recovered exactly.
    """

    metric: Metric
    own: DomainMetrics
    places: int

    @classmethod
    def of(cls, domain: Domain) -> Ruler:
        """A DomainError where records of the domain cannot be compared."""
        own = metrics.of(domain)
        shown = next((one for one in own.all if one.meaning.unit == DECIBEL), own.judge)
        varying = [feature for feature in domain.features if feature.varies]
        return cls(shown, own, len(varying) or domain.size)

    @property
    def in_decibels(self) -> bool:
        return self.metric.meaning.unit == DECIBEL

    def scores(self, guesses: Sequence[Tensor], known: Records) -> Scores:
        """The score of each known record with its best match in any of the guesses ``[B, …]``."""
        return _best(self.metric, guesses, known)

    def beyond(self, guesses: Sequence[Tensor], noise: Sequence[Tensor], known: Records, level: float) -> list[bool]:
        """Which known records are nearer to the guesses than to any guess from noise, and beyond the spread of these.

        ``level`` is the chance of a wrong word over all of them.
        """
        own, each = self.scores(guesses, known), level / max(1, len(known))
        by_record = list(zip(*(self.scores([one], known) for one in noise), strict=True))
        if self.in_decibels:
            limits = [max(threshold(some, level=each, least=0.0), max(some) + VISIBLE) for some in by_record]
            return [score > limit for score, limit in zip(own, limits, strict=True)]
        of_noise = [score for some in by_record for score in some]
        chance = max(CENTRE, sum(of_noise) / max(1, len(of_noise)))
        tails = stats.binom.sf([round(score * self.places) - 1 for score in own], self.places, chance)
        more = [
            score > max(some) and bool(tail <= each) for score, some, tail in zip(own, by_record, tails, strict=True)
        ]
        return [a or b for a, b in zip(more, self._recovered(guesses, noise, known), strict=True)]

    def _recovered(self, guesses: Sequence[Tensor], noise: Sequence[Tensor], known: Records) -> list[bool]:
        """Which known records come out exactly, and never of noise."""
        ours, theirs = (_best(self.own.exactness, some, known) for some in (guesses, noise))
        return [a >= self.own.exact > b for a, b in zip(ours, theirs, strict=True)]


def _best(metric: Metric, guesses: Sequence[Tensor], known: Records) -> Scores:
    by_guess = [[float(metric(one, x.expand_as(one)).max()) for x in known.inputs.to(one)] for one in guesses]
    return tuple(min(CAP, max(some)) for some in zip(*by_guess, strict=True))
