"""The map that a release is at one seed: differentiated as it is, or its slope taken straight through."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge.adversary.simulation.mechanism import AskedError, Mechanism, RefusedError, flat, shaped
from leakgauge.adversary.simulation.stand_ins import Entries
from leakgauge.types import Tree

PLACES = (0.1, 0.3, 0.5, 0.7, 0.9)


def at_seed(mechanism: Mechanism, seed: int) -> Entries:
    """``[N, P] → [N, P]`` under one seed: mapped over N at once where that gives the same, else one by one."""
    like = mechanism.inputs[0]

    def alone(entries: Tensor) -> Tensor:
        return flat(mechanism.run(shaped(entries, like), seed))

    def one_by_one(entries: Tensor) -> Tensor:
        return torch.stack([alone(row) for row in entries])

    together = vmap(alone, randomness="same")
    probes = torch.stack([flat(one) for one in mechanism.inputs])
    slow = one_by_one(probes)
    try:
        with torch.no_grad():
            fast = together(probes)
    except Exception:  # what somebody's code does with a tensor need not be batchable
        return one_by_one
    return together if torch.allclose(fast, slow, rtol=1e-4, atol=1e-6 * float(slow.abs().max())) else one_by_one


def is_differentiable(how: Entries, inputs: Sequence[Tensor]) -> bool:
    """Whether slopes between known updates add up to the difference of their releases: of a rounding they are zero."""
    missed = whole = 0.0
    try:
        for first, second in _pairs(inputs):
            way = second - first
            with torch.no_grad():
                moved = (how(second[None]) - how(first[None]))[0].double()
            along = sum(_pushed(how, first + place * way, way).double() for place in PLACES) / len(PLACES)
            missed += float((along - moved).square().sum())
            whole += float(moved.square().sum())
    except (RefusedError, AskedError, RuntimeError):
        return False
    return missed <= 0.5 * whole


def _pushed(how: Entries, point: Tensor, way: Tensor) -> Tensor:
    """``J way``, from two backward passes: ``⟨Jᵀ w, way⟩`` is linear in w."""
    live = point.detach().requires_grad_()
    out = how(live[None])[0]
    weights = torch.zeros_like(out, requires_grad=True)
    (pulled,) = torch.autograd.grad(out, live, weights, create_graph=True)
    (pushed,) = torch.autograd.grad(pulled, weights, way)
    return pushed


def straight_through(how: Entries, slope: Tensor) -> Entries:
    """The map as it is, with a fixed slope per entry in the place of its own."""

    def run(entries: Tensor) -> Tensor:
        linear = slope.to(entries) * entries
        with torch.no_grad():
            moved = how(entries.detach())
        return linear + (moved - linear).detach()

    return run


def slopes_of(inputs: Tensor, outputs: Tensor, like: Tree, noise: Tensor | None = None) -> tuple[Tensor, float]:
    """One slope per tensor, spread over its entries ``[P]``, and the share of what varies that they explain.

    ``inputs`` and ``outputs`` are ``[R, P]``; ``noise`` ``[P]`` is the variance of an output that is not structure, and
    weighs the entries.
    """
    x, y = inputs - inputs.mean(0), outputs - outputs.mean(0)
    weight = torch.ones_like(x[0]) if noise is None else 1 / noise.clamp(min=_least(noise))
    sizes = [like[name].numel() for name in sorted(like)]
    slopes = []
    pairs = zip(*(t.split(sizes, -1) for t in (x, y, weight)), strict=True)
    for u, o, w in pairs:
        square = (w * u.square()).sum()
        slopes.append(((w * u * o).sum() / square if float(square) else square).expand(u.shape[1]))
    slope = torch.cat(slopes)
    whole = _scaled(y, sizes) if noise is None else y
    rest = _scaled(y - slope * x, sizes, y) if noise is None else y - slope * x
    expected = 0.0 if noise is None else float((weight * noise).sum()) * (len(x) - 1)
    varies = float((weight * whole.square()).sum()) - expected
    missed = float((weight * rest.square()).sum()) - expected
    if noise is not None and varies <= 4 * (2 * expected * len(x)) ** 0.5:
        return slope, 1.0  # nothing but noise varies
    return slope, 1 - max(missed, 0.0) / max(varies, 1e-300)


def _scaled(y: Tensor, sizes: list[int], by: Tensor | None = None) -> Tensor:
    """Every tensor in units of its own root mean square, so that small ones count as well."""
    reference = (y if by is None else by).split(sizes, -1)
    return torch.cat(
        [one / r.square().mean().sqrt().clamp(min=1e-30) for one, r in zip(y.split(sizes, -1), reference, strict=True)],
        -1,
    )


def _least(noise: Tensor) -> float:
    return max(1e-6 * float(noise.mean()), 1e-30)


def _pairs(inputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(inputs[::2], inputs[1::2], strict=False))
