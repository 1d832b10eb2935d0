"""Numbers as people read them; the same in every format of the report."""

from __future__ import annotations

import math
import re

from leakgauge.report.schema import Bound, Defense, Encoding, Excess, Figure, Grant, Rate

NO_BOUND = "no proven bound"
NOTHING = "100 %: proves nothing"
_POWER = re.compile(r"\be\^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_ACCOUNTANT = re.compile(r", by (exact|rdp|pld)$")
CAP = 999.0
"""``result.json`` writes the PSNR of an identical picture as this."""


def score(value: float | None, metric: str) -> str:
    """Two digits of SSIM, one of PSNR."""
    if value is None:
        return "–"
    if metric == "psnr":
        return "identical" if value >= CAP else f"{value:.1f} dB"
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def signed(value: float, metric: str) -> str:
    """A difference, with its sign; of decibels the unit is left out."""
    digits = 1 if metric == "psnr" else 2
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def gain(excess: Excess | Grant | None, metric: str) -> str:
    """``+0.71 [+0.60, +0.81]``."""
    if excess is None:
        return "–"
    low, mean, high = (signed(v, metric) for v in (excess.low, excess.mean, excess.high))
    return f"{mean} [{low}, {high}]"


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
    found = defense.accuracies
    if len(found) < 2:
        return share(defense.accuracy)
    return f"{share(sum(found) / len(found))} ({100 * min(found):.0f} to {100 * max(found):.0f})"


def rate(value: Rate | None) -> str:
    return "–" if value is None else share(value.rate)


def bound(value: Bound | None) -> str:
    if value is None or value.ceiling is None:
        return NO_BOUND
    return NOTHING if value.ceiling > 0.9995 else f"at most {100 * value.ceiling:.3g} %"


def proven(figure: Figure) -> str:
    """The sentence of a proven number without what only its authors read: an accountant's name, powers of e."""
    return _POWER.sub(lambda found: _factor(float(found[1])), _ACCOUNTANT.sub("", figure.sentence))


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
