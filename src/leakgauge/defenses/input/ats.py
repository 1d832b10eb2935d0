"""ATS: train on transformed images, with a policy that was searched for privacy and accuracy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from leakgauge.defenses.input.operations import OPERATIONS, Operation
from leakgauge.defenses.stages import Encoded, InputPart
from leakgauge.errors import DataError, DomainError
from leakgauge.expr import register
from leakgauge.types import Domain, Nuisance, Records

_POLICY = re.compile(r"-?\d+(?:--?\d+)*")


@register("defense", "ats")
@dataclass(frozen=True, repr=False)
class AutomaticTransformation(InputPart):
    """``x ↦ T(x)``: a policy ``a-b-c`` of some of fifty image operations, in order; ``A+B`` picks one per image.

    Published policies have three operations; a policy may have fewer or more. Indices are those of the published list,
    −1 skips. Signs of shifts, shears and enhancements are drawn per image. Labels stay. Scores against T(x) say how
    well the attack inverts, scores against x what leaks of the record.

    References:
        Gao et al., Privacy-preserving Collaborative Learning with Automatic Transformation Search, 2021.
        https://arxiv.org/abs/2011.12505
    """

    policy: str = "3-1-7+43-18-18"
    nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("choice", per="example"), Nuisance("signs", per="example"))

    def __post_init__(self) -> None:
        if not isinstance(self.policy, str):
            raise DomainError(
                f"policy must be text, got {self.policy!r}", where="ats", remedy="write it like policy='7-4-15'"
            )
        for text in self.policy.split("+"):
            if not _POLICY.fullmatch(text):
                raise DomainError(
                    f"{text!r} is no policy", where="ats", remedy="write indices like 7-4-15, and A+B for two policies"
                )
            for index in _indices(text):
                if not -1 <= index < len(OPERATIONS):
                    raise DomainError(
                        f"operation {index} in {text!r} does not exist",
                        where="ats",
                        remedy=f"use -1 (skip) to {len(OPERATIONS) - 1}",
                    )

    @property
    def lone(self) -> bool:
        return True

    @property
    def policies(self) -> tuple[tuple[Operation, ...], ...]:
        """The operations of every policy, skips left out."""
        return tuple(tuple(OPERATIONS[i] for i in _indices(text) if i >= 0) for text in self.policy.split("+"))

    def check(self, domain: Domain, records: int) -> None:
        if domain.kind != "image" or len(domain.shape) != 3:
            raise DataError(
                f"it transforms images, not {domain.kind} records of shape {domain.shape}",
                where=repr(self),
                remedy="defend such records with mixup() or at the update stage",
            )

    def encode(self, pool: Records | Encoded, rows: Tensor, *, generator: Generator) -> Encoded:
        self.check(pool.domain, len(pool))
        policies, longest = self.policies, max(map(len, self.policies))
        choice = torch.randint(len(policies), (len(pool),), generator=generator)[rows]
        signs = (2 * torch.randint(2, (len(pool), max(1, longest)), generator=generator) - 1)[rows]
        images = [
            apply(policies[c], x, s) for x, c, s in zip(pool.inputs[rows], choice.tolist(), signs.tolist(), strict=True)
        ]
        return Encoded(torch.stack(images), pool.labels[rows], pool.domain, {"choice": choice, "signs": signs})

    def draws(self) -> list[tuple[int, tuple[int, ...]]]:
        """Every choice of policy and of the signs that matter to it."""
        draws = []
        for c, policy in enumerate(self.policies):
            sides = [(-1, 1) if op.signed and op.magnitude else (1,) for op in policy]
            draws += [(c, signs) for signs in product(*sides)]
        return draws

    @classmethod
    def neutral(cls) -> Self:
        return cls(policy="-1")


def apply(policy: tuple[Operation, ...], x: Tensor, signs: tuple[int, ...] | list[int]) -> Tensor:
    """One image through a policy."""
    for operation, sign in zip(policy, signs, strict=False):
        x = operation(x, sign)
    return x


def undone(policy: tuple[Operation, ...], x: Tensor, signs: tuple[int, ...] | list[int]) -> Tensor:
    """A transformed image with everything undone that can be, last operation first; the rest stays as it is."""
    for operation, sign in reversed(list(zip(policy, signs, strict=False))):
        back = operation.undo(x, sign)
        x = x if back is None else back
    return x


def _indices(text: str) -> list[int]:
    return [int(index) for index in re.findall(r"(?:^|(?<=\d)-)(-?\d+)", text)]
