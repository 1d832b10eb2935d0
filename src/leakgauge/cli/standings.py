"""``leakgauge standings``: every attack and every defense, and your own, on one fixed set of clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo
from leakgauge.errors import DataError, ExitCode, refuse

if TYPE_CHECKING:
    from leakgauge.standings import Score

# Optional: typer reads the union | only from 0.12.4 on
Several = Optional[list[str]]  # noqa: UP045


def standings(
    defense: Annotated[Several, typer.Option(help="Only this defense, built-in or your own; may be repeated.")] = None,
    attack: Annotated[Several, typer.Option(help="Only this attack, built-in or your own; may be repeated.")] = None,
    client: Annotated[Several, typer.Option(help="Only this client, by name; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few rows in seconds, to try the command.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only list the rows.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 1,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The folder of the rows; default: standings, or standings-quick."),
    ] = None,
    own_code: Allowed = False,
) -> None:
    """Measure the standings, or a row of your own beside them; run it again to resume.

    \b
    Examples:
      leakgauge standings --workers 2                                     all rows: 1.3 processor hours, as measured
      leakgauge standings --quick                                         a few rows in seconds
      leakgauge standings --defense "my_package.noise:Mine()" --own-code  your defense against every general attack
      leakgauge standings --attack "my_package.attacks:Mine()" --own-code your attack on every defense
      leakgauge standings --client cnn --defense "sign()" --attack "standard()"

    Clients, seeds and budgets are fixed and have a version, so that rows measured elsewhere can be compared. Rows
    already in --out are not measured again. Writes standings.md and standings.json there, of all rows in it; the page
    shows the rows that come with leakgauge beside them.
    """
    from leakgauge.standings import Row, beside, clients, gathered, page, planned, run
    from leakgauge.standings.page import summary
    from leakgauge.standings.rows import faults_of
    from leakgauge.standings.running import available, own_objects
    from leakgauge.standings.set_ups import SIZES

    announce(*(defense or ()), *(attack or ()), allowed=own_code)
    size = SIZES["quick" if quick else "full"]
    rows = [
        Row(one, size, d, a) for one, d, a in planned(size, clients(size, client or ()), defense or (), attack or ())
    ]
    refuse(faults_of(rows))  # what is no defense or no attack shows now
    if listed:
        for row in rows:
            echo(row.command)
        return
    there, missing = available(rows)
    for sentence in missing.values():
        echo(f"left out: {sentence}", err=True)
    if not there:
        raise DataError("there are no data for these rows", where="standings", remedy="; ".join(missing.values()))
    folder = out or Path("standings-quick" if quick else "standings")
    try:
        scores = run(there, folder, workers=workers, report=_tell)
    except KeyboardInterrupt:
        echo("interrupted; finished rows are saved, and the same command resumes", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show(scores)
    notes = [f"Left out: {sentence}." for sentence in missing.values()]
    named = own_objects(folder, size)
    if own_code:
        announce(*sorted({path for one in named for path in one} - {path for row in rows for path in row.own}))
    elif named:
        echo(f"left out: rows that name your own code ({len(named)}); --own-code adds them to the page", err=True)
        notes.append(f"Left out: rows that name somebody's own code ({len(named)}), which was not imported.")
    if every := gathered(folder, size, own_code=own_code):
        (folder / "standings.md").write_text(page(beside(every, size), notes), encoding="utf-8")
        (folder / "standings.json").write_text(summary(every), encoding="utf-8")
        echo(f"wrote {folder / 'standings.md'} and {folder / 'standings.json'}")
    if failed := sum(score.failed for score in scores):
        echo(f"{failed} of {len(scores)} rows failed; the same command tries them again", err=True)
        raise typer.Exit(ExitCode.INCOMPLETE)


def _tell(done: int, total: int, score: Score) -> None:
    failed = "failed" if score.failed else "does not apply"
    what = f"{failed} ({' '.join(score.fault.split())})" if score.fault else f"SSIM {score.interval.mean:.3f}"
    row = score.row
    echo(f"{done}/{total} {row.client.name}, {row.defense}, {row.attack}: {what}", err=True)


def _show(scores: list[Score]) -> None:
    rows = []
    for score in scores:
        if score.fault is None:
            mean, row = score.interval, score.row
            between = f"[{mean.low:.3f}, {mean.high:.3f}]"
            rows.append((row.client.name, row.defense, row.attack, f"{mean.mean:.3f}", between))
    if rows:
        table(("client", "defense", "attack", "SSIM", "95 %"), rows)
