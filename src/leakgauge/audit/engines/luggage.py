"""Values on their way to another machine: records apart, as arrays that a node maps once and nobody copies."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from leakgauge.types import Records

LARGE = 1 << 16
"""Bytes from which on a tensor travels apart."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Luggage:
    """A value as a pickle, and the large tensors that were in it.

    Only records travel apart, which nobody writes to, unless ``everything`` is asked for; weights, which models load
    into themselves, stay inside. Only our own processes unpack what we packed.
    """

    pickled: bytes
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, value: object, *, everything: bool = False) -> Luggage:
        stream, arrays = io.BytesIO(), list[Array]()
        _Packer(stream, arrays, everything).dump(value)
        return cls(stream.getvalue(), tuple(arrays))

    def value(self) -> Any:
        """The value; its large tensors share the memory of the arrays and must not be written to."""
        return _Unpacker(io.BytesIO(self.pickled), self.arrays).load()


class _Packer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, arrays: list[Array], everything: bool) -> None:
        super().__init__(stream, protocol=5)
        self.arrays, self.everything = arrays, everything
        self.records: set[int] = set()
        """The tensors of records, by identity; their records hold them."""
        self.places: dict[int, tuple[int, Tensor]] = {}
        """By identity, with the tensor itself, so that no other one gets its identity meanwhile."""

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, Records):
            self.records |= {id(value.inputs), id(value.labels)}
        if type(value) is not Tensor or value.requires_grad or value.device.type != "cpu":
            return None
        if not self.everything and id(value) not in self.records:
            return None
        if value.layout != torch.strided or value.dtype == torch.bfloat16:  # numpy has none of these
            return None
        if value.numel() * value.element_size() < LARGE:
            return None
        if id(value) not in self.places:
            self.places[id(value)] = (len(self.arrays), value)
            self.arrays.append(np.ascontiguousarray(value.numpy()))
        return self.places[id(value)][0]


class _Unpacker(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, arrays: Sequence[Array]) -> None:
        super().__init__(stream)
        self.arrays = arrays

    def persistent_load(self, place: Any) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch has no tensors that cannot be written to
            return torch.from_numpy(self.arrays[place])
