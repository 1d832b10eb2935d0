"""Discrete channels: how much an observation increases an adversary's gain, and an upper limit on that.

A channel is a matrix of rows ``p(y | x)``, one per secret. A gain ``g(w, x) ≥ 0`` is the value of the guess w when
the secret is x. Identity gain and uniform prior give the success of guessing exactly, and attain the capacity.

References:
    Alvim et al., The Science of Quantitative Information Flow, 2020, chapters 4-8.
    Biswas et al., Bayes' capacity …, 2024, section II. https://arxiv.org/abs/2406.13569. Its Lemma II.1 says that
    deterministic pre-processing leaves the capacity equal; that needs a map onto all rows, otherwise it can fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from leakgauge.errors import DomainError
from leakgauge.special import Array

_FORMULA = "discrete channel"


@dataclass(frozen=True, eq=False)
class Channel:
    """A channel of finitely many secrets and observations: ``matrix[x, y] = p(y | x)``."""

    matrix: Array

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise DomainError(f"the matrix must have shape [secrets, observations], got {matrix.shape}", where=_FORMULA)
        if not (matrix >= 0).all() or not np.allclose(matrix.sum(1), 1, rtol=0, atol=1e-9):
            raise DomainError(
                "every row must be a probability distribution: entries ≥ 0, sum 1",
                remedy="write rows like 0.9,0.1;0.2,0.8",
                where=_FORMULA,
            )
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @property
    def capacity(self) -> float:
        """``Σ_y max_x p(y | x)``: the largest leakage over all priors and gains."""
        return float(self.matrix.max(0).sum())

    def then(self, after: Channel) -> Channel:
        """This channel followed by ``after`` (post-processing). The capacity is at most that of either channel."""
        if self.matrix.shape[1] != after.matrix.shape[0]:
            raise DomainError(
                f"{self.matrix.shape[1]} observations do not fit {after.matrix.shape[0]} inputs", where=_FORMULA
            )
        return Channel(self.matrix @ after.matrix)

    def times(self, other: Channel) -> Channel:
        """Two independent secrets through two independent channels; the capacities multiply."""
        return Channel(np.kron(self.matrix, other.matrix).astype(np.float64))

    def beside(self, other: Channel) -> Channel:
        """One secret, observed through both channels independently; capacity at most the product."""
        if len(self.matrix) != len(other.matrix):
            raise DomainError(
                f"{len(self.matrix)} and {len(other.matrix)} secrets differ",
                remedy="give channels of the same secret",
                where=_FORMULA,
            )
        return Channel(np.einsum("xy,xz->xyz", self.matrix, other.matrix).reshape(len(self.matrix), -1))


def prior_vulnerability(prior: ArrayLike, gain: ArrayLike) -> float:
    """``V_g(π) = max_w Σ_x π_x g(w, x)``: the best expected gain without an observation. ``gain`` is
    ``[guesses, secrets]``."""
    pi, g = _checked(prior, gain)
    return float((g @ pi).max())


def posterior_vulnerability(prior: ArrayLike, gain: ArrayLike, channel: Channel) -> float:
    """``V_g(π, C) = Σ_y max_w Σ_x π_x p(y | x) g(w, x)``: the best expected gain with the observation."""
    pi, g = _checked(prior, gain)
    if len(pi) != len(channel.matrix):
        raise DomainError(
            f"a prior over {len(pi)} secrets does not fit {len(channel.matrix)} rows",
            remedy="give one probability per row",
            where=_FORMULA,
        )
    return float((g @ (pi[:, None] * channel.matrix)).max(0).sum())


def leakage(prior: ArrayLike, gain: ArrayLike, channel: Channel) -> float:
    """``L_g(π, C) = V_g(π, C) / V_g(π)``, multiplicative; in [1, capacity]."""
    before = prior_vulnerability(prior, gain)
    if before <= 0:
        raise DomainError("the gain must be positive for some guess at a possible secret, got 0", where=_FORMULA)
    return posterior_vulnerability(prior, gain, channel) / before


def deterministic(targets: ArrayLike, observations: int) -> Channel:
    """The channel of a map: secret x always gives observation ``targets[x]``."""
    at = np.asarray(targets)
    if at.ndim != 1 or not np.issubdtype(at.dtype, np.integer) or not ((at >= 0) & (at < observations)).all():
        raise DomainError(f"targets must be integers in 0..{observations - 1}, got {targets!r}", where=_FORMULA)
    return Channel(np.eye(observations)[at])


def _checked(prior: ArrayLike, gain: ArrayLike) -> tuple[Array, Array]:
    pi, g = np.asarray(prior, dtype=np.float64), np.asarray(gain, dtype=np.float64)
    if pi.ndim != 1 or not (pi >= 0).all() or not abs(pi.sum() - 1) <= 1e-9:
        raise DomainError(
            "the prior must be a probability distribution: entries ≥ 0, sum 1",
            remedy="write it like 0.25,0.75",
            where=_FORMULA,
        )
    if g.ndim != 2 or g.shape[1] != len(pi) or not (g >= 0).all() or not np.isfinite(g).all():
        raise DomainError(f"the gain must be ≥ 0, finite, of shape [guesses, {len(pi)}], got {g.shape}", where=_FORMULA)
    return pi, g
