"""``leakgauge papers``: the tables and figures of the papers, our number beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import ExitCode

if TYPE_CHECKING:
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
    from leakgauge.guards import choice
    from leakgauge.papers.catalogue import table_of
    from leakgauge.papers.contract import SCALES
    from leakgauge.papers.recording import record as keep
    from leakgauge.papers.running import run

    choice(scale, "scale", "papers run", SCALES)
    announce(name, allowed=own_code)
    table, wanted = table_of(name), scale
    engine: Any = LocalPool(workers) if workers > 1 else InProcess()
    outcome = run(
        table,
        wanted,  # type: ignore[arg-type]
        out,
        only=only or (),
        engine=engine,
        say=lambda text: echo(text, err=True),
    )
    _tell(outcome)
    if record:
        keep(outcome)
    if outcome.faults:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _tell(outcome: Outcome) -> None:
    from leakgauge.papers.judging import summary

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
            echo(f"the interval of {one.name} reaches further than {one.paper}")
    for what in reduced:
        echo(f"reduced: {what}")
    for unit, note in outcome.notes.items():
        echo(f"note: {unit}: {note}")
    echo(f"{summary(outcome.rows)}; {outcome.seconds:.1f} processor seconds")
