"""The program ``leakgauge``: options, commands and error handling."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from leakgauge.cli import (
    audit,
    bound,
    claims,
    compare,
    data,
    doctor,
    inspect,
    listing,
    papers,
    preflight,
    price,
    report,
    signing,
    standings,
    train,
    train_prior,
    tune,
)
from leakgauge.cli.terminal import echo
from leakgauge.errors import ExitCode, LeakgaugeError


class Program(TyperGroup):
    """The outermost command, which handles the errors of every command."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows another, and goes on
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except LeakgaugeError as error:
            for line in lines(error):
                echo(f"error: {line}", err=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:  # a full disk, a folder that vanished: finished cells are there
            where = f"{error.filename}: " if error.filename else ""
            echo(f"error: {where}{error.strerror or error}; finished work is saved", err=True)
            raise typer.Exit(ExitCode.BAD_INPUT) from None
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            if isinstance(message := getattr(error, "message", None), str):  # bad usage, in the words of the parser
                error.message = message.removeprefix("Value error, ")  # type: ignore[attr-defined]
            raise


def lines(error: LeakgaugeError) -> list[str]:
    """``where: what; remedy``, one line per problem; messages of user code may contain line breaks."""
    problems = getattr(error, "problems", None) or (error,)
    return ["".join(filter(str.isprintable, " ".join(str(problem).split()))) for problem in problems]


# plain help: the same in every version of typer; no pretty tracebacks: they would print local variables, hence records
app = typer.Typer(
    cls=Program,
    name="leakgauge",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(wanted: bool) -> None:
    if wanted:
        from leakgauge import __version__

        echo(f"leakgauge {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How much of your clients' private data can be read back out of the updates they send?

    \b
    Examples:
      leakgauge init                      write a commented starter spec
      leakgauge check leakgauge.toml      list its problems, or show the plan
      leakgauge preflight leakgauge.toml  what leaks by structure, without an attack
      leakgauge audit leakgauge.toml      attack your own set-up; writes an HTML report
      leakgauge compare run1 run2         what changed between two audits
      leakgauge inspect --before a.pt --after b.pt --model my.module:build --shape 1,28,28
      leakgauge claims my_flower_app/     do its privacy settings hold what they claim?
      leakgauge tune leakgauge.toml …     search for the settings of an attack
      leakgauge standings --quick         every attack and defense on fixed clients; add your own
      leakgauge train                     train a model with federated clients
      leakgauge list                      every part: defenses, attacks, priors, models
      leakgauge list model                parts of one kind
      leakgauge data list                 the data sets, and which are on this machine
      leakgauge data fetch mnist          fetch a full data set
      leakgauge papers                    the papers' tables, our numbers beside theirs
      leakgauge bound gaussian --sigma 0.5 --clip 1 --dim 13700
    """


# short helps: the list of commands would cut their first sentences off
app.command("init", short_help="Write a commented starter spec that runs as it is.")(audit.init)
app.command("check", short_help="List every problem of a spec, or show its plan.")(audit.check)
app.command("audit", short_help="Attack your own set-up and report what leaks.")(audit.audit)
app.command("doctor", short_help="Check that a spec replays one of your real updates.")(doctor.doctor)
app.command("preflight", short_help="Report what leaks by structure, without an attack.")(preflight.preflight)
app.command("inspect", short_help="Attack a captured update: what does it reveal?")(inspect.inspect)
app.command("report", short_help="Rebuild the reports of a run.")(report.report)
app.command("claims", short_help="Examine privacy settings: do their claims hold?")(claims.claims)
app.command("compare", short_help="Show what changed between two runs.")(compare.compare)
app.command("price", short_help="Show what one record costs an adversary.")(price.price)
app.command("train", short_help="Train a model with federated clients (FedAvg).")(train.train)
app.command("tune", short_help="Search for the best settings of an attack.")(tune.tune)
app.command("standings", short_help="Measure attacks and defenses on fixed clients.")(standings.standings)
app.command("train-prior", short_help="Train a prior on public records.")(train_prior.train_prior)
app.command("verify", short_help="Check that a result is what was signed.")(signing.verify)
app.command("list", short_help="List every part that an expression may name.")(listing.show)
app.add_typer(signing.app, name="key", short_help="Make keys for signed reports.")
app.add_typer(data.app, name="data", short_help="List, fetch and describe data sets.")
app.add_typer(papers.app, name="papers", short_help="List or reproduce the tables of papers.")
app.add_typer(bound.app, name="bound", short_help="Compute what no adversary can beat.")
