"""Slow references in arbitrary precision (mpmath), derived on other ways than the code they check.

mpmath comes with ``pip install leakgauge[dev]``.
"""

from __future__ import annotations

from typing import Any


def gaussian_log_capacity(dim: int, a: float, *, digits: int = 50) -> Any:
    """Ball plus tail, ``∫₀^∞ (s + a)^{p−1} e^{−s²/2} ds`` by tanh-sinh quadrature: the theorem before its expansion."""
    from mpmath import mp

    with mp.workdps(digits):
        a, p = mp.mpf(a), mp.mpf(dim)
        log_front = (1 - p / 2) * mp.log(2) - mp.loggamma(p / 2)
        log_ball = p * mp.log(a) - p / 2 * mp.log(2) - mp.loggamma(p / 2 + 1)
        mode = max(mp.mpf(0), (mp.sqrt(a * a + 4 * (p - 1)) - a) / 2)

        def exponent(s: Any) -> Any:
            return (p - 1) * mp.log(s + a) - s * s / 2

        top = exponent(mode)
        cuts = [mp.mpf(0)] + [mode + j for j in (-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16) if mode + j > 0]
        log_tail = log_front + top + mp.log(mp.quad(lambda s: mp.exp(exponent(s) - top), cuts))
        largest = max(log_ball, log_tail)
        return largest + mp.log(mp.exp(log_ball - largest) + mp.exp(log_tail - largest))


def gaussian_log_capacity_sum(dim: int, a: float, *, digits: int = 50) -> Any:
    """The theorem's own sum of p terms (with the corrected coefficient), at σ = 1 and R = a."""
    from mpmath import mp

    with mp.workdps(digits):
        a, p, root = mp.mpf(a), mp.mpf(dim), mp.sqrt(2)
        gammas = [mp.gamma(p / 2), mp.gamma((p - 1) / 2) if dim > 1 else mp.mpf(0)]
        total, binomial, power, scale = mp.mpf(0), mp.mpf(1), mp.mpf(1), root**p
        for i in range(dim):
            if i >= 2:
                gammas.append(gammas[i - 2] / ((p - i) / 2))
            total += gammas[i] * scale * binomial * power
            binomial, power, scale = binomial * (p - 1 - i) / (i + 1), power * a, scale / root
        front = 1 / (mp.gamma(p / 2) * mp.mpf(2) ** (p / 2))
        return mp.log(front * total + a**p / (mp.mpf(2) ** (p / 2) * mp.gamma(p / 2 + 1)))


def vmf_log_capacity(dim: int, kappa: float, *, digits: int = 40) -> Any:
    """``−log E[e^{κ(cos θ − 1)}]`` over the uniform sphere, by tanh-sinh quadrature in the angle."""
    from mpmath import mp

    with mp.workdps(digits):
        k, p = mp.mpf(kappa), mp.mpf(dim)
        if dim == 1:
            return mp.log(2 / (1 + mp.exp(-2 * k)))
        d = (p - 2) + mp.sqrt((p - 2) ** 2 + 4 * k * k)
        sine, cosine = mp.sqrt(2 * (p - 2) / d), 2 * k / d
        mode = mp.atan2(sine, cosine)
        width = 1 / mp.sqrt((p - 2) / sine**2 + k * cosine if dim > 2 else k)

        def exponent(t: Any) -> Any:
            return ((p - 2) * mp.log(mp.sin(t)) if dim > 2 else 0) - 2 * k * mp.sin(t / 2) ** 2

        top = exponent(mode)
        inner = [mode + j * width for j in (-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32)]
        cuts = [mp.mpf(0)] + [c for c in inner if 0 < c < mp.pi]
        if mode + 32 * width >= mp.pi:
            cuts.append(mp.pi)
        integral = mp.quad(lambda t: mp.exp(exponent(t) - top) if t > 0 or dim == 2 else mp.mpf(0), cuts)
        return mp.log(mp.beta((p - 1) / 2, mp.mpf(1) / 2)) - top - mp.log(integral)


def vmf_log_capacity_bessel(dim: int, kappa: float, *, digits: int = 40) -> Any:
    """The theorem as printed, with mpmath's Bessel function; practical for p and κ up to some thousands."""
    from mpmath import mp

    with mp.workdps(digits):
        k, half = mp.mpf(kappa), mp.mpf(dim) / 2
        bessel = mp.besseli(half - 1, k)
        return mp.log(2 / mp.gamma(half) * k ** (half - 1) / (mp.mpf(2) ** half * bessel)) + k


def relative_error(value: float, exact: Any) -> float:
    """The error the bar is set on: relative, but absolute where the log is below 1."""
    return float(abs(value - exact) / max(1, abs(exact)))
