"""What update-stage parts share: the operator ``|``, and densities entry by entry.

A chain is any number of deterministic maps, then one noise, then parts that select coordinates. Its density
is built in that order: maps move the update, the noise gives ``p(o_e | u_e)``, what stands before or after
the noise wraps it (:class:`EntryDensity`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Generator, Tensor

from leakgauge.defenses.update.promises import NoiseLaw, Sensitivity
from leakgauge.errors import NoDensityError
from leakgauge.expr import Part
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates

if TYPE_CHECKING:
    from leakgauge.defenses.update.chain import Chain

Support = Literal["entries", "sphere"]

Conditions = Mapping[str, Tensor]
"""What is known of a part, by bare names: the values at the entries that a density is asked about."""


@dataclass(frozen=True)
class EntryDensity:
    """``p(o_e | u_e)`` of entries that are independent given the update and every nuisance.

    ``log(u, o)`` is its log (a probability where o is an atom); ``log_mass(u, low, high)`` is
    ``log P(low < O < high)``, which interval likelihoods need; ``log_hat(u, o, below, above)`` is ``log E hat(O)``,
    which stochastic rounding needs (None where it is not known), with a hat that rises from 0 at ``o − below`` to 1 at
    o and falls to 0 at ``o + above``; at an infinite end it stays at 1. ``atom`` says whether zero has a probability
    of its own, ``lattice`` whether all values lie on levels, which the ends of intervals then meet.

    A density that conditions on a nuisance holds its values at the entries in question: parts build it from
    :data:`Conditions`, and :func:`conditioned` evaluates it on whole updates.
    """

    log: Callable[[Tensor, Tensor], Tensor]
    log_mass: Callable[[Tensor, Tensor, Tensor], Tensor]
    atom: bool = False
    lattice: bool = False
    log_hat: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None

    def __call__(self, observed: Tree, update: Updates) -> Tensor:
        """``Σ_e log p(o_e | u_e)``, ``[N]``."""
        return update.entries(self.log, observed).sum(1)


def conditioned(density: Callable[[Conditions], EntryDensity], observed: Tree, update: Updates, known: Known) -> Tensor:
    """``Σ_e log p(o_e | u_e, c_e)``, ``[N]``, of a density that is built anew for each block of entries.

    ``density`` gets the values of ``known`` at that block, under the same names. Where nothing is known it is built
    once, and keeps the slope that its ``log`` may know (:class:`~leakgauge.updates.Sloped`).
    """
    if not known:
        return density({})(observed, update)

    def log(u: Tensor, o: Tensor, *values: Tensor) -> Tensor:
        return density(dict(zip(known, values, strict=True))).log(u, o)

    return update.entries(log, observed, *known.values()).sum(1)


class UpdatePart(Part):
    """An update-stage part. ``|`` chains it with the next.

    ``support`` says where noise lies: anywhere, or on the unit sphere of all entries, where a density is per area.
    Proofs rest on promises, and a part that makes none gets no bound: ``post_processing`` (it looks at nothing but what
    it is given, and chance), the law of a nuisance (drawn without looking at the record, so that granting it tells
    nothing about that), :meth:`sensitivity` and :attr:`noise_law`.
    """

    stage: ClassVar[str] = "update"
    nuisances: ClassVar[tuple[Nuisance, ...]] = ()
    support: ClassVar[Support] = "entries"
    post_processing: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    """Whether, given its nuisances, it sets some entries to zero and leaves the others: selections act in any order."""
    makes_zeros: ClassVar[bool] = False
    """Whether an entry that it let out as zero may have been any other number, so that earlier zeros do not show."""

    @property
    def per_example(self) -> bool:
        """Whether it acts on the update of every example, before they are put together; such a part stands first."""
        return False

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        """How far a record can move an update behind this part, from what holds before it; here, no promise."""
        return before.unknown()

    @property
    def noise_law(self) -> NoiseLaw | None:
        """The law of the noise it adds, independent of everything; None for a part that adds none or cannot say."""
        return None

    def with_noise(self, size: float) -> UpdatePart | None:
        """The same part with noise of another size (``noise_law.size``); None where it cannot be set."""
        return None

    def fits(self, params: Tree) -> None:
        """Refuse a model that this part cannot act on, before anything runs."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        raise NotImplementedError

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        density = self.entry_density()
        if density is None:
            raise NoDensityError(
                f"{self!r} alone has no density", remedy="let the chain contain noise, or attack with a matching loss"
            )
        return density(observed, update)

    def visible(self, observed: Tree) -> dict[str, Tree]:
        """The nuisances that anybody can read off what this part let out, when nothing covers it up."""
        return {n.name: n.visible(observed) for n in self.nuisances if n.visible is not None}

    def covered(self, observed: Tree) -> dict[str, Tree]:
        """The same when later parts have set further entries to zero."""
        return self.visible(observed)

    def undone(self, observed: Tree) -> Tree | None:
        """What this part was given, from what it let out ``[M, …]``; None where that cannot be told."""
        return None

    def apply(self, update: Updates, known: Known) -> Updates | None:
        """This part as a differentiable map of the update, given its nuisances; None if it is none."""
        return None

    def before(self, density: EntryDensity) -> EntryDensity | None:
        """The density of noise on top of this part, with its nuisances summed out; None if that is not known."""
        return None

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity | None:
        """The density of this part on top of noise; None if there is none. ``known`` is aligned with the entries."""
        return None

    def entry_density(self) -> EntryDensity | None:
        """The density of independent noise; None for a part that adds none."""
        return None

    def density_given(self, known: Conditions) -> EntryDensity | None:
        """The same where it depends on a nuisance that is visible or granted, such as the step of a rounding."""
        return self.entry_density()

    @classmethod
    def neutral(cls) -> Self | None:
        """The setting that leaves every update as it is; None if there is none."""
        return None

    def __or__(self, other: Any) -> Chain:
        from leakgauge.defenses.update.chain import Chain  # a chain is itself a part

        if not isinstance(other, UpdatePart):
            return NotImplemented
        return Chain((*parts_of(self), *parts_of(other)))


def parts_of(part: UpdatePart) -> tuple[UpdatePart, ...]:
    """The parts of a chain; a single part is a chain of itself."""
    return getattr(part, "parts", (part,))


def draw(like: Tensor, generator: Generator, law: Callable[..., Tensor] = torch.randn) -> Tensor:
    """Random numbers of the shape of ``like``, drawn where the generator lives."""
    return law(like.shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
