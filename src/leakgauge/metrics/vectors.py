"""Records as vectors: flat, in units in which features of all kinds can be added up."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics.features import plain, weighted
from leakgauge.types import Domain


def vectors(inputs: Tensor, domain: Domain, *, tokens: int = 0) -> Tensor:
    """``[n, *shape]`` as ``[n, d]`` in float64: pixels, table columns in their spread, tokens as one-hot places.

    ``tokens`` is the size of the vocabulary. A non-finite entry says nothing and counts as 0.
    """
    if domain.kind == "tokens":
        return torch.nn.functional.one_hot(inputs.detach().long().flatten(1), tokens).flatten(1).double()
    if domain.kind == "table":
        return weighted(inputs, domain.features or plain(inputs.shape[-1])).nan_to_num(0.0, 0.0, 0.0)
    return inputs.detach().double().flatten(1).nan_to_num(0.0, 0.0, 0.0)
