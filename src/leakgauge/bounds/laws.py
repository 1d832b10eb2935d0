"""What is proven for each law of noise: capacity, ε, and the ceiling on reconstruction, at a given sensitivity.

Your own law gets a bound by registering its proof::

    @proof_of.register
    def _(law: MyNoise) -> Proof:
        return MyProof(law)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Protocol

from leakgauge.bounds.accounting import epsilon_of
from leakgauge.bounds.capacity import log_capacity_vmf
from leakgauge.bounds.epsilon import laplace_epsilon, vmf_epsilon
from leakgauge.bounds.gaussian_capacity import log_capacity_gaussian
from leakgauge.bounds.laplace_capacity import log_capacity_laplace
from leakgauge.bounds.pruned_capacity import log_capacity_pruned
from leakgauge.bounds.reconstruction import Ceiling, epsilon_ceiling, mu_ceiling, vmf_ceiling, vmf_rounds
from leakgauge.defenses import GaussianNoise, LaplaceNoise, NoiseLaw, Sensitivity, VonMisesFisherNoise
from leakgauge.errors import NoBoundError


def fresh_noise(rounds: int) -> str:
    """What every proof assumes of the noise. The same noise in two rounds is cancelled by their difference."""
    return (
        "the noise is drawn as stated, afresh in every round, independently of everything, and hidden; the same "
        f"records take part in {times(rounds)}"
    )


@dataclass(frozen=True)
class Figure:
    """A proven number with its meaning, or None with the reason why there is none; and its assumptions."""

    value: float | None
    sentence: str
    assumptions: tuple[str, ...] = ()


class Proof(Protocol):
    """What is proven for noise of one law."""

    def log_capacity(self, at: Sensitivity) -> float:
        """Log Bayes capacity of one round, for all records of the client together."""

    def epsilon(self, at: Sensitivity, rounds: int, delta: float | None) -> Figure:
        """ε of all rounds, for one unit of the sensitivity."""

    def ceiling(self, at: Sensitivity, rounds: int, guess: float) -> Ceiling | None:
        """A further ceiling on success, if the best guess succeeds with probability ``guess``; or None."""


@singledispatch
def proof_of(law: NoiseLaw) -> Proof:
    """The proof for a law of noise; :class:`NoBoundError` where none is registered."""
    raise NoBoundError(f"no proof is registered for the law {law!r}", remedy="register one with bounds.proof_of")


@dataclass(frozen=True)
class GaussianProof:
    """For ``N(0, σ²)`` on every entry: exact capacity of the ball or of the layers, exact ε, exact trade-off."""

    std: float

    def log_capacity(self, at: Sensitivity) -> float:
        if at.keep == 1:
            ball = log_capacity_gaussian(at.dim, at.radius, self.std)
        else:
            ball = log_capacity_pruned(at.dim, at.radius, self.std, at.keep)
        if not at.layers:
            return ball
        return min(ball, math.fsum(log_capacity_gaussian(n, radius, self.std) for n, radius in at.layers))

    def epsilon(self, at: Sensitivity, rounds: int, delta: float | None) -> Figure:
        if delta is None:
            return Figure(None, "an ε of Gaussian noise needs a δ in (0, 1)")
        if at.l2 == 0:
            return Figure(0.0, "nothing of the record reaches the noise", _add_or_remove(at, rounds))
        privacy = epsilon_of(self.std / at.l2, delta=delta, steps=rounds, unit=at.unit)
        return Figure(privacy.epsilon, str(privacy), _add_or_remove(at, rounds))

    def ceiling(self, at: Sensitivity, rounds: int, guess: float) -> Ceiling:
        return mu_ceiling(guess, at.l2 / self.std, rounds=rounds)


@dataclass(frozen=True)
class LaplaceProof:
    """For Laplace noise of one scale on every entry, from the sensitivity in L1; δ = 0."""

    scale: float

    def log_capacity(self, at: Sensitivity) -> float:
        return log_capacity_laplace(at.dim, at.radius_l1, self.scale)

    def epsilon(self, at: Sensitivity, rounds: int, delta: float | None) -> Figure:
        value = rounds * laplace_epsilon(at.l1, self.scale)
        sentence = f"({value:.6g}, 0)-DP if one {at.unit} is added or removed"
        return Figure(value, sentence, _add_or_remove(at, rounds))

    def ceiling(self, at: Sensitivity, rounds: int, guess: float) -> Ceiling:
        return epsilon_ceiling(guess, rounds * laplace_epsilon(at.l1, self.scale))


@dataclass(frozen=True)
class VonMisesFisherProof:
    """For von Mises-Fisher noise: only directions enter, and every direction is possible."""

    concentration: float

    def log_capacity(self, at: Sensitivity) -> float:
        return log_capacity_vmf(at.dim, self.concentration)

    def epsilon(self, at: Sensitivity, rounds: int, delta: float | None) -> Figure:
        value = rounds * vmf_epsilon(self.concentration)
        sentence = f"metric privacy: ε = {value:.6g} between opposite directions (ε = κ·distance), δ = 0"
        return Figure(value, sentence, (fresh_noise(rounds), f"unit: one {at.unit}, replaced, {times(rounds)}"))

    def ceiling(self, at: Sensitivity, rounds: int, guess: float) -> Ceiling | None:
        if at.dim == 1:
            return None
        if rounds == 1:
            return vmf_ceiling(guess, dim=at.dim, concentration=self.concentration)
        return vmf_rounds(guess, at.dim, self.concentration, rounds)


@proof_of.register
def _(law: GaussianNoise) -> Proof:
    return GaussianProof(law.std)


@proof_of.register
def _(law: LaplaceNoise) -> Proof:
    return LaplaceProof(law.scale)


@proof_of.register
def _(law: VonMisesFisherNoise) -> Proof:
    return VonMisesFisherProof(law.concentration)


def times(rounds: int) -> str:
    return "one round" if rounds == 1 else f"{rounds} rounds"


def _add_or_remove(at: Sensitivity, rounds: int) -> tuple[str, ...]:
    return fresh_noise(rounds), f"neighbouring: one {at.unit} added or removed, {times(rounds)}, no subsampling counted"
