"""Chains: one part after another, and the density of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from leakgauge.defenses.update.base import EntryDensity, Support, UpdatePart
from leakgauge.defenses.update.maps import Clip, Identity
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.types import Context, Release, Side, Tree, Updates


@dataclass(frozen=True, repr=False)
class Chain(UpdatePart):
    """``first | second | …``: each part acts on what the part before it let out.

    The density exists for any number of deterministic maps, then one noise, then parts that select
    coordinates or round; a random selection right before the noise is summed out when its mask is not granted.
    Anything else raises :class:`NoDensityError` naming the part in the way.
    """

    parts: tuple[UpdatePart, ...]

    def __post_init__(self) -> None:
        for i, part in enumerate(self.parts):
            if part.per_example and not all(isinstance(before, Identity) for before in self.parts[:i]):
                raise DomainError(
                    f"part {i + 1}, {part!r}, acts on every example, not on what {self.parts[i - 1]!r} makes of them",
                    where=repr(self),
                    remedy=f"put {part!r} first",
                )

    @property
    def per_example(self) -> bool:
        return any(part.per_example for part in self.parts)

    @property
    def nuisances(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{i}.{name}" for i, part in enumerate(self.parts) for name in part.nuisances)

    @property
    def support(self) -> Support:  # type: ignore[override]
        return "sphere" if any(part.support == "sphere" for part in self.parts) else "entries"

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))

    def fits(self, params: Tree) -> None:
        for part in self.parts:
            part.fits(params)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        observed, side = dict(update), {}
        for i, part in enumerate(self.parts):
            out = part.release(observed, context, generator=generator)
            observed = out.observed
            side.update({f"{i}.{name}": value for name, value in out.side.items()})
        return Release(observed, side)

    def visible(self, observed: Tree) -> dict[str, Tree]:
        side: dict[str, Tree] = {}
        scaled = zeroed = False
        for i, part in reversed(list(enumerate(self.parts))):
            seen = part.covered(observed) if zeroed else part.visible(observed)
            if scaled:  # zeros survive a rescaling, magnitudes do not
                seen = {name: value for name, value in seen.items() if name == "mask"}
            side.update({f"{i}.{name}": value for name, value in seen.items()})
            scaled = scaled or isinstance(part, Clip)
            if not isinstance(part, Identity | Clip):
                zeroed = True
                if not seen:
                    break  # noise covers up what lies below it
        return side

    def log_density(self, observed: Tree, update: Updates, *, side: Side) -> Tensor:
        noise = self.noise_at()
        moved, hidden = self._moved(noise, update, side)
        if noise == len(self.parts) - 1 and not hidden:
            return self.parts[noise].log_density(observed, moved, side=_of(side, noise))
        return self._entry_density(noise, side, hidden)(observed, moved)

    def apply(self, update: Updates, side: Side) -> Updates | None:
        for i, part in enumerate(self.parts):
            moved = part.apply(update, _of(side, i))
            if moved is None:
                return None
            update = moved
        return update

    def noise_at(self) -> int:
        """The place of the noise; an error if there is none, or more than one."""
        places = [i for i, part in enumerate(self.parts) if is_noise(part)]
        # a rounding is random itself; after other noise it is one more part that acts on it
        again = [i for i in places[1:] if type(self.parts[i]).after is UpdatePart.after]
        if not places or again:
            what = "has no noise" if not places else "is random twice"
            remedy = "add gaussian(), laplace() or vmf()" if not places else "merge noises into one part"
            raise NoDensityError(f"{self!r} {what}", remedy=f"{remedy}, or attack with a matching loss")
        return places[0]

    def _moved(self, noise: int, update: Updates, side: Side) -> tuple[Updates, list[UpdatePart]]:
        """The update at the door of the noise, and the parts whose nuisance must be summed out."""
        hidden: list[UpdatePart] = []
        for i, part in enumerate(self.parts[:noise]):
            moved = part.apply(update, _of(side, i))
            if moved is None:
                hidden.append(part)
            elif not hidden:
                update = moved
            else:
                raise NoDensityError(
                    f"part {i + 1}, {part!r}, acts after the hidden choice of {hidden[-1]!r}",
                    remedy=f"put {hidden[-1]!r} right before the noise, or grant its {hidden[-1].nuisances[0]}",
                )
        return update, hidden

    def _entry_density(self, noise: int, side: Side, hidden: list[UpdatePart]) -> EntryDensity:
        density = self.parts[noise].density_given(_of(side, noise))
        if density is None:
            raise NoDensityError(
                f"the noise of {self.parts[noise]!r} is not independent entry by entry",
                remedy=f"let the chain end in {self.parts[noise]!r}",
            )
        for part in hidden:
            wrapped = part.before(density)
            if wrapped is None:
                raise NoDensityError(
                    f"the {part.nuisances[0]} of {part!r} is hidden by the noise after it",
                    remedy=f"grant its {part.nuisances[0]}, or put {part!r} after the noise",
                )
            density = wrapped
        for i, part in enumerate(self.parts[noise + 1 :], noise + 1):
            wrapped = part.after(density, _of(side, i))
            if wrapped is None:
                raise NoDensityError(
                    f"part {i + 1}, {part!r}, acts on the noise of part {noise + 1}, {self.parts[noise]!r}",
                    remedy=f"put {part!r} first",
                )
            density = wrapped
        return density


def is_noise(part: UpdatePart) -> bool:
    """Whether the part has a density of its own."""
    return type(part).entry_density is not UpdatePart.entry_density or (
        type(part).log_density is not UpdatePart.log_density
    )


def _of(side: Side, part: int) -> dict[str, Any]:
    prefix = f"{part}."
    return {key.removeprefix(prefix): value for key, value in side.items() if key.startswith(prefix)}
