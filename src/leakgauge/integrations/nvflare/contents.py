"""What filters read off NVFlare's Shareable and DXO; arrays are numpy's or torch's, and leave as they came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.errors import ObservationError
from leakgauge.integrations.exchange import WITHHELD, Arrays, Exchange, exchanged, refused

LOG = logging.getLogger("leakgauge.nvflare")
KEY = "leakgauge.global_model"
"""Where the weights of a round are, in the private and sticky part of a context."""

ROUND = "current_round"


def arrays_of(data: Mapping[str, Any]) -> Arrays:
    """Named arrays, copied: whoever trains may write into its own."""
    import torch

    arrays = {}
    for name, value in data.items():
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ObservationError(f"{name!r} holds {array.dtype}, no numbers", where="nvflare")
        arrays[str(name)] = array.copy()
    return arrays


def like(arrays: Arrays, data: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays in the form in which the client sent them."""
    import torch

    return {
        name: torch.from_numpy(arrays[name]).to(value.device) if isinstance(value, torch.Tensor) else arrays[name]
        for name, value in data.items()
    }


def remembered(fl_ctx: FLContext) -> tuple[Arrays, int | None]:
    """The weights that this round began with, and its number."""
    stored = fl_ctx.get_prop(KEY)
    if stored is None:
        raise ObservationError(
            "the global model of this round is not known", where="nvflare", remedy="add Remember() as a data filter"
        )
    weights, number = stored
    return weights, number


def round_of(shareable: Shareable) -> int | None:
    """The round that a header states."""
    stated = shareable.get_header(ROUND)
    return int(stated) if isinstance(stated, int | float) else None


def exchange_of(dxo: DXO, fl_ctx: FLContext) -> Exchange:
    """What came and what goes, of full weights or of their difference."""
    before, _ = remembered(fl_ctx)
    values = arrays_of(dxo.data)
    if dxo.data_kind == DataKind.WEIGHT_DIFF:
        if set(values) != set(before):
            raise ObservationError("the result names other arrays than the task", where="nvflare")
        values = {n: np.asarray(before[n] + v, dtype=before[n].dtype) for n, v in values.items()}
    return exchanged(before, values, "nvflare")


def update_in(shareable: Shareable) -> DXO | None:
    """The DXO with weights or their difference; None for an error, or metrics without any array. Others raise."""
    if shareable.get_return_code() != ReturnCode.OK:
        return None
    dxo = from_shareable(shareable)
    if dxo.data_kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
        return dxo
    if dxo.data_kind == DataKind.METRICS and all(isinstance(v, int | float | str) for v in dxo.data.values()):
        return None
    raise ObservationError(f"a result of the kind {dxo.data_kind!r} cannot be judged", where="nvflare")


def guarded(
    what: str, shareable: Shareable, fl_ctx: FLContext, act: Callable[[DXO, Exchange], Shareable | None]
) -> Shareable:
    """Let ``act`` change or judge a result; fails closed.

    ``act`` returns None to withhold it. NVFlare then sends an error in place of the result; the reason is in the site's
    own log. Results of other kinds than weights and plain metrics are withheld, too: they may hold anything.
    """
    try:
        dxo = update_in(shareable)
        result = shareable if dxo is None else act(dxo, exchange_of(dxo, fl_ctx))
    except Exception as fault:
        refused(LOG, what, fault)
        result = None
    if result is None:
        raise ContentBlockedException(WITHHELD)
    return result
