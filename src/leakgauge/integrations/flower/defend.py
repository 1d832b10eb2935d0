"""Defend: protect the update of any app by any update-stage part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.integrations.defending import Defending
from leakgauge.integrations.flower.messages import arrays_of, flwr_part, guarded

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from leakgauge.integrations.exchange import Exchange
    from leakgauge.integrations.flower.messages import Next


@dataclass(frozen=True)
class Defend(Defending):
    """A client mod that applies a protection to the weight change: ``Defend("clip(norm=1.0) | gaussian(std=0.1)")``.

    The noise comes from a generator of its own, whatever the app seeds. Counters and running statistics go back as they
    came, unless ``buffers = "send"``. Metrics and the number of examples are the app's and leave as they are. Fails
    closed.
    """

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        return guarded("defend", message, context, call_next, self._act)

    def _act(self, reply: Message, both: Exchange) -> Message:
        array, record = flwr_part("flwr.app", "Array"), flwr_part("flwr.app", "ArrayRecord")
        released = self.released(both)
        reply.content[arrays_of(reply)[0]] = record({name: array(value) for name, value in released.items()})
        return reply
