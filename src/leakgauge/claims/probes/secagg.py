"""Probes of Flower's SecAgg+: three clients run the protocol up to the masked vectors."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from leakgauge.claims.probes import Numbers, probe
from leakgauge.claims.probes.flower_messages import context, message

KEYS = 400
RANGE = 1 << 32
NODES, EXAMPLES = (11, 12, 13), 321


def _folded(key: bytes) -> int:
    return reduce(lambda a, b: a ^ b, (int.from_bytes(key[i : i + 4], "little") for i in range(0, len(key), 4)))


@probe("flwr")
def mask_bits() -> tuple[bool, Numbers]:
    """How many bits decide a pairwise mask: those of 32 that vary between keys, if a 32-bit seed reproduces it."""
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import generate_key_pairs

    own, _ = generate_key_pairs()
    keys = [generate_shared_key(own, generate_key_pairs()[1]) for _ in range(KEYS)]
    masks = [pseudo_rand_gen(key, RANGE, [(8,)])[0] for key in keys[:20]]
    guesses = [np.random.RandomState(_folded(key)).randint(0, RANGE - 1, (8,), dtype=np.int64) for key in keys[:20]]
    if not all(np.array_equal(mask, guess) for mask, guess in zip(masks, guesses, strict=True)):
        return False, {}
    varying = reduce(lambda a, b: a | b, (_folded(key) ^ _folded(keys[0]) for key in keys))
    return True, {"bits": float(varying.bit_count())}


@probe("flwr")
def counts_in_clear() -> tuple[bool, Numbers]:
    """Whether the number of examples leaves beside the masked vector."""
    from flwr.client.mod import secaggplus_mod
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

    contexts = {node: context(node) for node in NODES}
    weights = {"0": np.zeros(4)}

    def send(node: int, **configs: Any) -> Any:
        msg = message(None, node=node, configs={RECORD_KEY_CONFIGS: configs, "fitins.config": {}})
        return secaggplus_mod(msg, contexts[node], _old_client(weights))

    def stated_by(answer: Any) -> dict[str, Any]:
        return dict(answer.content.config_records[RECORD_KEY_CONFIGS])

    sizes = {Key.SAMPLE_NUMBER: 3, Key.SHARE_NUMBER: 3, Key.THRESHOLD: 2, Key.TARGET_RANGE: 1 << 22}
    ranges = {Key.CLIPPING_RANGE: 8.0, Key.MOD_RANGE: RANGE, Key.MAX_WEIGHT: 1000.0}
    public = {n: stated_by(send(n, **{Key.STAGE: Stage.SETUP}, **sizes, **ranges)) for n in NODES}
    keys = {str(n): [p[Key.PUBLIC_KEY_1], p[Key.PUBLIC_KEY_2]] for n, p in public.items()}
    shares = {n: stated_by(send(n, **{Key.STAGE: Stage.SHARE_KEYS}, **keys)) for n in NODES}
    letters = [
        (n, text)
        for n, s in shares.items()
        for to, text in zip(s[Key.DESTINATION_LIST], s[Key.CIPHERTEXT_LIST], strict=True)
        if to == NODES[0]
    ]
    collect = {Key.SOURCE_LIST: [n for n, _ in letters], Key.CIPHERTEXT_LIST: [text for _, text in letters]}
    answer = send(NODES[0], **{Key.STAGE: Stage.COLLECT_MASKED_VECTORS}, **collect)
    stated = [value for metrics in answer.content.metric_records.values() for value in metrics.values()]
    return EXAMPLES in stated, {"sent": float(next((v for v in stated if v == EXAMPLES), 0))}


def _old_client(weights: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A client of the old interface, which the protocol needs."""
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp.typing import ClientAppCallable

    from leakgauge.claims.probes.flower_messages import record

    def fit(msg: Any, ctx: Any) -> Any:
        content = RecordDict(
            {
                "fitres.parameters": record(weights),
                "fitres.num_examples": MetricRecord({"num_examples": EXAMPLES}),
                "fitres.metrics": ConfigRecord({}),
                "fitres.status": ConfigRecord({"code": 0, "message": ""}),
            }
        )
        return Message(content=content, reply_to=msg)

    call: ClientAppCallable = fit
    return call
