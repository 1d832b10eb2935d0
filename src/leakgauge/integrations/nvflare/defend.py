"""Defend: protect what leaves this site by any update-stage part."""

from __future__ import annotations

from typing import Literal

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.integrations.defending import Defending
from leakgauge.integrations.exchange import Exchange
from leakgauge.integrations.nvflare.contents import guarded, like


class Defend(Filter):  # type: ignore[misc]
    """A result filter that applies a protection to the weight change: ``Defend("clip(norm=1.0) | gaussian(std=0.1)")``.

    It takes full weights and differences; both leave in the form in which they came, see
    :class:`~leakgauge.integrations.defending.Defending`. Metrics leave as they are. Fails closed.
    """

    def __init__(self, protection: str, buffers: Literal["withhold", "send"] = "withhold") -> None:
        super().__init__()
        self.protection, self.buffers = protection, buffers
        self._defending = Defending(protection, buffers)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        def act(dxo: DXO, both: Exchange) -> Shareable:
            sent = self._defending.released(both)
            if dxo.data_kind == DataKind.WEIGHT_DIFF:
                sent = {n: np.asarray(v - both.before[n], dtype=v.dtype) for n, v in sent.items()}
            dxo.data = like(sent, dxo.data)
            dxo.add_filter_history(type(self).__name__)
            return dxo.update_shareable(shareable)

        return guarded("defend", shareable, fl_ctx, act)
