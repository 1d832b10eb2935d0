"""Against MixUp and InstaHide: invert the encodings of several rounds, then solve for the records behind them.

MixUp's encodings are linear in the records, ``E = Λ X``: least squares. InstaHide's are so up to a sign per pixel,
``|E| = |Λ X|``: phase retrieval, pixel by pixel, which leaves one sign per pixel open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.defenses import InstaHide, MixUp
from leakgauge.defenses.mixing import CENTRE, coefficients, public_images
from leakgauge.errors import ObservationError
from leakgauge.observation import Observation


def matrix(indices: Tensor, weights: Tensor, records: int) -> Tensor:
    """Λ in float64, ``[encodings, records]``; public images (negative indices) are not in it."""
    own = indices >= 0
    made = torch.zeros(len(indices), records, dtype=torch.float64)
    return made.scatter_add(1, indices.clamp(min=0), weights.double() * own)


def decode_mixup(encodings: Tensor, indices: Tensor, weights: Tensor, records: int) -> Tensor:
    """``argmin_X ‖Λ X − E‖²``, in float64: exact encodings give exact records wherever Λ has full column rank."""
    mixes = matrix(indices, weights, records)
    solved: Tensor = torch.linalg.lstsq(mixes, encodings.double().flatten(1), driver="gelsd").solution
    return solved.view(records, *encodings.shape[1:])


def fitted_coefficients(encodings: Tensor, indices: Tensor, records: int, part: MixUp, *, steps: int = 200) -> Tensor:
    """Hidden coefficients of known mixtures: ``min_{Λ, X} ‖Λ X − E‖²``, rows of Λ on their indices and summing to one.

    Alternates X given Λ (least squares) and each row of Λ given X (k numbers), from the mean of the coefficients' law.
    Works in the encodings' own subspace, which has at most as many dimensions as there are records.
    """
    flat = encodings.double().flatten(1)
    u, singular, _ = torch.linalg.svd(flat, full_matrices=False)
    seen = u[:, :records] * singular[:records]
    mean = coefficients(10_000, part.k, part.law, part.cap, torch.Generator().manual_seed(0)).mean(0)
    weights: Tensor = mean.expand(len(flat), -1)
    one = torch.ones(len(flat), 1, dtype=torch.float64)
    for _ in range(steps):
        images = torch.linalg.lstsq(matrix(indices, weights, records), seen, driver="gelsd").solution[indices]
        weights = _on_simplex(images, seen, one)
    return weights


def _on_simplex(images: Tensor, seen: Tensor, one: Tensor) -> Tensor:
    """``argmin_λ ‖Σ_j λ_j x_j − e‖²`` with ``Σ λ = 1`` for every encoding, by its normal equations; then λ ≥ 0."""
    k = images.shape[1]
    normal = torch.zeros(len(images), k + 1, k + 1, dtype=torch.float64)
    normal[:, :k, :k] = images @ images.transpose(1, 2) + 1e-9 * torch.eye(k, dtype=torch.float64)
    normal[:, k, :k] = normal[:, :k, k] = 1
    right = torch.cat([(images @ seen.unsqueeze(2)).squeeze(2), one], 1)
    weights: Tensor = torch.linalg.solve(normal, right)[:, :k].clamp(min=0)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)


def decode_instahide(
    encodings: Tensor,
    indices: Tensor,
    weights: Tensor,
    records: int,
    *,
    public: Tensor | None = None,
    starts: int = 12,
    steps: int = 100,
    seed: int = 0,
) -> Tensor:
    """Magnitudes ``|x − ½|`` of the records: the least ``Σ (|ẽ| − |Λ x|)²`` over ``starts`` starts of each pixel.

    ẽ and x are centred. Alternates ``s = sign(Λ x)`` and ``x = Λ⁺ (s ⊙ |ẽ|)``; pixels are problems of their own, and of
    the starts of a pixel the least residual wins (nothing else is looked at). Without public images the sign of a
    pixel, common to all records, cannot be known: magnitudes are what is recovered, not images.
    """
    mixes = matrix(indices, weights, records)
    known = torch.zeros(len(encodings), encodings[0].numel(), dtype=torch.float64)
    if public is not None:
        others = (indices < 0).double() * weights.double()
        known = torch.einsum("mk,mkp->mp", others, (public[(-1 - indices).clamp(min=0)].double() - CENTRE).flatten(2))
    target = (encodings.double() - CENTRE).abs().flatten(1)
    inverse = torch.linalg.pinv(mixes)
    generator = torch.Generator().manual_seed(seed)
    best, least = torch.zeros(records, target.shape[1], dtype=torch.float64), torch.full((target.shape[1],), torch.inf)
    for _ in range(starts):
        x = torch.rand(records, target.shape[1], generator=generator, dtype=torch.float64) - CENTRE
        for _ in range(steps):
            mixed = mixes @ x + known
            x = inverse @ (torch.where(mixed < 0, -target, target) - known)
        residual = ((mixes @ x + known).abs() - target).square().sum(0)
        better = residual < least
        best[:, better], least[better] = x[:, better], residual[better].to(least)
    return best.abs().view(records, *encodings.shape[1:])


def undo_mixing(
    invert: Callable[[Sequence[Observation]], Reconstruction], part: MixUp, observations: Sequence[Observation]
) -> Reconstruction:
    """Invert every encoding of every round; decode them if the indices are granted, and for InstaHide coefficients too.

    MixUp's coefficients are fitted where they are hidden. Without the grants the result is the encodings of the first
    round, status ``encoding``. InstaHide's decoded magnitudes come back as ``½ + |x − ½|``, status ``magnitudes``: they
    are no images of the records. In a batch, granted soft labels tell which encoding is which.
    """
    single = [
        Observation((made,), seen.batch, made.nuisances.get("labels", seen.labels))
        for seen in observations
        for made in seen.rounds
    ]
    inverted = invert(single)
    rounds = len(observations[0].rounds)
    shown = inverted.inputs.unflatten(0, (len(observations), rounds))
    plain = replace(
        inverted,
        inputs=shown[:, 0],
        labels=inverted.labels.unflatten(0, (len(observations), rounds))[:, 0],
        log_posterior=inverted.log_posterior.view(len(observations), rounds).sum(1),
        traces=inverted.traces[::rounds],
        status=("encoding",) * len(observations),
    )
    granted = [made.nuisances for seen in observations for made in seen.rounds]
    needed = {"indices", "coefficients"} if isinstance(part, InstaHide) else {"indices"}
    if not all(needed <= set(each) for each in granted):
        return plain
    records = len(observations) * observations[0].batch
    indices = torch.cat([each["indices"] for each in granted])
    if int(indices.max()) >= records:
        raise ObservationError(
            f"encodings hold records up to number {int(indices.max())}, {records} are observed",
            where="adaptive",
            remedy="observe every record of the client",
        )
    encodings = inverted.inputs.flatten(0, 1).cpu()
    if all("coefficients" in each for each in granted):
        weights = torch.cat([each["coefficients"] for each in granted])
    else:
        weights = fitted_coefficients(encodings, indices, records, part)
    if isinstance(part, InstaHide):
        strangers = None if part.public is None else public_images(part.public)
        decoded = CENTRE + decode_instahide(encodings, indices, weights, records, public=strangers)
    else:
        decoded = decode_mixup(encodings, indices, weights, records)
    status = "magnitudes" if isinstance(part, InstaHide) else "decoded"
    images = decoded.to(plain.inputs).view(plain.inputs.shape)
    return replace(plain, inputs=images, status=(status,) * len(observations), encodings=plain.inputs)
