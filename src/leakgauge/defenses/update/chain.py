"""Chains: one part after another, and the density of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Generator, Size, Tensor

from leakgauge.defenses.update.base import Conditions, EntryDensity, Support, UpdatePart, conditioned
from leakgauge.defenses.update.maps import Clip, Identity
from leakgauge.errors import DomainError, LeakgaugeError, NoDensityError
from leakgauge.expr import labelled
from leakgauge.types import Context, Known, Nuisance, Nuisances, Release, Tree, Updates, own_of


@dataclass(frozen=True, repr=False)
class Chain(UpdatePart):
    """``first | second | …``: each part acts on what the part before it let out.

    The density exists for any number of deterministic maps, then one noise, then parts that select
    coordinates or round; random selections right before the noise are summed out when their masks are not granted.
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

    @cached_property
    def labelled(self) -> dict[str, UpdatePart]:
        """The parts by their labels: their names, the second of two equal ones ``name#2``."""
        return labelled(self.parts)

    @property
    def nuisances(self) -> tuple[Nuisance, ...]:  # type: ignore[override]
        """Those of the parts, each under its address ``part.name``."""
        return tuple(
            replace(n, name=f"{label}.{n.name}") for label, part in self.labelled.items() for n in part.nuisances
        )

    @property
    def support(self) -> Support:  # type: ignore[override]
        return "sphere" if any(part.support == "sphere" for part in self.parts) else "entries"

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))

    def fits(self, params: Tree) -> None:
        for part in self.parts:
            part.fits(params)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        observed, drawn = dict(update), {}
        for label, part in self.labelled.items():
            try:
                out = part.release(observed, context, generator=generator)
            except Exception as fault:  # somebody's code may raise anything
                fault.add_note(repr(part))
                raise
            out = _checked(part, out, observed)
            observed = out.observed
            drawn.update({f"{label}.{name}": value for name, value in out.drawn.items()})
        return Release(observed, drawn)

    def visible(self, observed: Tree) -> dict[str, Tree]:
        known: dict[str, Tree] = {}
        scaled = zeroed = False
        for label, part in reversed(self.labelled.items()):
            values = part.covered(observed) if zeroed else part.visible(observed)
            if scaled:  # zeros survive a rescaling, magnitudes do not
                places = {n.name for n in part.nuisances if n.per == "entry"}
                values = {name: value for name, value in values.items() if name in places}
            known.update({f"{label}.{name}": value for name, value in values.items()})
            scaled = scaled or isinstance(part, Clip)
            if isinstance(part, Identity | Clip):
                continue
            before = part.undone(observed)
            if before is not None:
                observed = before
                continue
            zeroed = True
            if not values or part.makes_zeros:
                break  # noise, and zeros of a rounding, cover up what lies below them
        return known

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        noise = self.noise_at()
        moved, hidden = self._moved(noise, update, known)
        if noise == len(self.parts) - 1 and not hidden:
            return self.parts[noise].log_density(observed, moved, known=self._of(known, noise))
        return conditioned(
            lambda values: self._entry_density(noise, values, hidden), observed, moved, self._conditions(noise, known)
        )

    def apply(self, update: Updates, known: Known) -> Updates | None:
        for label, part in self.labelled.items():
            moved = part.apply(update, own_of(known, label))
            if moved is None:
                return None
            update = moved
        return update

    def _conditions(self, noise: int, known: Known) -> Known:
        """What is known, entry by entry, of the noise and of the parts after it: their density may depend on it."""
        addresses = [
            f"{label}.{nuisance.name}"
            for label, part in list(self.labelled.items())[noise:]
            if part != part.neutral()
            for nuisance in part.nuisances
            if nuisance.per in ("entry", "tensor")
        ]
        return {address: known[address] for address in addresses if address in known}

    def _of(self, known: Nuisances, place: int) -> dict[str, Any]:
        """What is known of the part at a place of the chain, by its bare names."""
        return own_of(known, list(self.labelled)[place])

    def sums_out(self, address: str) -> bool:
        """Whether the density exists while this nuisance, and no other, is hidden from who evaluates it."""
        label, _, _ = address.rpartition(".")
        places = list(self.labelled)
        if label not in places or not any(is_noise(part) for part in self.parts):
            return False
        try:
            noise, place = self.noise_at(), places.index(label)
        except NoDensityError:
            return False
        if place > noise:
            return False
        if place == noise:
            return True
        density = self.parts[noise].entry_density()
        maps_follow = any(not part.selects for part in self.parts[place + 1 : noise])
        in_the_way = any(not part.nuisances and not _is_map(part) for part in self.parts[:place])
        summed = density is not None and self.parts[place].before(density) is not None
        return summed and not maps_follow and not in_the_way

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

    def _moved(self, noise: int, update: Updates, known: Known) -> tuple[Updates, list[UpdatePart]]:
        """The update at the door of the noise, and the parts whose nuisance must be summed out."""
        hidden: list[UpdatePart] = []
        for i, part in enumerate(self.parts[:noise]):
            moved = part.apply(update, self._of(known, i))
            if moved is None:
                hidden.append(part)
            elif not hidden or (part.selects and all(other.selects for other in hidden)):
                update = moved
            else:
                raise NoDensityError(
                    f"part {i + 1}, {part!r}, acts after the hidden choice of {hidden[-1]!r}",
                    remedy=f"put {hidden[-1]!r} right before the noise, or {_granted(hidden[-1])}",
                )
        return update, hidden

    def _entry_density(self, noise: int, known: Conditions, hidden: list[UpdatePart]) -> EntryDensity:
        density = self.parts[noise].density_given(self._of(known, noise))
        if density is None:
            raise NoDensityError(
                f"the noise of {self.parts[noise]!r} is not independent entry by entry",
                remedy=f"let the chain end in {self.parts[noise]!r}",
            )
        for part in hidden:
            wrapped = part.before(density)
            if wrapped is None:
                hides = f"the {part.nuisances[0].name}" if part.nuisances else "the effect"
                raise NoDensityError(
                    f"{hides} of {part!r} is hidden by the noise after it",
                    remedy=f"{_granted(part)}, or put {part!r} after the noise",
                )
            density = wrapped
        for i, part in enumerate(self.parts[noise + 1 :], noise + 1):
            wrapped = part.after(density, self._of(known, i))
            if wrapped is None:
                raise NoDensityError(
                    f"part {i + 1}, {part!r}, acts on the noise of part {noise + 1}, {self.parts[noise]!r}",
                    remedy=f"put {part!r} first",
                )
            density = wrapped
        return density


