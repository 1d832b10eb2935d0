"""Remember: keep the weights that a round begins with, for the filters of its result."""

from __future__ import annotations

from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.integrations.nvflare.contents import KEY, LOG, arrays_of, round_of


class Remember(Filter):  # type: ignore[misc]
    """A data filter that keeps the global weights of a round in the context, private to this site; changes nothing.

    Capture, Defend and Gate need it. Without the weights Defend and Gate withhold every result.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        weights = None
        try:
            dxo = from_shareable(shareable)
            if dxo.data_kind == DataKind.WEIGHTS:
                weights = (arrays_of(dxo.data), round_of(shareable))
        except Exception as fault:
            LOG.warning("remember: %s", fault)
        fl_ctx.set_prop(KEY, weights, private=True, sticky=True)  # nothing older may stand in for this round's
        return shareable
