"""Records that are already in memory, as a data set."""

from __future__ import annotations

from leakgauge.data.dataset import Dataset, divide
from leakgauge.data.loading import _arrays
from leakgauge.types import Records


def in_memory(
    records: Records, reference: Records | None = None, *, name: str = "records", share: float = 0.5
) -> Dataset:
    """A data set of private ``records`` (its test split) and of ``reference`` records that anybody may know.

    Without reference records the share ``share`` of each class stays private, and the others become the reference.
    """
    private = _arrays(records, name)
    if reference is not None:
        return Dataset.of(name, _arrays(reference, "reference"), private, given=records.domain)
    return Dataset.of(name, *divide(private, share, where=name), given=records.domain)
