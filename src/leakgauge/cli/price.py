"""``leakgauge price``: what one record costs an adversary, from the times of a finished audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo
from leakgauge.errors import LeakgaugeError


def price(
    run: Annotated[Path, typer.Argument(help="The folder of a finished audit.")],
    records: Annotated[
        Optional[int],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Option(min=1, help="Records per client, for defenses that mix them; default: the spec's."),
    ] = None,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Epochs of updates collected under InstaHide; default: the spec's, or 50."),
    ] = None,
) -> None:
    """Show what recovering one record costs end to end, in processor hours of the machine that ran the audit.

    \b
    Examples:
      leakgauge price run1
      leakgauge price run1 --records 12000 --epochs 20

    InstaHide: the cost model of Huang et al., 2021, Table 3, with the time of one attack as this audit measured it and
    the GPU hours of the paper for the rest. MixUp: three rounds of updates, inverted.
    """
    from leakgauge.report import read
    from leakgauge.report.price import bills, duration, explained, one_record

    priced = bills(read(run), records=records, epochs=epochs)
    if not priced:
        raise LeakgaugeError(
            "no attack of this run was timed", where=str(run), remedy="finish it with `leakgauge audit`"
        )
    rows = [(b.name, str(b.step), b.adversary, duration(b.attack), one_record(b)) for b in priced]
    table(("defense", "step", "strongest adversary", "one attack", "one record, end to end"), rows)
    echo(explained(priced))
