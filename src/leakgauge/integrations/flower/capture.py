"""Capture: write down what leaves this client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.integrations.exchange import Exchange
from leakgauge.integrations.files import LIMIT, Files, files_of, run_folder
from leakgauge.integrations.flower.messages import LOG, arrays_of, examples_of, exchange, round_of, trains

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from leakgauge.integrations.flower.messages import Next


@dataclass(frozen=True)
class Capture:
    """A client mod that writes what it lets through to ``folder`` (absolute), and changes nothing.

    Without a folder it is the one in the node's environment, ``LEAKGAUGE_CAPTURE``; never one from the run's
    configuration, which whoever submits a run could point at any place of the node's disk.

    It protects nobody, so it does not fail closed: what cannot be written (a full disk, ``limit`` bytes reached,
    several array records) is a warning in the node's log, and training goes on. As the first of several mods it sees
    what is sent, as the last one what the app computed.
    """

    folder: str | None = None
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if self.folder is not None:
            self._files()

    def _files(self) -> Files:
        return files_of(self.folder, self.limit)

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        if not trains(message):
            return call_next(message, context)
        try:
            before = arrays_of(message)[1]  # first: an app may write into what it was given
        except Exception as fault:
            LOG.warning("capture: not written: %s", fault)
            return call_next(message, context)
        reply = call_next(message, context)
        if not reply.has_error():
            try:
                self._write(message, context, reply, exchange(before, reply))
            except Exception as fault:
                LOG.warning("capture: not written: %s", fault)
        return reply

    def _write(self, message: Message, context: Context, reply: Message, both: Exchange) -> None:
        files, place = self._files(), run_folder(context.run_id, context.node_id)
        number = round_of(message)
        number = files.next_round(place) if number is None else number
        place = files.start(place, number, both.before)
        files.sent(place, number, context.node_id, both.after, examples=examples_of(reply), buffers=both.buffers)
