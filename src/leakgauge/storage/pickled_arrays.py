"""Arrays out of a pickle that may hold nothing else."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from leakgauge.storage.states import FileError

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that knows numpy's three names for an array and refuses every other one."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module[:60]}.{name[:60]}")
        return getattr(importlib.import_module(module.replace("numpy.core", "numpy._core")), name)


def read_pickled_arrays(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The float32 arrays of nested dictionaries in a pickle, by their path: ``{"net/layer/kernel": …}``.

    Nothing in the file is run: only numpy's own names for an array are known, and what is not a dictionary of
    float32 arrays is a :class:`FileError`. An array may still claim more memory than there is, so check the SHA-256
    of a file before it comes here.
    """
    try:
        with path.open("rb") as stream:
            return dict(_leaves(_ArraysOnly(stream).load(), ""))
    except FileError:
        raise
    except Exception as fault:  # an unpickler raises whatever the file made it stumble over
        raise FileError(
            f"is no pickle of arrays only ({str(fault)[:120] or type(fault).__name__})",
            where=str(path),
            remedy="download it again",
        ) from None


def _leaves(value: object, place: str) -> list[tuple[str, npt.NDArray[np.float32]]]:
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in _leaves(value[key], f"{place}/{key}" if place else str(key))]
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return [(place, value)]
    raise FileError(f"{place or 'it'} is no float32 array", where="pickle", remedy="download it again")
