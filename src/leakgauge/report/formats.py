"""Numbers as people read them; the same in every format of the report."""

from __future__ import annotations

import math
import re

from leakgauge.audit.judge.values import Bound, Defense, Encoding, Figure, Interval, Rate
from leakgauge.meaning import Meaning

NO_BOUND = "no proven bound"
NOTHING = "100 %: proves nothing"
_POWER = re.compile(r"\be\^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_ACCOUNTANT = re.compile(r", by (exact|rdp|pld)$")


def gain(interval: Interval | None, metric: Meaning) -> str:
    """``+0.71 [+0.60, +0.81]``; of a single update there is no interval."""
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return metric.signed(interval.mean)
    return f"{metric.signed(interval.mean)} [{metric.signed(interval.low)}, {metric.signed(interval.high)}]"


def p_value(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def p_sign(p: float) -> str:
    """``= 0.03``, ``< 0.001``: to be put behind a p."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def accuracy(defense: Defense) -> str:
    """``83 %``; of several seeds the mean and the ends, ``83 % (81 to 84)``."""
    reached = defense.accuracies
    if len(reached) < 2:
        return share(defense.accuracy)
    return f"{share(sum(reached) / len(reached))} ({100 * min(reached):.0f} to {100 * max(reached):.0f})"


def rate(value: Rate | None) -> str:
    return "–" if value is None else share(value.rate)


def bound(value: Bound | None) -> str:
    if value is None or value.ceiling is None:
        return NO_BOUND
    return NOTHING if value.ceiling > 0.9995 else f"at most {100 * value.ceiling:.3g} %"


def proven(figure: Figure) -> str:
    """The sentence of a proven number without what only its authors read: an accountant's name, powers of e."""
    return _POWER.sub(lambda power: _factor(float(power[1])), _ACCOUNTANT.sub("", figure.sentence))


def _factor(log: float) -> str:
    """``e^log`` as a number; as its count of digits from a million on."""
    digits = log / math.log(10)
    if digits < 6:
        return f"{math.exp(log):,.4g}"
    return f"a number of {math.floor(digits) + 1:,} digits"


def encoding(value: Encoding | None) -> str:
    """``8 of 8``: encodings that reach the leak threshold and beat every null."""
    return "–" if value is None else f"{value.recognised} of {value.records}"


def above(defense: Defense, threshold: float | None) -> str:
    """``6 of 6``: records that reach the leak threshold and beat every null."""
    if threshold is None or not defense.records:
        return "–"
    if defense.attack.recognised is not None:
        return f"{defense.attack.recognised} of {len(defense.records)}"
    return f"{sum(r.score >= threshold for r in defense.records)} of {len(defense.records)}"
