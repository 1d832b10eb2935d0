"""Records that are already in memory, as a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from leakgauge.data.arrays import Arrays
from leakgauge.data.dataset import Dataset, divide
from leakgauge.data.tables import measured
from leakgauge.errors import DataError
from leakgauge.types import Domain, Feature, Records


def in_memory(records: Records, reference: Records | None = None, *, name: str, share: float = 0.5) -> Dataset:
    """A data set of private ``records`` (its test split) and of ``reference`` records that anybody may know.

    Without reference records the share ``share`` of each class stays private, and the others become the reference.
    Features of a table that has none are its columns, measured on the reference.
    """
    private = arrays_of(records, name)
    if reference is None:
        train, test = divide(private, share, where=name)
    else:
        train, test = arrays_of(reference, "reference"), private
    return Dataset.of(name, train, test, stated=_described(records.domain, train))


def arrays_of(records: Records, where: str) -> Arrays:
    """The arrays of records; images must lie in [0, 1]."""
    inputs: Any = records.inputs.detach().cpu()
    if records.domain.kind == "image":
        inputs = inputs.to(torch.float32)
        low, high = (float(inputs.min()), float(inputs.max())) if inputs.numel() else (0.0, 1.0)
        if not (low >= 0 and high <= 1):  # NaN fails both
            raise DataError(
                f"inputs span {low:g}..{high:g}",
                where=where,
                remedy="scale images to [0, 1]; normalise inside the model",
            )
    return Arrays(inputs.numpy(), records.labels.detach().cpu().numpy().astype(np.int64))


def _described(domain: Domain, train: Arrays) -> Domain:
    if domain.kind != "table" or domain.features or len(domain.shape) != 1:
        return domain
    columns = [Feature(f"column {i}") for i in range(domain.size)]
    return replace(domain, features=measured(columns, train.inputs))
