"""The threat: what an adversary is granted, what is hidden from it, and which address a name means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from leakgauge import guards
from leakgauge.errors import ObservationError, nearest

Labels = Literal["known", "inferred", "joint"]
Knowledge = Literal["granted", "hidden"]


@dataclass(frozen=True)
class Threat:
    """The adversary's capabilities: every nuisance granted or hidden, and the server's power.

    ``grants`` lists addresses (``random_prune.mask``), or bare names where that is unambiguous (``mask``). ``labels``
    and ``learning_rate`` are spellings of the recipe's own addresses, which are granted unless said otherwise:
    hidden labels are ``inferred`` or searched for (``joint``), and the adversary says what it does about them.
    """

    grants: frozenset[str] = frozenset()
    labels: Labels = "known"
    learning_rate: Literal["known", "unknown"] = "known"
    server: Literal["honest", "active"] = "honest"

    def __post_init__(self) -> None:
        object.__setattr__(self, "grants", frozenset([self.grants] if isinstance(self.grants, str) else self.grants))
        guards.choice(self.labels, "labels", "threat", get_args(Labels))
        guards.choice(self.learning_rate, "learning_rate", "threat", ("known", "unknown"))
        guards.choice(self.server, "server", "threat", ("honest", "active"))

    def mapping(self, addresses: Iterable[str]) -> dict[str, Knowledge]:
        """Address → granted or hidden. A grant that names none of the addresses, or two of them, is an error."""
        known = list(addresses)
        granted = {address for name in sorted(self.grants) for address in [address_of(name, known)]}
        granted |= {"recipe.labels"} if self.labels == "known" else set()
        granted |= {"recipe.learning_rate"} if self.learning_rate == "known" else set()
        return {address: "granted" if address in granted else "hidden" for address in known}

    def about(self, addresses: Iterable[str]) -> Threat:
        """The same threat without grants that none of the addresses answers to: other defenses may have them."""
        known = list(addresses)
        return replace(self, grants=frozenset(name for name in self.grants if matching(name, known)))


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
