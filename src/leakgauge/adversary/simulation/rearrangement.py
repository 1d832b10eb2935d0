"""Maps in which every output is an affine function of one input: ``o_e = a_e u_{π(e)} + b_e``, found by probing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Run = Callable[[Tensor], Tensor]
"""From all entries of an update to all entries of its release, ``[P]`` each."""


@dataclass(frozen=True, eq=False)
class Rearrangement:
    """``o_e = a_e u_{π(e)} + b_e``: signs, scales, permutations, offsets and fixed masks, in float64."""

    slope: Tensor
    source: Tensor
    offset: Tensor

    def __call__(self, entries: Tensor) -> Tensor:
        """Of entries ``[…, P]``."""
        return self.slope.to(entries) * entries[..., self.source] + self.offset.to(entries)

    @cached_property
    def is_bijection(self) -> bool:
        """Whether every entry of the update can be computed from the release."""
        return bool((self.slope != 0).all()) and len(self.source.unique()) == len(self.source)

    @property
    def is_identity(self) -> bool:
        return bool(
            torch.equal(self.source, torch.arange(len(self.source)))
            and ((self.slope - 1).abs() < 1e-4).all()
            and (self.offset == 0).all()
        )

    def undone(self, entries: Tensor) -> Tensor:
        """The update from its release, ``[…, P]``; of a bijection."""
        before = torch.empty_like(entries)
        before[..., self.source] = (entries - self.offset.to(entries)) / self.slope.to(entries)
        return before


def probed(run: Run, at: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Slope and source of every output near ``at``, if each depends on one input; None if that is refuted.

    Steps ``h``, ``h v`` and ``h w`` along all inputs at once move output e by ``a h``, ``a h v`` and ``a h w`` of its
    one source; v and w name it, as two digits. ``sizes`` are the steps h, which the entries usually have.
    """
    digits = math.isqrt(len(at) - 1) + 1
    number = torch.arange(len(at), device=at.device)
    names = [1 + (number // digits) / digits, 1 + (number % digits) / digits]
    base = run(at)
    moved = run(at + sizes) - base
    named = [run(at + sizes * name.double()) - base for name in names]
    live = moved.abs() > 1e-9 * moved.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    read = [torch.where(live, (step / torch.where(live, moved, 1.0) - 1) * digits, 0.0) for step in named]
    places = [one.round() for one in read]
    if any(bool(((one - place).abs() > 0.2).any()) for one, place in zip(read, places, strict=True)):
        return None
    source = (places[0] * digits + places[1]).long()
    if bool(((source < 0) | (source >= len(at))).any()):
        return None
    source = torch.where(live, source, number)
    return torch.where(live, moved / sizes[source], 0.0), source


def fitted(run: Run, inputs: Sequence[Tensor], sizes: Tensor) -> Rearrangement | None:
    """The rearrangement that a deterministic map is, checked on every known update; None if it is none."""
    probe = probed(run, inputs[0], sizes)
    if probe is None:
        return None
    slope, source = probe
    outputs = [run(one) for one in inputs]
    offset = outputs[0] - slope * inputs[0][source]
    affine = Rearrangement(slope, source, offset)
    scale = torch.stack(outputs).abs().amax()
    gap = torch.stack([(affine(one) - out).abs().amax() for one, out in zip(inputs, outputs, strict=True)]).amax()
    return affine if float(gap) <= 1e-4 * float(scale) else None
