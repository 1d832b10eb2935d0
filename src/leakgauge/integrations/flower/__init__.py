"""Flower: capture, defend and gate what clients send, as mods of an app, at the server, or on a node for every app.

    app = ClientApp(mods=[Capture()])                               # the app's author: what leaves this client
    strategy = captured(FedAvg(), "/var/lib/captures")              # the server: what it sees of everybody
    PYTHONPATH=$(python -m leakgauge.integrations.flower) LEAKGAUGE_CAPTURE=/var/lib/captures flower-supernode …

All write one format, which ``leakgauge inspect --folder`` reads. The first mod of a list acts last on the way out:
``mods=[Capture("sent"), Gate(…), Defend("clip(norm=1.0) | gaussian(std=0.1)"), Capture("raw")]``.

Needs ``leakgauge[flower]`` (plain ``flwr``, no Ray).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leakgauge.integrations.flower.capture import Capture
from leakgauge.integrations.flower.defend import Defend
from leakgauge.integrations.flower.gate import Gate
from leakgauge.integrations.flower.node import wrap

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy


def captured(strategy: Strategy, folder: str, *, limit: int | None = None) -> Strategy:
    """A strategy that does what ``strategy`` does and writes down what every client sent (see :class:`Capture`)."""
    from leakgauge.integrations.flower.messages import flwr_part

    flwr_part("flwr.serverapp.strategy", "Strategy")  # says which extra is missing
    from leakgauge.integrations.flower.server import Captured

    options: dict[str, Any] = {} if limit is None else {"limit": limit}
    return Captured(strategy, folder, **options)


__all__ = ["Capture", "Defend", "Gate", "captured", "wrap"]
