"""What may go wrong among several clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from leakgauge.errors import LeakgaugeError

if TYPE_CHECKING:
    from leakgauge.fl.history import History


class SecureSumError(LeakgaugeError):
    """A sum that would be wrong, or would give a client's value away."""


class DroppedError(SecureSumError):
    """Clients that did not answer: the attempt is over. ``clients`` names them."""

    def __init__(self, clients: Iterable[str], what: str) -> None:
        self.clients = tuple(clients)
        super().__init__(what, where="secure sum", remedy="start again without them, with new keys")


class FederationError(LeakgaugeError):
    """A training that cannot go on; ``history`` holds the rounds that were finished."""

    def __init__(self, what: str, *, history: History, where: str | None = None, remedy: str | None = None) -> None:
        self.history = history
        super().__init__(what, where=where, remedy=remedy)
