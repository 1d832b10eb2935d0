"""What all priors share: sums, weights and argument checks."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.errors import DomainError, brief
from leakgauge.expr import Part
from leakgauge.types import Candidate

Weight = float | Tensor


class PriorPart(Part):
    """``log p(x)`` up to a constant, ``[N]``, for the N problems of a candidate; higher is likelier.

    Priors add and scale: ``1e-4*tv() + 0.1*pixel_range()``. A weight is a number ``≥ 0``, or one number per
    problem (a tensor ``[N]`` or a tuple), so that a solver can sweep weights in one run.
    Sums and weights flatten: ``2*(3*a + b)`` is ``6.0*a + 2.0*b``.
    """

    __array_ufunc__ = None  # else a numpy number on the left takes the product apart before we see it

    def __call__(self, candidate: Candidate) -> Tensor:
        raise NotImplementedError

    def __add__(self, other: object) -> Sum:
        if not isinstance(other, PriorPart):
            return NotImplemented
        return Sum(_terms(self) + _terms(other))

    def __mul__(self, weight: object) -> PriorPart:
        if not isinstance(weight, Real | Tensor | tuple) or isinstance(weight, bool):
            return NotImplemented
        scaled = tuple(_scale(term, _weight(weight)) for term in _terms(self))
        return scaled[0] if len(scaled) == 1 else Sum(scaled)

    __rmul__ = __mul__


@dataclass(frozen=True, repr=False)
class Sum(PriorPart):
    """``Σ log pᵢ(x)``: a product of densities. Written ``a + b``; a sum of sums is one sum."""

    terms: tuple[PriorPart, ...]

    def __call__(self, candidate: Candidate) -> Tensor:
        return torch.stack([term(candidate) for term in self.terms]).sum(0)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True, repr=False, eq=False)
class Scaled(PriorPart):
    """``w · log p(x)``: a tempered density, with one weight, or one weight per problem ``[N]``.

    Written ``0.1*tv()`` or, per problem, ``(0.1, 0.2)*tv()``; both forms are read back by ``parse``.
    """

    weight: Weight
    prior: PriorPart

    def __call__(self, candidate: Candidate) -> Tensor:
        value = self.prior(candidate)
        if not isinstance(self.weight, Tensor):
            return self.weight * value
        if self.weight.shape != value.shape:
            raise DomainError(
                f"{len(self.weight)} weights for {len(value)} problems",
                where=f"weight of {self.prior!r}",
                remedy="give one weight, or one per problem",
            )
        return self.weight.to(value) * value

    def __repr__(self) -> str:
        weight = tuple(self.weight.tolist()) if isinstance(self.weight, Tensor) else self.weight
        return f"{weight!r}*{self.prior!r}"

    # torch's == is entry by entry, so the generated comparison of fields would not give one truth value
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaled) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.weight.tolist()) if isinstance(self.weight, Tensor) else self.weight, self.prior


def terms_of(prior: object) -> list[object]:
    """The terms of a prior, without their weights."""
    terms = prior.terms if isinstance(prior, Sum) else (prior,)
    return [term.prior if isinstance(term, Scaled) else term for term in terms]


def along(value: float | Tensor, inputs: Tensor) -> Tensor:
    """A number, or in a solver's sweep one number per problem ``[N]``, shaped to meet inputs ``[N, B, …]``.

    Without it a tensor ``[N]`` would meet the last axis, and silently so where that happens to have N entries.
    """
    # the dtype at once: a bare number would pass through float32 on its way to float64
    number = torch.as_tensor(value, dtype=inputs.dtype, device=inputs.device)
    return number.reshape(-1, *[1] * (inputs.ndim - 1))


def require(holds: bool, formula: str, domain: str, value: object) -> None:
    """Raise a :class:`DomainError` with the formula, its domain and the offending value."""
    if not holds:
        what = f"{domain}, got {brief(repr(value))}"
        guards.refuse(DomainError(what, where=formula, remedy="choose a value inside the domain"))


def _terms(prior: PriorPart) -> tuple[PriorPart, ...]:
    return prior.terms if isinstance(prior, Sum) else (prior,)


def _scale(term: PriorPart, weight: Weight) -> Scaled:
    if isinstance(term, Scaled):
        return Scaled(weight * term.weight, term.prior)
    return Scaled(weight, term)


def _weight(weight: Any) -> Weight:
    formula, domain = "w · log p(x)", "the weight w must be finite and ≥ 0"
    if isinstance(weight, tuple):
        weight = torch.tensor([float(w) for w in weight], dtype=torch.float64)
    if isinstance(weight, Tensor) and weight.ndim == 0:
        weight = weight.item()
    if not isinstance(weight, Tensor):
        require(isfinite(weight) and weight >= 0, formula, domain, weight)
        return float(weight)
    require(weight.ndim == 1, formula, "weights per problem must have the shape [N]", tuple(weight.shape))
    require(bool((weight.isfinite() & (weight >= 0)).all()), formula, domain, weight.tolist())
    return weight
