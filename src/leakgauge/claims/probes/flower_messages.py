"""Real messages of Flower's for probes: a train message, its context, and the reply of a client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray[Any, Any]]
ROUND = {"server-round": 1}


def context(node: int = 7) -> Any:
    from flwr.app import Context, RecordDict

    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def record(arrays: Arrays) -> Any:
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def message(
    arrays: Arrays | None, kind: str = "train", node: int = 7, configs: Mapping[str, Mapping[str, Any]] | None = None
) -> Any:
    """A message from the server; every value of ``configs`` is one config record."""
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.app.metadata import Metadata

    metadata = Metadata(
        run_id=1, message_id=f"m{node}", src_node_id=1, dst_node_id=node, reply_to_message_id="", group_id="",
        created_at=time.time(), ttl=3600.0, message_type=kind,
    )  # fmt: skip
    records = {} if arrays is None else {"arrays": record(arrays)}
    configs = {"config": ROUND} if configs is None else configs
    return Message(
        content=RecordDict({**records, **{name: ConfigRecord(dict(config)) for name, config in configs.items()}}),
        metadata=metadata,
    )


def reply(to: Any, arrays: Arrays | None, **metrics: float) -> Any:
    from flwr.app import Message, MetricRecord, RecordDict

    numbers = {name.replace("_", "-"): value for name, value in metrics.items()}
    records = {} if arrays is None else {"arrays": record(arrays)}
    return Message(content=RecordDict({**records, "metrics": MetricRecord(numbers)}), reply_to=to)


def answering(arrays: Arrays | None, **metrics: float) -> Callable[[Any, Any], Any]:
    """A client that always sends the same."""
    return lambda msg, ctx: reply(msg, arrays, **metrics)


def arrays_in(answer: Any) -> dict[str, np.ndarray[Any, Any]]:
    (content,) = answer.content.array_records.values()
    return {name: array.numpy() for name, array in content.items()}
