"""Matching an update under what its received form shows of the defense: a mask, and a clipping bound."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.adversary.likelihoods import Matching
from leakgauge.expr import register
from leakgauge.types import Tree, Updates
from leakgauge.updates.entrywise import masked


@register("likelihood", "estimated")
@dataclass(frozen=True, repr=False)
class Estimated(Matching):
    """``−‖T(u) − o‖² / ‖o‖²``, where T does to the candidate's update what was seen to be done to the received one.

    GGL's adaptive estimates, read off the update o itself: the ``mask`` of pruning, and of Soteria, is where o is not
    zero (with it, the pruning rate); the bound of ``clip``ping is ``‖o‖``: ``T(u) = m ⊙ u · min(1, ‖o‖ / ‖m ⊙ u‖)``.
    Its caveat: entries that are zero because units were dead say something, and a mask ignores it. Nothing is
    estimated of noise.

    References:
        Li et al., Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage, 2022.
        https://arxiv.org/abs/2203.15696
    """

    mask: bool = field(default=True, kw_only=True)
    clip: bool = field(default=True, kw_only=True)

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        tiny = torch.finfo(weight.dtype).tiny
        received = (update.received(observed) @ weight).clamp(min=tiny)
        if self.mask:
            update = update.mapped(masked, {name: (observed[name] != 0).to(weight) for name in update.names})
        if self.clip:
            size = (update.square() @ weight).clamp(min=tiny)
            update = update.scaled((received / size).sqrt().clamp(max=1))
        return -(update.distance(observed) @ weight) / received
