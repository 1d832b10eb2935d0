"""Certificates: does the network itself say that a candidate is one of the records behind a gradient?

A candidate x claims derivatives at some units. The network says what they must be, ``κ ∂ℓ(x, y)/∂z``, for each label y;
a candidate is certified if exactly one label explains every claim, each relative to its own size. A mixture of records
would have to meet these equations by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.attacks.linear_layers import Precision, Tail

SPARE_ROWS = 8
"""So many rows more than the rank of the gradient make its column space a test that chance does not pass."""
AT_ONCE = 4096
"""So many candidates are tested together."""
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Certified:
    """Examples with a certificate.

    ``inputs`` of the layer ``[k, n]``; ``labels [k, …]``; ``factors`` κ ``[k]``; ``deltas`` κ ∂ℓ/∂z ``[k, m]``;
    ``errors``, the largest relative error over the claims of each, ``[k]``; ``sure [k]``: whether κ is known, or the
    span tells the labels apart, so that lying in it proves something.
    """

    inputs: Tensor
    labels: Tensor
    factors: Tensor
    deltas: Tensor
    errors: Tensor
    sure: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __add__(self, other: Certified) -> Certified:
        return Certified(*map(torch.cat, zip(vars(self).values(), vars(other).values(), strict=True)))

    def __getitem__(self, rows: Tensor | slice) -> Certified:
        return Certified(*(value[rows] for value in vars(self).values()))


@dataclass(frozen=True)
class Claims:
    """What candidates ``inputs [k, n]`` claim: derivatives ``[k, m]`` in ``rows [k, m]``, to be met relative to
    ``sizes`` after an ``allowance`` for what rounding may have done to them."""

    inputs: Tensor
    deltas: Tensor
    rows: Tensor
    sizes: Tensor
    allowance: Tensor

    def __getitem__(self, which: slice) -> Claims:
        return Claims(*(value[which] for value in vars(self).values()))

    def errors(self, explained: Tensor) -> Tensor:
        """The largest relative error of what explains the claims, ``[k]``."""
        gaps = (self.deltas - explained).abs_().sub_(self.allowance).clamp_(min=0)
        return gaps.div_(self.sizes.clamp(min=TINY)).mul_(self.rows).amax(1)


@dataclass(frozen=True)
class Certifier:
    """Certifies at one layer. ``labels`` are the possible ones ``[c]`` or ``[c, classes]``, ``factor`` is κ where it is
    known, ``span`` an orthonormal basis of the gradient's columns ``[m, r]``."""

    tail: Tail
    labels: Tensor
    precision: Precision
    span: Tensor
    factor: float | None = None

    @property
    def spans(self) -> bool:
        """Whether lying in the span proves anything: units that no record activates, no mixture of them does either."""
        live = int((self.span.norm(dim=1) > 1e-3 * self.precision.loose).sum())
        return live - self.span.shape[1] >= SPARE_ROWS

    def none(self) -> Certified:
        units, inputs = self.tail.weight.shape
        empty = self.tail.weight.new_zeros
        return Certified(
            empty(0, inputs), self.labels[:0], empty(0), empty(0, units), empty(0), empty(0, dtype=torch.bool)
        )

    def __call__(self, claims: Claims) -> Certified:
        """Those candidates that are certified, in their order."""
        parts = [self._certify(claims[start : start + AT_ONCE]) for start in range(0, len(claims.inputs), AT_ONCE)]
        return sum(parts, self.none())

    def _certify(self, claims: Claims) -> Certified:
        count = len(claims.inputs)
        zeros, passed = claims.deltas.new_zeros(count), claims.rows.new_zeros(count, dtype=torch.long)
        every = Certified(
            claims.inputs,
            self.labels[:1].expand(count, *self.labels.shape[1:]).clone(),
            zeros.clone(),
            torch.zeros_like(claims.deltas),
            zeros.clone(),
            claims.rows.new_ones(count, dtype=torch.bool),
        )
        for label, deltas in zip(self.labels, self.tail.deltas(claims.inputs, self.labels), strict=True):
            factors = self._factors(deltas, claims)
            explained = factors.unsqueeze(1) * deltas
            errors = claims.errors(explained)
            fits = (errors <= self.precision.tolerance) & (factors > 0)
            fits[fits.clone()] = self._spanned(deltas[fits], claims.rows[fits])
            passed += fits
            every.labels[fits], every.factors[fits] = label, factors[fits]
            every.deltas[fits], every.errors[fits] = explained[fits], errors[fits]
        certified = every[passed == 1]
        return replace(certified, sure=self._told_apart(certified))

    def _told_apart(self, certified: Certified) -> Tensor:
        """Of an unknown κ, whether of all labels only this one lies in the span, ``[k]``.

        Records that activate the same units share their derivatives' few dimensions (one less than classes directly
        behind the layer). Where others fill these, any mixture lies in the span, and with any label.
        """
        if self.factor is not None or not self.spans or not len(certified):
            return certified.sure
        inside = torch.zeros_like(certified.factors)
        for deltas in self.tail.deltas(certified.inputs, self.labels):
            inside += self._spanned(deltas, certified.deltas != 0)
        return inside == 1

    def _factors(self, deltas: Tensor, claims: Claims) -> Tensor:
        """κ by least squares over the claims, ``[k]``; where it is known, its multiple: equal records add up."""
        own = deltas * claims.rows
        fitted = (own * claims.deltas).sum(1) / own.square().sum(1).clamp(min=TINY)
        return fitted if self.factor is None else self.factor * (fitted / self.factor).round().clamp(min=1)

    def _spanned(self, deltas: Tensor, rows: Tensor) -> Tensor:
        """Whether ``δ`` lies in the span of the gradient's columns, ``[k]``; if all do, many claims must fit."""
        if not self.spans:
            return rows.sum(1) > (3 if self.factor is None else 2)
        left = deltas - (deltas @ self.span) @ self.span.T
        inside: Tensor = left.norm(dim=1) <= self.precision.loose * deltas.norm(dim=1)
        return inside

    def knowing(self, factor: float) -> Certifier:
        return replace(self, factor=factor)