def released(chain: Chain, update: Tree, context: Context | None, *, generator: Generator) -> Release:
    """What a chain lets out; where somebody's part raises or divides by zero, an error that names it."""
    try:
        release = chain.release(update, context, generator=generator)
    except LeakgaugeError:
        raise
    except Exception as fault:  # somebody's code may raise anything
        raise DomainError(
            f"its release raises {type(fault).__name__}: {fault}",
            where=getattr(fault, "__notes__", [repr(chain)])[-1],
            remedy="try it on an update of the model",
        ) from fault
    for name, value in release.observed.items():
        if bool(update[name].isfinite().all()) and not bool(value.isfinite().all()):
            raise DomainError(
                f"released NaN or infinite values of {name!r}", where=repr(chain), remedy="guard what it divides by"
            )
    return release


def _granted(part: UpdatePart) -> str:
    """What opens a part whose choice is in the way of a density."""
    return f"grant its {part.nuisances[0].name}" if part.nuisances else "give it an `apply`"


def _is_map(part: UpdatePart) -> bool:
    return type(part).apply is not UpdatePart.apply


def _checked(part: UpdatePart, out: object, update: Tree) -> Release:
    """What a part let out, if it is a release of every tensor and holds the nuisances that the part declares."""
    if not isinstance(out, Release):
        raise DomainError(
            f"released a {type(out).__name__}",
            where=repr(part),
            remedy="return Release(observed, drawn) from `release`",
        )
    _check_tensors(part, out.observed, update)
    declared, drawn = {n.name for n in part.nuisances}, set(out.drawn)
    if undeclared := drawn - declared:
        name = min(undeclared)
        raise DomainError(
            f"drew {name!r}, which it does not declare",
            where=repr(part),
            remedy=f'add Nuisance("{name}", per=…) to its `nuisances`',
        )
    if missing := declared - drawn:
        name = min(missing)
        raise DomainError(
            f"declares the nuisance {name!r} but did not draw it",
            where=repr(part),
            remedy=f'return Release(observed, {{"{name}": …}}), so that it can be granted',
        )
    for name, value in out.drawn.items():
        for what, remedy in misfits(value, update):
            raise DomainError(f"drew {name!r}, which {what}", where=repr(part), remedy=remedy)
    return out


def misfits(value: object, update: Tree) -> list[tuple[str, str]]:
    """Why a value is no nuisance of the update stage, and the remedy: it has the update's names, and meets its entries.

    One value for all entries of a tensor, or for a row of them, has the same number of dimensions.
    """
    if not isinstance(value, Mapping):
        kind = "one tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        return [(f"is {kind}", "give named tensors like the update")]
    if set(value) != set(update):
        return [("has other names than the update", "give it for every trained parameter")]
    return [
        (
            f"has shape {tuple(one.shape)} for {name!r} of shape {tuple(update[name].shape)}",
            "give one value, or one per entry, in as many dimensions",
        )
        for name, one in value.items()
        if not _meets(one.shape, update[name].shape)
    ]


def _meets(one: Size, entries: Size) -> bool:
    return len(one) == len(entries) and all(a in (1, b) for a, b in zip(one, entries, strict=True))


def _check_tensors(part: UpdatePart, observed: Tree, update: Tree) -> None:
    """Refuse a release of other tensors than the update has: other names, other shapes, or no numbers."""
    what = remedy = ""
    if missing := [name for name in update if name not in observed]:
        what, remedy = f"released no {missing[0]!r}", "return every tensor of the update, zeros for what is not sent"
    elif foreign := [name for name in observed if name not in update]:
        what, remedy = f"released {foreign[0]!r}, which the update does not have", "keep the names of the update"
    for name, value in observed.items() if not what else ():
        if not isinstance(value, Tensor):
            what, remedy = f"released a {type(value).__name__} as {name!r}", "return tensors"
        elif value.shape != update[name].shape:
            what = f"released {name!r} with shape {tuple(value.shape)} in the place of {tuple(update[name].shape)}"
            remedy = "keep the shapes, as in out.view_as(update)"
        elif not value.is_floating_point():
            what = f"released {name!r} as {str(value.dtype).removeprefix('torch.')}"
            remedy = "return floating-point values, for instance the integers times their scale"
    if what:
        raise DomainError(what, where=repr(part), remedy=remedy)


def is_noise(part: UpdatePart) -> bool:
    """Whether the part has a density of its own."""
    return type(part).entry_density is not UpdatePart.entry_density or (
        type(part).log_density is not UpdatePart.log_density
    )
