"""Group consistency: what several seeds agree on, and a prior that draws each of them there.

An update does not say where in its image an object stands as firmly as that it is there: seeds end a few pixels apart.
Registered to their mean and averaged, they show what all of them found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.errors import DataError
from leakgauge.metrics.matching import assign
from leakgauge.priors.base import PriorPart
from leakgauge.types import Candidate


def consensus(inputs: Tensor, labels: Tensor, scores: Tensor) -> Tensor:
    """For S seeds of one batch ``[S, B, …]`` the mean of all, registered, ``[S, B, …]`` in the order of each seed.

    Rows are paired with those of the seed with the best score: same label first, then the least squared distance.
    """
    best = int(scores.nan_to_num(nan=-torch.inf).argmax())
    finite = inputs.nan_to_num(nan=0.0)
    orders = [pairing(finite[best], finite[s], labels[best], labels[s]) for s in range(len(inputs))]
    arranged = torch.stack([finite[s][order] for s, order in enumerate(orders)])
    mean = arranged.mean(0)
    if mean.dim() == 4:  # images: [B, C, H, W]
        moved = [[registered(image, target) for image, target in zip(seed, mean, strict=True)] for seed in arranged]
        mean = torch.stack([torch.stack(images) for images in moved]).mean(0)
    return torch.stack([mean[order.argsort()] for order in orders])


def pairing(reference: Tensor, other: Tensor, labels: Tensor, theirs: Tensor) -> Tensor:
    """Which row of ``other`` belongs to each row of ``reference``, one to one."""
    distance = (reference.flatten(1).unsqueeze(1) - other.flatten(1)).square().sum(2)
    same = labels.unsqueeze(1) == theirs
    return assign(distance + (1 + 2 * distance.max() * len(labels)) * ~same, lower=True).to(other.device)


def registered(image: Tensor, target: Tensor) -> Tensor:
    """An image ``[C, H, W]`` moved by the whole-pixel shift, of at most an eighth, that fits the target best."""
    height, width = image.shape[-2:]
    spectra = (torch.fft.rfft2(t - t.mean()) for t in (image, target))
    own, wanted = spectra
    fit = torch.fft.irfft2(own.conj() * wanted, s=(height, width)).sum(0)
    down, right = height // 8, width // 8
    shifts = [(y, x) for y in range(-down, down + 1) for x in range(-right, right + 1)]
    shifts.sort(key=lambda shift: abs(shift[0]) + abs(shift[1]))  # of equal fits the smallest move
    values = torch.stack([fit[y, x] for y, x in shifts])
    y, x = shifts[int(values.argmax())]
    rows = (torch.arange(height, device=image.device) - y).clamp(0, height - 1)
    columns = (torch.arange(width, device=image.device) - x).clamp(0, width - 1)
    return image[:, rows][:, :, columns]


@dataclass(frozen=True, repr=False, eq=False)
class Toward(PriorPart):
    """``−mean (x − x̄)²`` with a target x̄ ``[B, …]`` for every observation; it contains data, so no text reads it."""

    targets: NDArray[np.float32]

    def __call__(self, candidate: Candidate) -> Tensor:
        if candidate.places is None:
            raise DataError(
                "nobody said which observation each problem attacks", where="Toward", remedy="attack with it"
            )
        targets = torch.as_tensor(self.targets).to(candidate.inputs)[candidate.places]
        return -(candidate.inputs - targets).square().flatten(1).mean(1)

    def __repr__(self) -> str:
        return f"toward({len(self.targets)} batches)"


__all__ = ["Toward", "consensus", "pairing", "registered"]
