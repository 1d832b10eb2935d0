"""Special functions without cancellation: what is left when the large terms are gone."""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

# B_2k / (2k (2k − 1)), k = 1…8: from z = 8 on the first term left out is below 1e-16
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_STIRLING_FROM = 8.0


@overload
def stirling_tail(z: float) -> float: ...
@overload
def stirling_tail(z: Array) -> Array: ...
def stirling_tail(z: float | Array) -> float | Array:
    """``μ(z) = log Γ(z + 1) − (z log z − z + ½ log 2πz)``, for z > 0: what Stirling's formula leaves out.

    Where two large log Γ nearly cancel, write both as Stirling's formula and let the main terms cancel on
    paper: what remains is a difference of these tails, each exact to about 1e-17 for large z
    (1e-15 for small z).
    """
    z = np.asarray(z, dtype=np.float64)
    far = np.maximum(z, _STIRLING_FROM)
    tail = np.polynomial.polynomial.polyval(far**-2, _STIRLING) / far
    near = np.minimum(z, _STIRLING_FROM)
    direct = special.gammaln(near + 1) - (special.xlogy(near, near) - near + 0.5 * np.log(2 * np.pi * near))
    result = np.where(z < _STIRLING_FROM, direct, tail)
    return float(result) if result.ndim == 0 else result


@overload
def log1pmx(x: float) -> float: ...
@overload
def log1pmx(x: Array) -> Array: ...
def log1pmx(x: float | Array) -> float | Array:
    """``log(1 + x) − x`` for x > −1, to full relative precision near zero.

    With ``r = x / (2 + x)``: ``log(1 + x) = 2 artanh r`` and ``2r − x = −x r``, hence
    ``−x r + 2 r³ (1/3 + r²/5 + r⁴/7 + …)``.
    """
    x = np.asarray(x, dtype=np.float64)
    small = np.clip(x, -0.4, 0.6)
    r = small / (2 + small)
    series = np.polynomial.polynomial.polyval(r * r, _ARTANH)
    result = np.where(x == small, -small * r + 2 * r**3 * series, np.log1p(x) - x)
    return float(result) if result.ndim == 0 else result


# |r| ≤ 1/4 above: r^(2·14) < 1e-16
_ARTANH = tuple(1 / (2 * k + 3) for k in range(14))


def legendre(nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [−1, 1]; computed once per size."""
    if nodes not in _LEGENDRE:
        _LEGENDRE[nodes] = np.polynomial.legendre.leggauss(nodes)
    return _LEGENDRE[nodes]


_LEGENDRE: dict[int, tuple[Array, Array]] = {}


def log_sphere_area(dim: int) -> float:
    """``log A(S^{p−1}) = log 2 + (p/2) log π − log Γ(p/2)``, the area of the unit sphere of ``R^p``."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)
