"""ε of many noisy steps, and the σ needed for a given ε: exact without subsampling, by dp-accounting with it.

References:
    Mironov, Rényi Differential Privacy, 2017. https://arxiv.org/abs/1702.07476
    Koskela, Jälkö and Honkela, Computing Tight Differential Privacy Guarantees Using FFT, 2020 (PLD).
    https://arxiv.org/abs/1906.03049
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Literal

from scipy import optimize

from leakgauge import guards
from leakgauge.bounds.epsilon import Relation, clipping_norms, gaussian_epsilon, gaussian_mu, mu_of_noise
from leakgauge.defenses import Unit
from leakgauge.errors import DomainError, MissingExtraError

Method = Literal["auto", "exact", "rdp", "pld"]
_FORMULA = "privacy accounting"


@dataclass(frozen=True)
class Privacy:
    """An (ε, δ) guarantee with its assumptions.

    ``sigma`` is the noise multiplier (standard deviation over clipping norm), ``rate`` the Poisson sampling
    probability, ``relation`` what neighbouring data sets differ in, ``unit`` what one element of them is.
    """

    epsilon: float
    delta: float
    sigma: float
    rate: float
    steps: int
    method: str
    unit: Unit
    relation: Relation

    def __str__(self) -> str:
        change = {"add-or-remove": "added or removed", "replace": "replaced"}[self.relation]
        return f"({self.epsilon:.6g}, {self.delta:g})-DP if one {self.unit} is {change}, by {self.method}"


def epsilon_of(
    sigma: float,
    *,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    method: Method = "auto",
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
) -> Privacy:
    """ε at δ of ``steps`` Gaussian releases with multiplier σ, each on a Poisson sample of rate q.

    ``exact`` (q = 1) is μ-GDP with ``μ = √T/σ``; ``rdp`` and ``pld`` need ``leakgauge[dp]``; ``auto`` is exact where
    possible, otherwise pld. Both accountants give upper bounds; rdp is looser.
    """
    chosen = _method(method, rate, relation, unit)
    s = guards.positive(sigma, "sigma", _FORMULA)
    d = guards.inside(delta, "delta", _FORMULA, 0.0, 1.0)
    count = guards.count(steps, "steps", _FORMULA)
    epsilon = _epsilon(chosen, s, d, rate, count, relation)
    return Privacy(epsilon, d, s, float(rate), count, chosen, unit, relation)


def sigma_of(
    epsilon: float,
    *,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    method: Method = "auto",
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
) -> Privacy:
    """The smallest multiplier σ that keeps ε, by the accountant of :func:`epsilon_of`; ε is never exceeded.

    The ε of the result is the one that its σ gives, which is at most the requested one.
    """
    chosen = _method(method, rate, relation, unit)
    target = guards.positive(epsilon, "epsilon", _FORMULA)
    d = guards.inside(delta, "delta", _FORMULA, 0.0, 1.0)
    count = guards.count(steps, "steps", _FORMULA)
    cost = partial(_epsilon, chosen, delta=d, rate=rate, steps=count, relation=relation)
    if chosen == "exact":
        sigma = clipping_norms(relation) * math.sqrt(count) / gaussian_mu(target, d)
    else:
        sigma = _solve(cost, target)
    while (reached := cost(sigma)) > target:
        sigma *= 1 + 1e-9
    return Privacy(reached, d, sigma, float(rate), count, chosen, unit, relation)


def _method(method: Method, rate: float, relation: Relation, unit: Unit) -> Literal["exact", "rdp", "pld"]:
    q = guards.inside(rate, "rate", _FORMULA, 0.0, 1.0, closed_high=True)
    guards.choice(method, "method", _FORMULA, ("auto", "exact", "rdp", "pld"))
    guards.choice(relation, "relation", _FORMULA, ("add-or-remove", "replace"))
    guards.choice(unit, "unit", _FORMULA, ("record", "client"))
    if q < 1 and (method == "exact" or relation == "replace"):
        what = "the exact formula" if method == "exact" else "replacing a unit"
        raise DomainError(
            f"rate must be 1 for {what}, got {rate!r}", where=_FORMULA, remedy="use pld or rdp with add-or-remove"
        )
    return ("exact" if q == 1 else "pld") if method == "auto" else method


def _epsilon(method: str, sigma: float, delta: float, rate: float, steps: int, relation: Relation) -> float:
    if method == "exact":
        return gaussian_epsilon(mu_of_noise(sigma, steps=steps, relation=relation), delta)
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant() if method == "rdp" else dp.pld.PLDAccountant()
    # replacing moves the sum by two clipping norms: the same as half the multiplier
    event = dp.GaussianDpEvent(sigma / clipping_norms(relation))
    if rate < 1:
        event = dp.PoissonSampledDpEvent(rate, event)
    accountant.compose(dp.SelfComposedDpEvent(event, steps))
    return float(accountant.get_epsilon(delta))


def _solve(cost: Callable[[float], float], target: float) -> float:
    """The root of ``cost(σ) = target`` in log σ; cost falls with σ."""
    low = high = 1.0
    while cost(low) < target:
        low /= 1.5
    while cost(high) > target:
        high *= 1.5
    if low == high:
        return low
    low, high = (high / 1.5, high) if high > 1 else (low, low * 1.5)
    root = optimize.brentq(lambda x: cost(math.exp(x)) - target, math.log(low), math.log(high), xtol=1e-10)
    return math.exp(float(root))


def _dp_accounting() -> ModuleType:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError:
        raise MissingExtraError(
            "accounting for subsampled noise needs the package dp-accounting, which is not installed",
            where=_FORMULA,
            remedy="pip install 'leakgauge[dp]', or use rate=1",
        ) from None
    return dp_accounting  # type: ignore[no-any-return]
