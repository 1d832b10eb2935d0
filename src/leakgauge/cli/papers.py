"""``leakgauge papers``: the tables and figures of the papers, our number beside theirs."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import DomainError, ExitCode, LeakgaugeError, brief
from leakgauge.expr import PATH

if TYPE_CHECKING:
    from leakgauge.papers.contract import Scale
    from leakgauge.papers.judging import Outcome

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def papers(context: typer.Context) -> None:
    """List the papers' tables and figures with their state; `papers run` reproduces one.

    \b
    Examples:
      leakgauge papers
      leakgauge papers run bayes/table-2 --scale smoke
      leakgauge papers run capacity/figure-1 --scale small --workers 2

    Reproduced: same network, data and metric, within the stated tolerance. Holds when reduced: within the tolerance,
    with less of something, which is listed. Differs: the reason is stated. Cannot be run: what is missing is stated.
    Not settled: the mean meets the bar, part of its interval does not. Smoke only: nothing but stand-ins was judged.
    """
    if context.invoked_subcommand is not None:
        return
    from leakgauge.papers.catalogue import tables
    from leakgauge.papers.recording import state_of

    known = tables()
    width = max(map(len, known))
    for name, one in known.items():
        echo(f"{name:<{width}}  {one.title}  {state_of(one)}")


@app.command("run")
def run_(
    name: Annotated[str, typer.Argument(help="As `leakgauge papers` lists them, or package.module:TABLE.")],
    scale: Annotated[str, typer.Option(help="smoke (seconds), small (minutes on two cores) or full.")] = "smoke",
    only: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Option(help="Run only this unit of work; units that are stored count as well."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 1,
    out: Annotated[Optional[Path], typer.Option(help="Run folder; default: papers-output/<paper>.")] = None,  # noqa: UP045
    record: Annotated[bool, typer.Option("--record", help="Store the result with the sources, for the page.")] = False,
    own_code: Allowed = False,
) -> None:
    """Reproduce one table: our number beside the paper's, with our interval and a verdict per cell.

    Run the same command again to resume; nothing is computed twice.
    """
    from leakgauge.audit.engines import InProcess, LocalPool
    from leakgauge.papers.catalogue import table_of
    from leakgauge.papers.recording import record as keep
    from leakgauge.papers.running import folder_of, run

    wanted = _scale(scale)
    if record:
        _refuse_to_record_own(name)
    announce(name, allowed=own_code)
    table = table_of(name)
    engine: Any = LocalPool(workers) if workers > 1 else InProcess()
    outcome = run(table, wanted, out, only=only or (), engine=engine, say=lambda text: echo(text, err=True))
    _tell(outcome, out or folder_of(table))
    if record:
        echo(keep(outcome), err=True)
    if outcome.faults:
        echo(f"{len(outcome.faults)} of {len(table.sizes[wanted].work)} units failed")
        raise typer.Exit(ExitCode.INCOMPLETE)


def _scale(text: str) -> Scale:
    from leakgauge.papers.contract import SCALES

    for scale in SCALES:
        if text == scale:
            return scale
    close = get_close_matches(text, SCALES, n=1) or SCALES
    raise DomainError(
        f"--scale must be one of {', '.join(SCALES)}, got {brief(text)!r}",
        where="papers run",
        remedy=f"say --scale {close[0]}",
    )


def _refuse_to_record_own(name: str) -> None:
    if PATH.fullmatch(name):
        raise LeakgaugeError(
            "--record writes into leakgauge's own sources, which have no place for your tables",
            where=name,
            remedy="leave --record out; the run folder (--out) has the result as JSON",
        )


def _tell(outcome: Outcome, folder: Path) -> None:
    from leakgauge.papers.judging import NOT_SETTLED, summary

    table = outcome.table
    echo(f"{table.name}, {outcome.scale}: {table.title}")
    echo(f"{table.paper.citation} {table.paper.url}".rstrip())
    reduced = table.sizes[outcome.scale].reduced
    rows = [
        ("cell", "paper", "ours", "verdict"),
        *((r.name, r.paper or "-", r.ours or "-", r.verdict) for r in outcome.rows),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        echo("  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3])))
    for one in outcome.rows:
        if one.why and one.why != "; ".join(reduced):
            echo(f"{one.verdict}: {one.name}: {one.why}")
    for one in outcome.rows:
        if not one.settled:
            echo(f"not settled: {one.name}: {NOT_SETTLED}")
    for what in reduced:
        echo(f"reduced: {what}")
    for unit, note in outcome.notes.items():
        echo(f"note: {unit}: {note}")
    _warn_of_unused(outcome)
    echo(f"{summary(outcome.rows, outcome.scale)}; {outcome.seconds:.1f} processor seconds; stored in {folder}")


def _warn_of_unused(outcome: Outcome) -> None:
    """Once every unit is done: samples that no cell shows or computes with."""
    from leakgauge.papers.judging import unused

    if len(outcome.units) < len(outcome.table.sizes[outcome.scale].work):
        return
    if names := unused(outcome.table, outcome.samples):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        echo(f"warning: no cell uses the samples {', '.join(map(repr, names[:3]))}{more}", err=True)
