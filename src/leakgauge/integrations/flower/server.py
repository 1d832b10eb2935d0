"""The server's side: a strategy that writes down what every client sent. Imports Flower."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from leakgauge.integrations.exchange import Arrays
from leakgauge.integrations.files import LIMIT, Files, run_folder
from leakgauge.integrations.flower.messages import LOG, arrays_of, examples_of, exchange


class Captured(Strategy):  # type: ignore[misc]
    """Any strategy, with captures of what it receives; what it computes is left alone.

    The weights of a round are those of the messages that the strategy sends, so that one which changes them (or sends
    other weights to some clients) is captured as it is. What cannot be written is a warning in the server's log.
    """

    def __init__(self, strategy: Strategy, folder: str, *, limit: int = LIMIT) -> None:
        self.strategy, self.files = strategy, Files(Path(folder), limit)
        self._sent: dict[int, Message] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._sent = {message.metadata.dst_node_id: message for message in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        received = list(replies)
        begun: dict[int, Arrays] = {}
        for reply in received:
            if not reply.has_error():
                try:
                    self._write(server_round, reply, begun)
                except Exception as fault:  # one client's reply must not cost the others theirs
                    LOG.warning("capture: not written: %s", fault)
        self._sent = {}
        aggregated: tuple[ArrayRecord | None, MetricRecord | None] = self.strategy.aggregate_train(
            server_round, received
        )
        return aggregated

    def _write(self, number: int, reply: Message, begun: dict[int, Arrays]) -> None:
        node, run = reply.metadata.src_node_id, reply.metadata.run_id
        message = self._sent[node]
        (record,) = message.content.array_records.values()
        before = begun.setdefault(id(record), arrays_of(message)[1])
        place = run_folder(run, None if len(begun) == 1 else node)  # a client with other weights gets its own folder
        both = exchange(before, reply)
        place = self.files.start(place, number, before)
        self.files.sent(place, number, node, both.after, examples=examples_of(reply), buffers=both.buffers)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages: Iterable[Message] = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics: MetricRecord | None = self.strategy.aggregate_evaluate(server_round, replies)
        return metrics

    def summary(self) -> None:
        self.strategy.summary()
