"""Capture: write down what leaves this site."""

from __future__ import annotations

from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.integrations.files import LIMIT, files_of, run_folder
from leakgauge.integrations.nvflare.contents import LOG, exchange_of, remembered, round_of, update_in


class Capture(Filter):  # type: ignore[misc]
    """A result filter that writes what it lets through to ``folder`` (absolute), and changes nothing.

    Without a folder it is the one in the site's environment, ``LEAKGAUGE_CAPTURE``. It protects nobody, so it does not
    fail closed: what cannot be written is a warning in the site's log, and training goes on.
    """

    def __init__(self, folder: str | None = None, limit: int = LIMIT) -> None:
        super().__init__()
        self.folder, self.limit = folder, limit
        if folder is not None:
            files_of(folder, limit)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        try:
            self._write(shareable, fl_ctx)
        except Exception as fault:
            LOG.warning("capture: not written: %s", fault)
        return shareable

    def _write(self, shareable: Shareable, fl_ctx: FLContext) -> None:
        dxo = update_in(shareable)
        if dxo is None:
            return
        files, both = files_of(self.folder, self.limit), exchange_of(dxo, fl_ctx)
        site = fl_ctx.get_identity_name() or "client"
        place = run_folder(fl_ctx.get_job_id() or "job", site)
        number = next((n for n in (remembered(fl_ctx)[1], round_of(shareable)) if n is not None), None)
        number = files.next_round(place) if number is None else number
        place = files.start(place, number, both.before)
        files.sent(place, number, site, both.after, examples=None, buffers=both.buffers)
