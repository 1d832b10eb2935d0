"""What the entries of a random release share: noise that a variance per entry does not describe.

Two releases of one update under different seeds differ by noise alone. Noise in a few directions (one number added to a
whole layer) hides nothing in the others; noise that is sometimes absent hides nothing then. Taken for independent noise
of the same variance, either would look like protection.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EXCESS = 3.0
"""How many times as large as under independence a statistic may be."""
UNEVEN = 0.05
"""The least variance of a release's share of the noise that counts: its size differs by a fifth and more."""
SMALLEST, NORMAL = 0.05, 0.0627
"""A share of the absolute values, and where it ends under the standard normal law."""
TAILS = 0.1
"""Noise has tails if most of it is this small beside its standard deviation."""


def differences(releases: Tensor) -> Tensor:
    """``[R, K, P]`` from ``[R, 2K, P]``: releases of the same update, two by two, free of its mean."""
    return (releases[:, ::2] - releases[:, 1::2]) / 2**0.5


def shared_directions(noise: Tensor, sizes: Sequence[int]) -> Tensor:
    """``[P, r]``: orthonormal directions of single tensors in which whitened noise ``[K, P]`` is largest; r may be 0.

    The eigenvalues of P independent entries stay below ``(√P + √K)²`` (Marchenko and Pastur); those three times as
    large are shared. As many as half the draws are not a few directions, and none is returned.
    """
    blocks: Tensor = torch.block_diag(*(_directions(one) for one in noise.split(list(sizes), 1)))
    return blocks


def _directions(noise: Tensor) -> Tensor:
    draws, entries = noise.shape
    values, vectors = torch.linalg.eigh(noise @ noise.T)
    large = values > EXCESS * (entries**0.5 + draws**0.5) ** 2
    few = int(large.sum()) <= min(draws, entries) // 2
    basis: Tensor = torch.linalg.qr(noise.T @ vectors[:, large if few else large & False])[0]
    return basis


def has_tails(noise: Tensor) -> bool:
    """Whether a few entries of a release make up the variance of a tensor's noise ``[R, K, P]``, each in its own size.

    The smallest twentieth of ``|z|`` reaches to 0.063 standard deviations of a normal law, to 0.036 of a Laplace
    law, and to far less where a few values are much larger than the others. Every release counts in its own size, too:
    noise that all its entries share has no tails, however small it happens to be in some releases.
    """
    spread = noise.square().mean((0, 1)).sqrt()
    each = (noise[..., spread > 0] / spread[spread > 0]).flatten(0, 1)
    size = each.square().mean(1, keepdim=True).sqrt()
    live = (size > 0).squeeze(1)
    return bool(live.any()) and usual_size(each[live] / size[live]) < TAILS


def usual_size(noise: Tensor) -> float:
    """The standard deviation of most noise of a tensor, whatever the rest is."""
    values = noise.abs().flatten()
    inner = float(values.kthvalue(max(1, int(SMALLEST * len(values)))).values) / NORMAL
    near = values[values <= 5 * inner]
    return max(inner, float(near.square().mean().sqrt()))


def dependence(noise: Tensor, sizes: Sequence[int]) -> str:
    """Why noise ``[R, K, P]`` of R updates is not independent between the entries of a tensor; empty where it is.

    Of independent entries with ``E z² = 1``, the mean of z² over P entries varies by ``var(z²)/P`` between draws, and
    the mean product of two draws has the square ``E (z z')²/P``.
    """
    for tensor in noise.split(list(sizes), 2):
        variance = tensor.square().mean(1, keepdim=True)
        live = (variance > 0).to(tensor)
        count = live.sum(2).clamp(min=1)
        squares = tensor.square() / variance.clamp(min=1e-300)
        uneven = float((squares.sum(2) / count).var(1).mean())
        expected = float(((squares.var(1) * live[:, 0]).sum(1) / count[:, 0] ** 2).mean())
        if uneven > max(EXCESS * expected, UNEVEN):
            return "its noise is larger in some releases than in others"
        z = tensor / variance.clamp(min=1e-300).sqrt()
        products, cross = z @ z.mT / count.unsqueeze(2), squares @ squares.mT / count.unsqueeze(2) ** 2
        apart = ~torch.eye(z.shape[1], dtype=torch.bool)
        if float(products.square()[:, apart].mean()) > EXCESS * float(cross[:, apart].mean()) + 1e-12:
            return "its noise is not independent between entries"
    return ""
