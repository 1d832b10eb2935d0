"""Likelihoods: ``log p(observed | x)``, exact for parts with a density, classical matching losses otherwise.

Each is a frozen value called with the updates of N candidates, one round's observed updates, the nuisances
granted or visible, and the protection; it returns ``[N]``, higher is better. Matching losses take per-layer
``weights`` (a mapping by layer or tensor name, or ``"exponential"``: ``e^{−l}`` from the first layer on) and
``drop`` (layers or tensors left out).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.simulation.stand_ins import StandIn
from leakgauge.defenses import Chain, Gaussian, GaussianNoise, LaplaceNoise, Protection, UpdatePart, parts_of
from leakgauge.errors import DomainError, ModelError, NoDensityError, brief, nearest
from leakgauge.expr import Part, check_kind, register
from leakgauge.laws import Uniform
from leakgauge.types import How, Known, Tree, Updates
from leakgauge.updates import Batch, absolute_residual

Weights = Mapping[str, float] | Literal["exponential"] | None


Settled = tuple["Likelihood", How, str]
"""A likelihood that deals with a hidden scale, how it treats it, and that in words."""


class Likelihood(Part):
    """``likelihood(update, observed, known, protection) → [N]``; ``known`` is what is granted or was read off."""

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        raise NotImplementedError

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled | None:
        """The likelihood to use where the update has a hidden positive scale of this law (None: any).

        None where this likelihood knows no rule: the scale is then an unknown of the solver.
        """
        return None

    def sums_out(self, protection: Protection, address: str) -> bool:
        """Whether it sums over the law of a hidden nuisance of the update stage."""
        return False


@dataclass(frozen=True, repr=False)
class Matching(Likelihood):
    """What matching losses share: which tensors count, and how much."""

    weights: Weights = field(default=None, kw_only=True)
    drop: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        with guards.together():
            self.guard_own()

    def guard_own(self) -> None:
        """Guards of the settings, so that a likelihood with more of them can add its own."""
        where = self.expression_name
        if isinstance(self.weights, Mapping):
            for layer, weight in self.weights.items():
                guards.non_negative(weight, f"weights[{layer!r}]", where)
        elif self.weights is not None and self.weights != "exponential":
            what = f"weights must be None, 'exponential' or a mapping, got {brief(repr(self.weights))}"
            guards.refuse(DomainError(what, where=where, remedy="say weights='exponential', or {'layer': 2.0}"))
        if not isinstance(self.drop, tuple | list) or not all(isinstance(name, str) for name in self.drop):
            what = f"drop must be a tuple of layers or tensors, got {brief(repr(self.drop))}"
            guards.refuse(DomainError(what, where=where, remedy="say drop=('layer',)"))

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        names = [name for name in update.names if not any(_names(key, name) for key in self.drop)]
        self._check(update.names, names)
        weight = self._weight(names, next(iter(observed.values())))
        return self.match(update if len(names) == len(update.names) else update.only(names), observed, weight)

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        """The log likelihood up to a constant; ``weight`` is ``[L]``."""
        raise NotImplementedError

    def _weight(self, names: list[str], like: Tensor) -> Tensor:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        weights = self.weights
        if weights is None:
            values = [1.0] * len(names)
        elif weights == "exponential":
            values = [math.exp(-layers.index(name.rpartition(".")[0])) for name in names]
        else:
            values = [next((w for key, w in weights.items() if _names(key, name)), 1.0) for name in names]
        return torch.tensor(values, dtype=like.dtype, device=like.device)

    def _check(self, names: tuple[str, ...], remaining: list[str]) -> None:
        weights = self.weights if isinstance(self.weights, Mapping) else {}
        for key in (*self.drop, *weights):
            if not any(_names(key, name) for name in names):
                raise ModelError(f"no layer or tensor {key!r}", where=repr(self), remedy=nearest(key, names))
        if not remaining:
            raise ModelError("every tensor is dropped", where=repr(self), remedy="drop fewer layers")


def _names(key: str, tensor: str) -> bool:
    """Whether ``key`` names the tensor or a layer that holds it."""
    return tensor == key or tensor.startswith(f"{key}.")


@register("likelihood", "l2")
@dataclass(frozen=True, repr=False)
class L2(Matching):
    """``−‖u − o‖²``: Gaussian noise of unknown size.

    ``relative`` divides by ``‖o‖²``: a prior's weight, or a solver's target, then means the same for every update.

    References:
        Zhu et al., Deep Leakage from Gradients, 2019. https://arxiv.org/abs/1906.08935
    """

    relative: bool = field(default=False, kw_only=True)

    def guard_own(self) -> None:
        super().guard_own()
        guards.flag(self.relative, "relative", self.expression_name)

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        matched = -update.distance(observed) @ weight
        return matched / _received(update, observed, weight) if self.relative else matched

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled:
        fitted = ScaledL2(weights=self.weights, drop=self.drop, relative=self.relative)
        return fitted, "optimised", "the scale that fits best is taken for every candidate, in closed form"


@register("likelihood", "l1")
@dataclass(frozen=True, repr=False)
class L1(Matching):
    """``−‖u − o‖₁``: Laplace noise of unknown size."""

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        return -update.entries(absolute_residual, observed) @ weight


@register("likelihood", "cosine")
@dataclass(frozen=True, repr=False)
class Cosine(Matching):
    """``⟨u, o⟩ / (‖u‖ ‖o‖) − 1``: blind to any positive scale (clipping, a hidden learning rate).

    Weights act on the dot product and on both norms.

    References:
        Geiping et al., Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
    """

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        tiny = torch.finfo(weight.dtype).tiny
        dot, square = update.dot(observed) @ weight, update.square() @ weight
        received = update.received(observed) @ weight
        # one root each: the product of two squares leaves float32 where the lengths do not
        return dot / (square.clamp(min=tiny).sqrt() * received.clamp(min=tiny).sqrt()) - 1

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled:
        return self, "cancelled", "cancelled by a scale-free likelihood"


@register("likelihood", "scaled_l2")
@dataclass(frozen=True, repr=False)
class ScaledL2(Matching):
    """``−min_{s ≥ 0} ‖s u − o‖²``: Gaussian noise on an update of unknown positive scale.

    The best scale is ``s* = max(0, ⟨u, o⟩ / ‖u‖²)``; by the envelope theorem it counts as a constant in the gradient.
    ``relative`` divides by ``‖o‖²``: a solver's target then means the same whatever the hidden scale.
    """

    relative: bool = field(default=False, kw_only=True)

    def guard_own(self) -> None:
        super().guard_own()
        guards.flag(self.relative, "relative", self.expression_name)

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        tiny = torch.finfo(weight.dtype).tiny
        scale = (update.dot(observed) @ weight / (update.square() @ weight).clamp(min=tiny)).clamp(min=0).detach()
        matched = -update.scaled(scale).distance(observed) @ weight
        return matched / _received(update, observed, weight) if self.relative else matched

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled:
        return self, "optimised", "the scale that fits best is taken for every candidate, in closed form"


def _received(update: Updates, observed: Tree, weight: Tensor) -> Tensor:
    """``‖o‖²``."""
    return (update.received(observed) @ weight).clamp(min=torch.finfo(weight.dtype).tiny)


@register("likelihood", "density")
@dataclass(frozen=True, repr=False)
class Density(Likelihood):
    """``log p(observed | u)`` of the protection itself: the likelihood of the Bayes adversary.

    ``assumed`` replaces the protection by what the adversary believes it to be, right or wrong. ``fitted`` first gives
    the candidate its scale of least squares, ``⟨u, o⟩ / ‖u‖²``: for updates of hidden scale. It is differentiated,
    since other noise than Gaussian is not at its best there.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022. https://arxiv.org/abs/2111.04706
    """

    assumed: UpdatePart | None = None
    fitted: bool = False

    def __post_init__(self) -> None:
        with guards.together():
            if self.assumed is not None and not isinstance(self.assumed, UpdatePart):
                what = f"assumed must be a defense of the update stage, got {brief(repr(self.assumed))}"
                guards.refuse(DomainError(what, where="density", remedy="say assumed=gaussian(std=0.1)"))
            guards.flag(self.fitted, "fitted", "density")

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        if self.fitted:
            update = update.scaled(_least_squares(update, observed))
        chain = protection.chain if self.assumed is None else Chain(parts_of(self.assumed))
        return chain.log_density(observed, update, known=known)

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled | None:
        noise = (self.assumed or protection.update).noise_law
        if isinstance(noise, LaplaceNoise):
            words = "the scale of least squares is taken for every candidate, in closed form"
            return replace(self, fitted=True), "optimised", words
        if not isinstance(noise, GaussianNoise):
            return None
        low, high = law.support if law is not None else (0.0, math.inf)
        summed = Marginal(std=noise.std, low=low, high=high)
        return summed, "summed out", "summed out under Gaussian noise"

    def sums_out(self, protection: Protection, address: str) -> bool:
        return (protection.chain if self.assumed is None else Chain(parts_of(self.assumed))).sums_out(address)


@register("likelihood", "marginal")
@dataclass(frozen=True, repr=False)
class Marginal(Likelihood):
    """``log ∫ N(o; s u, σ²) ds / (b − a)`` over ``s ~ U(a, b)``: Gaussian noise on an update of hidden scale.

    With ``s* = ⟨u, o⟩ / ‖u‖²`` and ``τ = σ / ‖u‖`` it is
    ``−‖s* u − o‖² / 2σ² + log(τ √2π) + log[Φ((b − s*)/τ) − Φ((a − s*)/τ)] − log(b − a) − P log(σ √2π)``.
    a and b are ``low`` and ``high``, else those of the protection's training stage; an infinite b means any positive
    scale, all equally likely. σ is ``std``, or that of the protection's noise; without noise, it says how closely the
    adversary wants the update to be matched.
    """

    std: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        with guards.together():
            if self.std is not None:
                guards.positive(self.std, "std", "marginal")
            low = 0.0 if self.low is None else guards.non_negative(self.low, "low", "marginal")
            if self.high is not None:
                guards.inside(self.high, "high", "marginal", low, math.inf, closed_low=True, closed_high=True)

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        std, (low, high) = self._std(protection), self._ends(protection)
        if low == high:
            return Gaussian(std).log_density(observed, _times(update, low), known=known)
        own, dot = update.square().sum(1), update.dot(observed).sum(1)
        own = own.clamp(min=torch.finfo(own.dtype).tiny)
        fitted, width = dot / own, std / own.sqrt()
        matched = Gaussian(std).log_density(observed, update.scaled(fitted.detach()), known=known)
        # an infinite end divided by the width would have no slope
        end = (high - fitted) / width if math.isfinite(high) else torch.full_like(fitted, math.inf)
        mass = _STANDARD(torch.zeros_like(fitted), (low - fitted) / width, end)
        spread = math.log(high - low) if math.isfinite(high) else 0.0
        return matched + (width * math.sqrt(2 * math.pi)).log() + mass - spread

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled:
        return self, "summed out", "summed out under Gaussian noise"

    def _std(self, protection: Protection) -> float:
        if self.std is not None:
            return self.std
        if isinstance(noise := protection.update.noise_law, GaussianNoise):
            return noise.std
        raise NoDensityError(
            f"the hidden scale of {protection!r} is integrated out for Gaussian noise alone",
            remedy="attack with cosine(), which is blind to it, or grant the scale",
        )

    def _ends(self, protection: Protection) -> tuple[float, float]:
        if self.low is not None and self.high is not None:
            return self.low, self.high
        laws = [n.law for part in protection.training for n in part.nuisances]
        if len(laws) != 1 or laws[0] is None:
            raise NoDensityError(f"{protection!r} does not have one hidden scale", remedy="say low and high")
        return laws[0].support


_STANDARD = Gaussian(1.0).entry_density().log_mass


def _least_squares(update: Updates, observed: Tree) -> Tensor:
    """``s* = max(0, ⟨u, o⟩ / ‖u‖²)``."""
    own = update.square().sum(1)
    return (update.dot(observed).sum(1) / own.clamp(min=torch.finfo(own.dtype).tiny)).clamp(min=0)


def _fitted(update: Updates, observed: Tree) -> Tensor:
    """``s* = max(0, ⟨u, o⟩ / Σ_{o ≠ 0} u²)``, by the envelope theorem a constant in the gradient."""
    own = _sent(update, observed)
    fitted = update.dot(observed).sum(1) / own.clamp(min=torch.finfo(own.dtype).tiny)
    return fitted.clamp(min=0).detach()


def scaled_alike(updates: Sequence[Batch], observed: Sequence[Tree], first: Sequence[int]) -> list[Batch]:
    """The updates of all rounds, at one fitted scale for those that share it.

    ``s* = max(0, Σ_r ⟨u_r, o_r⟩ / Σ_r ‖u_r‖²)`` over the entries that were sent. It is differentiated: a likelihood
    that weighs the rounds otherwise is not at its best there, so that the envelope theorem does not hold.
    """
    dots = [one.dot(theirs).sum(1) for one, theirs in zip(updates, observed, strict=True)]
    own = [_sent(one, theirs) for one, theirs in zip(updates, observed, strict=True)]

    def scale(r: int) -> Tensor:
        alike = [k for k, place in enumerate(first) if place == first[r]]
        square = torch.stack([own[k] for k in alike]).sum(0)
        fitted = torch.stack([dots[k] for k in alike]).sum(0) / square.clamp(min=torch.finfo(square.dtype).tiny)
        return fitted.clamp(min=0)

    return [one.scaled(scale(r)) for r, one in enumerate(updates)]


def _sent(update: Updates, observed: Tree) -> Tensor:
    """``Σ_{o ≠ 0} u²``."""
    return update.entries(lambda u, o: torch.where(o == 0, 0.0, u.square()), observed).sum(1)


def _times(update: Updates, scale: float) -> Updates:
    return update.scaled(torch.full_like(update.square()[:, 0], scale))


@register("likelihood", "through")
@dataclass(frozen=True, repr=False)
class Through(Likelihood):
    """A matching loss at what the defense makes of the candidate's update: for deterministic parts.

    Clipping is applied to the candidate as to the victim; of pruned tensors the survivors are matched, and a
    zero is explained by anything smaller than the threshold seen. ``fitted`` first gives the candidate the scale that
    fits the entries that are not zero: for updates of hidden scale.
    """

    likelihood: Matching = field(default_factory=L2)
    fitted: bool = False

    def __post_init__(self) -> None:
        with guards.together():
            check_kind(self.likelihood, "likelihood", "through")
            guards.flag(self.fitted, "fitted", "through")

    def of_hidden_scale(self, protection: Protection, law: Uniform | None) -> Settled | None:
        if any(isinstance(part, StandIn) for part in protection.chain.parts):
            return None  # the scale acts before a map of which only its releases are known
        words = "the scale that fits best is taken for every candidate, in closed form"
        return replace(self, fitted=True), "optimised", words

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        if self.fitted:
            update = update.scaled(_fitted(update, observed))
        moved = protection.chain.apply(update, known)
        if moved is None:
            raise NoDensityError(
                f"what {protection.update!r} did to the update is random or hidden",
                remedy="use density() where there is noise, else cosine()",
            )
        return self.likelihood(moved, observed, known, protection)


l2, l1, cosine, scaled_l2, density, through, marginal = L2, L1, Cosine, ScaledL2, Density, Through, Marginal
