"""What mods read off Flower's messages, and what they answer; none of it says a measured number.

Names of records are the app's choice, so the one ``ArrayRecord`` of a message is taken, whatever its name; a message
with several is refused. Old NumPyClient apps number their arrays "0", "1", … in the order of the state dict.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leakgauge.errors import MissingExtraError, ObservationError
from leakgauge.integrations.exchange import WITHHELD, Arrays, Exchange, exchanged, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context, Message

    Next = Callable[[Message, Context], Message]

LOG = logging.getLogger("leakgauge.flower")
CODE = 1000
ROUNDS = ("server-round", "server_round", "current_round", "round", "rnd")
EXAMPLES = ("num-examples", "num_examples")


def flwr_part(module: str, name: str) -> Any:
    """An object of Flower's, or which extra is missing."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        raise MissingExtraError(
            "the package flwr is not installed, or is too old", where="flower", remedy="pip install 'leakgauge[flower]'"
        ) from None


def trains(message: Message) -> bool:
    """Whether it is a train message (``train``, ``train.action``); evaluations and queries pass the same mods."""
    return str(message.metadata.message_type).partition(".")[0] == "train"


def arrays_of(message: Message) -> tuple[str, Arrays]:
    """The one array record of a message and its name."""
    records = list(message.content.array_records.items())
    if len(records) != 1:
        raise ObservationError(
            f"a message has {len(records)} array records", where="flower", remedy="send the weights in one ArrayRecord"
        )
    key, record = records[0]
    return key, {name: array.numpy() for name, array in record.items()}


def exchange(before: Arrays, reply: Message) -> Exchange:
    """What came and what goes, checked."""
    return exchanged(before, arrays_of(reply)[1], "flower")


def round_of(message: Message) -> int | None:
    """The round that the server states, under any of the usual names."""
    stated = _first(message.content.config_records, ROUNDS)
    return int(stated) if stated is not None else None


def examples_of(reply: Message) -> int | None:
    """The number of examples that the reply states."""
    stated = _first(reply.content.metric_records, EXAMPLES)
    return int(stated) if stated is not None else None


def _first(records: Mapping[str, Mapping[str, Any]], names: tuple[str, ...]) -> Any:
    values = [record[name] for name in names for record in records.values() if name in record]
    return values[0] if values and isinstance(values[0], int | float) else None


def withheld(message: Message) -> Message:
    """The reply of a client that sends nothing. Strategies leave it out of their mean."""
    error = flwr_part("flwr.app", "Error")(code=CODE, reason=WITHHELD)
    reply: Message = flwr_part("flwr.app", "Message")(error, reply_to=message)
    return reply


def guarded(
    what: str, message: Message, context: Context, call_next: Next, act: Callable[[Message, Exchange], Message]
) -> Message:
    """Run the app, then ``act`` on its reply; fails closed.

    Whatever goes wrong in ``act``, the update stays here, the server gets one neutral sentence, and only the node's log
    says why. Arrays leave in answers to train messages only. An exception of the app itself is Flower's business.
    """
    try:
        before = arrays_of(message)[1] if trains(message) else {}  # first: an app may write into what it was given
    except Exception as fault:
        return _refused(what, fault, message)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    try:
        if trains(message):
            return act(reply, exchange(before, reply))
        if not reply.content.array_records:
            return reply
        raise ObservationError(f"arrays in the answer to a {message.metadata.message_type!r} message")
    except Exception as fault:  # Flower would send the text of the exception to the server
        return _refused(what, fault, message)


def _refused(what: str, fault: Exception, message: Message) -> Message:
    refused(LOG, what, fault)
    return withheld(message)
