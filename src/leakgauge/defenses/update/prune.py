"""Pruning: at random, or by magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor, nn

from leakgauge import guards
from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart, draw
from leakgauge.defenses.update.promises import Sensitivity
from leakgauge.expr import register
from leakgauge.laws import Bernoulli
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates
from leakgauge.updates import Sloped, Slopes, excess, masked, trees


@register("defense", "random_prune")
@dataclass(frozen=True, repr=False)
class RandomPrune(UpdatePart):
    """Set each entry to zero with probability p, without looking at it.

    ``o = m ⊙ u, m_e ~ Bernoulli(1 − p)``. Before noise and with the mask granted, the density is the noise's at
    ``m ⊙ u``; with the mask hidden it is the mixture ``(1 − p) f(o_e − u_e) + p f(o_e)`` entry by entry. After
    noise the mask is visible (noise is never exactly zero) and the density covers what was kept.

    Caveat: the "Bayes optimal" pruning attack of the paper's released code knows the mask; say which one you ran.

    References:
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022. https://arxiv.org/abs/2111.04706
    """

    p: float
    post_processing: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_fraction("random_prune", self.p)

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("mask", per="entry", law=Bernoulli(self.p), visible=_nonzero),)

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before.pruned(keep=1 - self.p)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        mask = trees.mapped(lambda u: (draw(u, generator, torch.rand) >= self.p).to(u.dtype), update)
        return Release(trees.mapped(torch.mul, update, mask), {"mask": mask})

    def apply(self, update: Updates, known: Known) -> Updates | None:
        return update.mapped(masked, known["mask"]) if "mask" in known else None

    def before(self, density: EntryDensity) -> EntryDensity:
        hat = None if density.log_hat is None else _mixture(density.log_hat, self.p)
        log, log_mass = _mixture(density.log, self.p), _mixture(density.log_mass, self.p)
        return replace(density, log=log, log_mass=log_mass, log_hat=hat)

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity:
        if self.p == 0:
            return density
        survives, dropped = _log_odds(self.p)

        def log(u: Tensor, o: Tensor) -> Tensor:
            inner = survives + density.log(u, o)
            zero = torch.full_like(inner, dropped)
            # a zero may have been one before, by another pruning
            return torch.where(o == 0, torch.logaddexp(inner, zero) if density.atom else zero, inner)

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            inside = torch.where((low < 0) & (high > 0), dropped, -math.inf)
            return torch.logaddexp(survives + density.log_mass(u, low, high), inside)

        def log_hat(u: Tensor, o: Tensor, below: Tensor, above: Tensor) -> Tensor:
            assert density.log_hat is not None
            under = 1 - torch.where(o > 0, o / below, -o / above).clamp(max=1.0)  # the hat at zero
            return torch.logaddexp(survives + density.log_hat(u, o, below, above), dropped + under.log())

        hat = None if density.log_hat is None else log_hat
        return EntryDensity(log, log_mass, atom=True, lattice=density.lattice, log_hat=hat)

    @classmethod
    def neutral(cls) -> Self:
        return cls(p=0.0)


class Thresholded(UpdatePart):
    """What parts share that keep the entries with ``|u_e| ≥ τ``, where τ is an order statistic of a group of tensors.

    Everybody sees the smallest survivor, which is τ itself; and where more zeros are seen than were pruned,
    τ = 0: nothing was pruned, and every zero is a true one (dead units have many).
    """

    post_processing: ClassVar[bool] = True

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before.norm_only()

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        return (Nuisance("threshold", per="tensor", visible=lambda observed: self.visible(observed)["threshold"]),)

    @property
    def share(self) -> float:
        """The share of entries that survives."""
        raise NotImplementedError

    def groups(self, names: Sequence[str]) -> list[list[str]]:
        """The tensors that share a threshold."""
        raise NotImplementedError

    def pruned(self, entries: int) -> int:
        """How many of so many entries become zero at most (ties with τ survive)."""
        raise NotImplementedError

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        threshold: dict[str, Tensor] = {}
        for group in self.groups(list(update)):
            magnitudes = torch.cat([update[name].abs().flatten() for name in group])
            rank = self.pruned(magnitudes.numel()) + 1
            least = magnitudes.new_zeros(()) if self == self.neutral() else magnitudes.kthvalue(rank).values
            threshold |= {name: least.view([1] * update[name].dim()) for name in group}
        threshold = {name: threshold[name] for name in update}
        observed = trees.mapped(lambda u, t: torch.where(u.abs() < t, torch.zeros_like(u), u), update, threshold)
        return Release(observed, {"threshold": threshold})

    def visible(self, observed: Tree) -> dict[str, Tree]:
        return self._read_off(observed, alone=True)

    def covered(self, observed: Tree) -> dict[str, Tree]:
        return self._read_off(observed, alone=False)

    def _read_off(self, observed: Tree, *, alone: bool) -> dict[str, Tree]:
        threshold: dict[str, Tensor] = {}
        for group in self.groups(list(observed)):
            rows = len(observed[group[0]])
            entries = torch.cat([observed[name].reshape(rows, -1) for name in group], 1)
            least = smallest_survivor(entries)
            if alone:  # later parts make zeros of their own
                true_zeros = (entries == 0).sum(1, keepdim=True) > self.pruned(entries.shape[1])
                least = torch.where(true_zeros, torch.zeros_like(least), least)
            threshold |= {name: least.view(-1, *[1] * (observed[name].dim() - 1)) for name in group}
        threshold = {name: threshold[name] for name in observed}
        return {"threshold": threshold, "kept": trees.mapped(lambda o: o != 0, observed)}

    def apply(self, update: Updates, known: Known) -> Updates | None:
        """With the survivors in sight: theirs as they are, and of a zero only the excess over τ.

        A candidate whose entry is below τ where a zero was seen explains it perfectly, so the excess is what
        a matching loss should punish; it is continuous in the update, unlike the hard map.
        """
        if self == self.neutral():
            return update
        if "threshold" not in known:
            return None
        threshold = known["threshold"]
        if "kept" not in known:
            return update.mapped(lambda u, t: torch.where(u.abs() < t, torch.zeros_like(u), u), threshold)
        return update.mapped(excess, threshold, known["kept"])

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity | None:
        if self == self.neutral():
            return density
        if "threshold" not in known:
            return None
        t = known["threshold"]

        def log(u: Tensor, o: Tensor) -> Tensor:
            pruned = torch.where(o == 0, density.log_mass(u, -t, t), -math.inf)
            # with τ = 0 (zeros enough before this part) nothing was pruned, and a zero is what it was
            return torch.where(o.abs() < t, pruned, density.log(u, o))

        def log_mass(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
            least = (1 - 1e-4) * t if density.lattice else t  # a level that is τ survives
            left = density.log_mass(u, torch.minimum(low, -least), torch.minimum(high, -least))
            right = density.log_mass(u, torch.maximum(low, least), torch.maximum(high, least))
            atom = torch.where((low < 0) & (high > 0), density.log_mass(u, -t, t), -math.inf)
            pruned = torch.logaddexp(torch.logaddexp(left, right), atom)
            return torch.where(t > 0, pruned, density.log_mass(u, low, high))

        return EntryDensity(log, log_mass, atom=True, lattice=density.lattice)


@register("defense", "prune")
@dataclass(frozen=True, repr=False)
class MagnitudePrune(Thresholded):
    """Keep only the largest entries of each tensor.

    Zero where ``|u_e| < τ``, with τ the p-quantile of ``|u|`` in that tensor (strict, so ties survive). After
    noise, the density of what is seen given τ is the noise's for a survivor, and for a zero the probability of
    the interval ``(−τ, τ)``. An adversary to whom τ is not granted reads it off: it is the smallest surviving
    magnitude, or 0 where more zeros are seen than were pruned.

    References:
        Zhu et al., Deep Leakage from Gradients, 2019, section 5.2; Huang et al., Evaluating Gradient Inversion
        Attacks and Defenses, 2021 (GradPrune, per-tensor quantile). https://arxiv.org/abs/2112.00059
    """

    p: float

    def __post_init__(self) -> None:
        _check_fraction("prune", self.p)

    @property
    def share(self) -> float:
        return 1 - self.p

    def groups(self, names: Sequence[str]) -> list[list[str]]:
        return [[name] for name in names]

    def pruned(self, entries: int) -> int:
        # an order statistic, since torch.quantile refuses tensors above 16 million entries
        return min(math.ceil(self.p * entries), entries - 1)

    @classmethod
    def neutral(cls) -> Self:
        return cls(p=0.0)


def _nonzero(observed: Tree) -> Tree:
    return trees.mapped(lambda o: (o != 0).to(o.dtype), observed)


def smallest_survivor(observed: Tensor) -> Tensor:
    """The smallest non-zero magnitude in each row of ``[M, …]``, as ``[M, 1, …]`` (0 where nothing survived)."""
    size = observed.abs().reshape(len(observed), -1)
    least = torch.where(size > 0, size, torch.inf).amin(1)
    least = torch.where(least.isfinite(), least, torch.zeros_like(least))
    return least.view(-1, *[1] * (observed.dim() - 1))


def _mixture(log: Callable[..., Tensor], p: float) -> Callable[..., Tensor]:
    """``log((1 − p) e^{log(u, …)} + p e^{log(0, …)})``.

    Where a slope is known, the density vanishes nowhere, and this is the first term plus a softplus of the odds of the
    other (``torch.logaddexp`` says the same ten times slower). Elsewhere either term may be minus infinity, or both.
    """
    survives, dropped = _log_odds(p)

    def anywhere(u: Tensor, *at: Tensor) -> Tensor:
        first, second = survives + log(u, *at), dropped + log(torch.zeros_like(u), *at)
        gap = first.clamp(min=_IMPOSSIBLE) - second.clamp(min=_IMPOSSIBLE)
        return torch.maximum(first, second) + torch.log1p(torch.exp(-gap.abs()))

    if not isinstance(log, Sloped) or log.gain is None:
        return anywhere

    def value(u: Tensor, *at: Tensor) -> Tensor:
        inner = log(u, *at)
        odds = dropped - survives + log(torch.zeros_like(u), *at) - inner
        return survives + inner + nn.functional.softplus(odds, threshold=40.0)  # torch's 20 is coarse for float64

    sloped, gain = log, log.gain

    def both(u: Tensor, *at: Tensor) -> Slopes:
        odds = gain(u, *at, shift=survives - dropped)  # of having survived
        total, slope, factor = sloped.both(u, *at)
        chosen = torch.sigmoid(odds)
        return total + survives * u.numel() - _sum_log_sigmoid(odds, chosen), slope.mul_(chosen), factor

    return Sloped(value, both)


def _sum_log_sigmoid(x: Tensor, sigmoid: Tensor) -> Tensor:
    """``Σ log σ(x)`` from both: one logarithm for the product of 16, or where that might vanish, entry by entry."""
    flat = sigmoid.view(-1)
    end = len(flat) // 16 * 16
    products = torch.cat([flat[:end].view(16, -1).prod(0), flat[end:]])
    if float(products.min()) > _VANISHING:
        return products.log_().sum()
    # log σ(x) = min(x, 0) + log max(σ, 1 − σ)
    return x.clamp(max=0).add_(torch.maximum(sigmoid, 1 - sigmoid).log_()).sum()


_IMPOSSIBLE = -1e30  # in the place of minus infinity: a difference of two of those is no number
_VANISHING = 1e-30  # a product above it has kept its digits, even in single precision


def _log_odds(p: float) -> tuple[float, float]:
    """``log(1 − p), log p``."""
    return math.log1p(-p), math.log(p) if p else -math.inf


def _check_fraction(part: str, p: float) -> None:
    guards.inside(p, "p", part, 0.0, 1.0, closed_low=True)
