"""Fisher information of a noisy update about its record: an indicator, and with a prior, a bound on average error.

For ``y = u(x) + σ z`` the information is ``I(x) = JᵀJ/σ²``, with J the Jacobian of the update in x. No attack is
needed. Cramér-Rao holds for **unbiased** estimators only, and reconstructions are biased: a large value is a good sign,
never a proof. Van Trees' inequality holds for all estimators, on average over a prior.

References:
    Hannun, Guo and van der Maaten, Measuring Data Leakage in Machine-Learning Models with Fisher Information, 2021.
    https://arxiv.org/abs/2102.11673
    Van Trees, Detection, Estimation and Modulation Theory, 1968, section 2.4.
    Gill and Levit, Applications of the van Trees Inequality, 1995. https://doi.org/10.2307/3318681
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from leakgauge import guards
from leakgauge.errors import DomainError

_FORMULA = "Fisher information"
UpdateOf = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Indicator:
    """How much a record's update reveals, as a mean squared error per entry. Not a proof (see the module).

    ``cramer_rao = mean(1/λ)`` over the eigenvalues λ of the information, infinite if the update does not depend on some
    direction; ``harmonic = 1/mean(λ)`` is never larger, and finite unless the update does not depend on the record.
    """

    cramer_rao: float
    harmonic: float
    rank: int
    entries: int
    is_proof: bool = False


@dataclass(frozen=True)
class AverageError:
    """A lower limit on the mean squared error per entry of **any** estimator, averaged over a Gaussian prior.

    ``bound`` inverts the information averaged over ``draws`` samples of the prior; by Jensen's inequality it is biased
    upwards when there are few; ``trace_form``, which is smaller, needs only the trace.
    """

    bound: float
    trace_form: float
    entries: int
    draws: int


def gram(update_of: UpdateOf, x: Tensor, *, chunk: int = 16) -> Tensor:
    """``JᵀJ`` of the update in x, ``[d, d]``, in float64: one jvp and one vjp per entry, J never stored.

    ``update_of`` maps a record of the shape of x to a tensor, and must be differentiable by :mod:`torch.func` (a
    gradient made by ``torch.func.grad`` is).
    """
    shape = x.shape

    def flat(v: Tensor) -> Tensor:
        return update_of(v.reshape(shape)).reshape(-1)

    point = x.detach().reshape(-1)
    pull = vjp(flat, point)[1]

    def row(direction: Tensor) -> Tensor:
        moved = jvp(flat, (point,), (direction,))[1]
        return torch.as_tensor(pull(moved)[0])

    basis = torch.eye(point.numel(), dtype=point.dtype, device=point.device)
    with warnings.catch_warnings():
        # torch 2.13 loads its forward-mode rules by a function that it has deprecated itself
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)
        rows = vmap(row, chunk_size=guards.count(chunk, "chunk", _FORMULA))(basis).double()
    if not torch.isfinite(rows).all():
        raise DomainError("the Jacobian of the update must be finite, got NaN or infinity", where=_FORMULA)
    return (rows + rows.T) / 2


def cramer_rao(update_of: UpdateOf, x: Tensor, sigma: float, *, chunk: int = 16) -> Indicator:
    """The Cramér-Rao trace bound at one record, as an indicator: ``tr(I(x)⁻¹)/d`` with ``I = JᵀJ/σ²``."""
    scale = guards.positive(sigma, "sigma", _FORMULA)
    values = torch.linalg.eigvalsh(gram(update_of, x, chunk=chunk)).clamp(min=0)
    observable = values > values.max() * len(values) * torch.finfo(x.dtype).eps
    rank, entries, total = int(observable.sum()), len(values), float(values.sum())
    mean_inverse = scale**2 * float((1 / values).mean()) if rank == entries else math.inf
    return Indicator(mean_inverse, scale**2 * entries / total if total > 0 else math.inf, rank, entries)


def van_trees(
    update_of: UpdateOf, prior_draws: Tensor, sigma: float, prior_std: float, *, chunk: int = 16
) -> AverageError:
    """The Bayesian Cramér-Rao bound under ``x ~ N(m, τ² I)``: ``tr((E[I(x)] + I/τ²)⁻¹)/d``.

    ``prior_draws`` ``[n, …]`` are draws from that prior; ``prior_std`` is τ. Exact, and attained by the posterior mean,
    when the update is linear in x. Assumes that the prior is right, which a Gaussian prior on images is not.
    """
    scale = guards.positive(sigma, "sigma", _FORMULA)
    precision = guards.positive(prior_std, "prior_std", _FORMULA) ** -2
    if prior_draws.ndim < 2 or len(prior_draws) == 0:
        raise DomainError(f"prior_draws must have shape [n, …], got {tuple(prior_draws.shape)}", where=_FORMULA)
    total = torch.stack([gram(update_of, x, chunk=chunk) for x in prior_draws]).mean(0) / scale**2
    values = torch.linalg.eigvalsh(total).clamp(min=0) + precision
    return AverageError(float((1 / values).mean()), 1 / float(values.mean()), len(values), len(prior_draws))
