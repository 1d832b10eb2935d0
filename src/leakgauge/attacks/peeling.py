"""Peeling: a unit that only one example activates gives that example away; subtract it, and look again.

If of all examples only i activates unit j, ``∂W_j / ∂c_j = x_i``. The network itself says whether a quotient is such a
record: with the right label its derivative ``δ(x, y)`` must explain every row that gave it, and must lie in the column
space of ``∂W``, which that of a mixture does not. What is certified is subtracted, and units that two examples
shared become units of one.

References:
    Shariati and Meybodi, Cascading Gradient Inversion via LT-Code Inspired Peeling, 2026. It certifies by one row
    and an absolute error; here all rows that gave a candidate must be met, each relative to its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from leakgauge.attacks.certificates import Certified, Certifier, Claims
from leakgauge.attacks.linear_layers import LayerGradient

MOST_PASSES = 200
PROJECTIONS = 6


@dataclass(frozen=True)
class Peeled:
    """What was certified, what is left of the gradient, and the certifier, which may have learnt κ."""

    certified: Certified
    left: LayerGradient
    certifier: Certifier


def peel(gradient: LayerGradient, certifier: Certifier, most: int, *, shared: bool = True) -> Peeled:
    """Certify and subtract until nothing new is certified, or ``most`` examples are.

    With ``shared`` one κ holds for all examples, else (clients who clip by themselves) each has its own. A multiple of
    it is several equal examples, each of which takes one from the rank, and whose equations hold almost to the last
    digit; else it is the mean of examples that are not equal, and is not certified.
    """
    done, spare = certifier.none(), max(0, gradient.most - gradient.rank) if most else 0
    for _ in range(MOST_PASSES if most else 0):
        for claims in _candidates(gradient):
            new = _fresh(certifier(claims), done, gradient)
            if certifier.factor is None and len(new):
                if shared:
                    new, certifier = _agreeing(new, certifier)
                else:
                    new = _confirmed(new, done, certifier, single=bool(claims.rows.sum() == len(claims.inputs)))
            if shared and certifier.factor is not None:
                further, tight = _further(new, certifier.factor), new.errors <= certifier.precision.tight
                new = new[(further == 0) | ((further <= spare) & tight)]
            if len(new):
                break
        else:
            break
        new = new[: most - len(done)]
        spare -= int(_further(new, certifier.factor).sum()) if shared and certifier.factor is not None else 0
        done, gradient = done + new, gradient.without(new.inputs, new.deltas)
        if len(done) >= most or not bool(gradient.live.any()):
            break
    return Peeled(done, gradient, certifier)


def _candidates(gradient: LayerGradient) -> Iterator[Claims]:
    """Quotients that several rows agree on, then those of single rows."""
    rows = gradient.live.nonzero().flatten()
    if not len(rows):
        return
    quotients = gradient.weight[rows] / gradient.bias[rows].unsqueeze(1)
    groups = _groups(quotients, gradient.precision.tolerance)
    several = (torch.bincount(groups) > 1).nonzero().flatten()
    if len(several):
        yield _claims(gradient, rows, groups, several)
    each = torch.arange(len(rows), device=rows.device)
    yield _claims(gradient, rows, each, each)


def _groups(quotients: Tensor, tolerance: float) -> Tensor:
    """The group of each quotient ``[r]``: rows whose random projections agree."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(quotients.shape[1], PROJECTIONS, generator=generator, dtype=torch.float64)
    points = quotients @ directions.to(quotients.device)
    near = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    pairs = (near <= tolerance * points.norm(dim=1)).nonzero().cpu().numpy()
    graph = coo_array(([True] * len(pairs), pairs.T), shape=(len(points), len(points)))
    return torch.from_numpy(connected_components(graph, directed=False)[1]).long().to(quotients.device)


def _claims(gradient: LayerGradient, rows: Tensor, groups: Tensor, wanted: Tensor) -> Claims:
    """The least-squares input of each wanted group of rows, and the derivatives that its rows show."""
    units = len(gradient.bias)
    member = torch.zeros(len(wanted), units, dtype=torch.bool, device=rows.device)
    member[:, rows] = groups == wanted.unsqueeze(1)
    deltas = gradient.bias * member
    inputs = deltas @ gradient.weight / deltas.square().sum(1, keepdim=True)
    allowance = gradient.precision.rounding(gradient.worn)
    return Claims(inputs, deltas, member, deltas.abs(), allowance.expand_as(deltas))


def _fresh(new: Certified, done: Certified, gradient: LayerGradient) -> Certified:
    """Without repetitions of what is there already; of equal ones the one with the least error."""
    new = new[new.errors.argsort(stable=True)]
    everyone = torch.cat([done.inputs, new.inputs])
    near = torch.cdist(new.inputs, everyone) <= gradient.precision.loose * new.inputs.norm(dim=1, keepdim=True)
    first = torch.tensor(
        [not bool(near[i, : len(done) + i].any()) for i in range(len(new))], dtype=torch.bool, device=near.device
    )
    return new[first]


def _agreeing(new: Certified, certifier: Certifier) -> tuple[Certified, Certifier]:
    """κ is the one that most agree on; others keep their certificate only at a whole multiple of it.

    Those that are not sure count only where another has the same κ to most of its digits: mixtures of records that are
    alike have nearly a multiple of it, each another one.
    """
    gaps = (new.factors.unsqueeze(1) / new.factors - 1).abs()
    new = new[new.sure | ((gaps <= certifier.precision.tight).sum(0) > 1)]
    if not len(new):
        return new, certifier
    gaps = (new.factors.unsqueeze(1) / new.factors - 1).abs()
    factor = float(new.factors[(gaps <= certifier.precision.tolerance).sum(0).argmax()])
    multiple = new.factors / factor
    whole = (multiple - multiple.round().clamp(min=1)).abs() <= certifier.precision.tolerance * multiple
    return new[whole], certifier.knowing(factor)


def _confirmed(new: Certified, done: Certified, certifier: Certifier, *, single: bool) -> Certified:
    """Where every client has its own κ: sure ones; those of single rows must share theirs with another.

    One equation fits a free κ whatever the candidate, so that of a single row only the span speaks.
    """
    if not single:
        return new[new.sure]
    everyone = torch.cat([done.factors, new.factors])
    same = (everyone.unsqueeze(1) / new.factors - 1).abs() <= certifier.precision.tolerance
    return new[new.sure & (same.sum(0) > 1)]


def _further(certified: Certified, factor: float) -> Tensor:
    """How many examples beside one each certificate stands for, ``[k]``."""
    return (certified.factors / factor).round().long() - 1


__all__ = ["Peeled", "peel"]
