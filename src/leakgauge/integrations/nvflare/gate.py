"""Gate: attack a result before it leaves this site, and keep it here if the site's own records come out."""

from __future__ import annotations

from typing import Any, Literal

from nvflare.apis.dxo import DXO
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.expr import load, parse
from leakgauge.integrations.exchange import Exchange
from leakgauge.integrations.judging import Judge
from leakgauge.integrations.nvflare.contents import LOG, guarded


class Gate(Filter):  # type: ignore[misc]
    """A result filter that attacks every outgoing update against the site's own records, and withholds what leaks.

    Jobs are JSON, so ``model`` and ``records`` are paths: ``my_site.policy:build`` builds the network,
    ``my_site.policy:records`` is called with the context and gives the site's own records. The rest is as in
    :class:`~leakgauge.integrations.judging.Judge`; ``loss`` is an expression, ``batch`` the examples of a local step,
    which a result of NVFlare's does not state. A result that is withheld is not sent: NVFlare sends an error without a
    number in its place. Fails closed.
    """

    def __init__(
        self,
        model: str,
        records: str,
        threshold: float | None = None,
        budget: int = 20_000,
        batch: int = 1,
        mode: Literal["train", "eval"] = "eval",
        loss: str | None = None,
        defense: str | None = None,
        action: Literal["block", "warn"] = "block",
    ) -> None:
        super().__init__()
        self.model, self.records = model, records
        self.threshold, self.budget, self.batch = threshold, budget, batch
        self.mode, self.loss, self.defense, self.action = mode, loss, defense, action
        self._judge = Judge(
            lambda: _called(model), lambda context: _called(records, context), threshold, budget, batch, mode,
            None if loss is None else parse(loss, "loss", where="Gate"), defense, action,
        )  # fmt: skip

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        def act(dxo: DXO, both: Exchange) -> Shareable | None:
            return None if self._judge.withholds(both, fl_ctx, None, LOG) else shareable

        return guarded("gate", shareable, fl_ctx, act)


def _called(path: str, *arguments: object) -> Any:
    """What a function of the site's own gives."""
    return load(path, where="Gate")(*arguments)
