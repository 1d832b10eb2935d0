"""The threat: what an adversary is granted, what is hidden from it, and which address a name means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from leakgauge import guards
from leakgauge.errors import DomainError, ObservationError, nearest

Labels = Literal["known", "inferred", "joint"]
Knowledge = Literal["granted", "hidden"]
RECIPE = "recipe"
LABELS, LEARNING_RATE = f"{RECIPE}.labels", f"{RECIPE}.learning_rate"
"""The label of what the recipe itself leaves open, and those of its addresses that a threat has a spelling for."""


@dataclass(frozen=True)
class Threat:
    """The adversary's capabilities: every nuisance granted or hidden, and the server's power.

    ``grants`` lists addresses (``random_prune.mask``), or bare names where that is unambiguous (``mask``). ``labels``
    and ``learning_rate`` are spellings of the recipe's own addresses, which are granted unless said otherwise:
    hidden labels are ``inferred`` or searched for (``joint``), and the adversary says what it does about them. A grant
    of such an address grants it, whatever the other spelling says. Servers are honest; active ones are refused, since
    nothing models them yet.
    """

    grants: frozenset[str] = frozenset()
    labels: Labels = "known"
    learning_rate: Literal["known", "unknown"] = "known"
    server: Literal["honest", "active"] = "honest"

    def __post_init__(self) -> None:
        object.__setattr__(self, "grants", _names(self.grants))
        with guards.together():
            guards.choice(self.labels, "labels", "threat", get_args(Labels))
            guards.choice(self.learning_rate, "learning_rate", "threat", ("known", "unknown"))
            guards.choice(self.server, "server", "threat", ("honest", "active"))
        if self.server == "active":
            what, remedy = "active servers are not modelled yet", 'leave server out: it is "honest", and only observes'
            raise DomainError(what, where="threat", remedy=remedy)

    def knows(self, address: str) -> bool:
        """Whether one of the recipe's addresses is granted, in any spelling."""
        told = {LABELS: self.labels == "known", LEARNING_RATE: self.learning_rate == "known"}
        return told.get(address, False) or any(matching(name, [address]) for name in self.grants)

    def without(self, address: str) -> Threat:
        """The same threat with one of the recipe's addresses hidden, in every spelling; labels are then inferred."""
        labels: Labels = "inferred" if address == LABELS and self.labels == "known" else self.labels
        rate: Literal["known", "unknown"] = "unknown" if address == LEARNING_RATE else self.learning_rate
        grants = frozenset(name for name in self.grants if not matching(name, [address]))
        return replace(self, grants=grants, labels=labels, learning_rate=rate)

    def mapping(self, addresses: Iterable[str]) -> dict[str, Knowledge]:
        """Address → granted or hidden. A grant that names none of the addresses, or two of them, is an error."""
        known = list(addresses)
        granted = {address for name in sorted(self.grants) for address in [address_of(name, known)]}
        granted |= {LABELS} if self.labels == "known" else set()
        granted |= {LEARNING_RATE} if self.learning_rate == "known" else set()
        return {address: "granted" if address in granted else "hidden" for address in known}

    def about(self, addresses: Iterable[str]) -> Threat:
        """The same threat without grants that none of the addresses answers to: other defenses may have them."""
        known = list(addresses)
        return replace(self, grants=frozenset(name for name in self.grants if matching(name, known)))


def _names(grants: object) -> frozenset[str]:
    """Grants as a set; one name alone is a set of it."""
    listed = [grants] if isinstance(grants, str) else list(grants) if isinstance(grants, Iterable) else [grants]
    if not all(isinstance(name, str) for name in listed):
        remedy = 'give addresses, as in grants={"random_prune.mask"}'
        raise DomainError(f"grants must be a set of names, got {grants!r}", where="threat", remedy=remedy)
    return frozenset(listed)


def matching(name: str, addresses: Iterable[str]) -> list[str]:
    """The addresses that a name may mean: itself, or those that end in it."""
    known = list(addresses)
    return [name] if name in known else [address for address in known if address.rpartition(".")[2] == name]


def address_of(name: str, addresses: Iterable[str]) -> str:
    """The one address that a name means, or an :class:`ObservationError` with the nearest ones."""
    known = list(addresses)
    meant = matching(name, known)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ObservationError(
            f"{name!r} may mean {' or '.join(meant)}", where="threat.grants", remedy=f"say {meant[0]!r}"
        )
    remedy = nearest(name, known) if known else "take it out: nothing is hidden here"
    raise ObservationError(f"there is no nuisance {name!r} to grant", where="threat.grants", remedy=remedy)
