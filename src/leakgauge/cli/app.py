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
            echo(f"error: {where}{error.strerror or error}; what is finished is saved", err=True)
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
      leakgauge init                    write a commented starter spec
      leakgauge check leakgauge.toml    list its problems, or show the plan
      leakgauge audit leakgauge.toml    attack your own set-up; writes an HTML report
      leakgauge tune leakgauge.toml …   search for the settings of an attack
      leakgauge standings --quick       every attack and defense on fixed clients; add your own
      leakgauge train                   train a model with federated clients
      leakgauge train-prior --data fashion_mnist --out prior.safetensors
      leakgauge list                    every part: defenses, attacks, priors, models
      leakgauge list model              parts of one kind
      leakgauge data list               the data sets, and which are on this machine
      leakgauge data fetch mnist        fetch a full data set
      leakgauge data show my-set.npz    describe your own data set
      leakgauge papers                  the papers' tables, our numbers beside theirs
      leakgauge bound gaussian --sigma 0.5 --clip 1 --dim 13700
    """


app.command("init")(audit.init)
app.command("check")(audit.check)
app.command("audit")(audit.audit)
app.command("doctor")(doctor.doctor)
app.command("preflight")(preflight.preflight)
app.command("inspect")(inspect.inspect)
app.command("report")(report.report)
app.command("claims")(claims.claims)
app.command("compare")(compare.compare)
app.command("price")(price.price)
app.command("train")(train.train)
app.command("tune")(tune.tune)
app.command("standings")(standings.standings)
app.command("train-prior")(train_prior.train_prior)
app.command("verify")(signing.verify)
app.command("list")(listing.show)
app.add_typer(signing.app, name="key")
app.add_typer(data.app, name="data")
app.add_typer(papers.app, name="papers")
app.add_typer(bound.app, name="bound")
