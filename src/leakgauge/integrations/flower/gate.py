"""Gate: attack an update before it is sent, and keep it here if the client's own records come out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from leakgauge.integrations.flower.messages import LOG, examples_of, guarded, withheld
from leakgauge.integrations.judging import Judge

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from leakgauge.integrations.exchange import Exchange
    from leakgauge.integrations.flower.messages import Next


@dataclass(frozen=True)
class Gate(Judge):
    """A client mod that attacks every outgoing update against the client's own records, and withholds what leaks.

    ``model`` builds the network, ``records(context)`` gives the client's own records. What leaks is what
    :class:`~leakgauge.integrations.judging.Judge` recovers within ``budget`` evaluations; the server gets one neutral
    error, the node's log says why. Fails closed.
    """

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        return guarded("gate", message, context, call_next, partial(self._act, message, context))

    def _act(self, message: Message, context: Context, reply: Message, both: Exchange) -> Message:
        return withheld(message) if self.withholds(both, context, examples_of(reply), LOG) else reply
