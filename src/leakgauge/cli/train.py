"""``leakgauge train``: federated training of a model, with the defense its clients would use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from leakgauge.cli.own_code import announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import LeakgaugeError

if TYPE_CHECKING:
    from leakgauge.fl import History
    from leakgauge.task import Task


def train(
    model: Annotated[str, typer.Option(help="A network; see `leakgauge list model`.")] = "logistic",
    data: Annotated[str, typer.Option(help="A data set (see `leakgauge data list`), or a file.")] = "mnist",
    clients: Annotated[
        str, typer.Option(help="How records are distributed: iid, shards, mcmahan or dirichlet, with arguments.")
    ] = "iid(clients=10)",
    defense: Annotated[str, typer.Option(help="What every client does to protect itself.")] = "identity()",
    rounds: Annotated[int, typer.Option(help="Rounds of communication.")] = 10,
    per_round: Annotated[Optional[int], typer.Option(help="Clients drawn in each round; default: all.")] = None,  # noqa: UP045
    steps: Annotated[Optional[int], typer.Option(help="Local steps of a client per round.")] = None,  # noqa: UP045
    epochs: Annotated[Optional[int], typer.Option(help="Or passes over its records; default: 1.")] = None,  # noqa: UP045
    minibatch: Annotated[int, typer.Option(help="Records per local step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of the local steps.")] = 0.01,
    cosine: Annotated[bool, typer.Option("--cosine", help="Decay the rate by a cosine over the rounds.")] = False,
    momentum: Annotated[float, typer.Option(help="Momentum of the local steps.")] = 0.0,
    optimiser: Annotated[str, typer.Option(help="Optimiser of the clients: sgd or adam.")] = "sgd",
    scheme: Annotated[str, typer.Option(help="Aggregation: I (plain mean, scaled rates) or II (by records).")] = "I",
    secure: Annotated[bool, typer.Option("--secure", help="Let the server see only sums of updates.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = 0,
    engine: Annotated[
        str, typer.Option(help="Where clients run: in-process, or flower (its simulation; needs flwr[simulation]).")
    ] = "in-process",
    cpus: Annotated[int, typer.Option(min=1, help="With --engine flower: clients that run at a time.")] = 1,
    out: Annotated[Optional[Path], typer.Option(help="Write the trained weights here (.safetensors).")] = None,  # noqa: UP045
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Train a model by FedAvg, and show its accuracy round by round.

    \b
    Examples:
      leakgauge train --data fashion_mnist_sample --clients 'iid(clients=5)' --rounds 3
      leakgauge train --clients 'shards(clients=100)' --per-round 10 --steps 50 --cosine --defense 'ada_lrp()'
      leakgauge train --clients 'dirichlet(clients=20, alpha=0.3)' --secure --out trained.safetensors
      leakgauge train --clients 'shards(clients=100)' --per-round 10 --engine flower --cpus 8

    Clients under lrp() and ada_lrp() learn the sums of their counts by a secure sum, which needs leakgauge[fl].
    Imports your code if the model names it (package.module:name).
    """
    from leakgauge import data as datasets
    from leakgauge import expr, models
    from leakgauge.client import Recipe
    from leakgauge.fl import Federation, FederationError, Partition
    from leakgauge.task import Task

    announce(model, data, defense)
    training = _training(engine, cpus)
    if steps is None and epochs is None:
        epochs = 1
    arguments: Any = {"decay": "cosine" if cosine else "constant", "scheme": scheme, "secure": secure}
    how = Federation(rounds, per_round, steps, epochs, minibatch, learning_rate, **arguments)
    partition = expr.parse(clients, "partition", where="--clients")
    if not isinstance(partition, Partition):
        raise LeakgaugeError(
            f"{clients!r} is not a partition", where="--clients", remedy="use one such as 'iid(clients=10)'"
        )
    if out is not None:
        _check_target(out)
    source = datasets.load(data)
    optimiser_name: Any = optimiser
    recipe = Recipe(shares="change", momentum=momentum, optimiser=optimiser_name)
    task = Task(models.build(model, source.domain, seed=seed), source.domain, recipe).protect(defense)
    shared = partition(source.train, seed=seed)
    try:
        history = _with_progress(
            lambda tick: training(task, shared, how, test=source.test, seed=seed, progress=tick), rounds, quiet
        )
    except FederationError as fault:  # the rounds before it are kept
        _finish(fault.history, task, out)
        raise
    _finish(history, task, out)


def _training(engine: str, cpus: int) -> Callable[..., History]:
    """What trains: rounds in this process, or on Flower's simulation."""
    from leakgauge import guards
    from leakgauge.fl import federate

    guards.choice(engine, "--engine", "train", ("in-process", "flower"))
    if engine == "in-process":
        return federate
    from leakgauge.fl.on_flower import simulate

    return partial(simulate, cpus=cpus)


def _finish(history: History, task: Task, out: Path | None) -> None:
    _tell(history)
    if out is not None:
        _write(out, history, task)


def _check_target(out: Path) -> None:
    if out.suffix != ".safetensors" or not out.parent.is_dir():
        raise LeakgaugeError(
            "the weights cannot be written there", where=str(out), remedy="give a .safetensors file in a folder"
        )


def _with_progress(run: Any, rounds: int, quiet: bool) -> History:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), disable=quiet
    ) as bar:
        task = bar.add_task("rounds", total=rounds)

        def tick(done: int, total: int, error: float) -> None:
            bar.update(task, completed=done, total=total, description=f"accuracy {1 - error:.2%}")

        history: History = run(tick)
    return history


def _tell(history: History) -> None:
    for one in history.rounds:
        lost = "".join(f"; client {lost.client} lost: {lost.why}" for lost in one.lost)
        echo(f"round {one.number}: accuracy {one.accuracy:.4f}{lost}")


def _write(out: Path, history: History, task: Task) -> None:
    from safetensors.torch import save

    from leakgauge.storage import private
    from leakgauge.storage.states import metadata_of

    facts = metadata_of("state", rounds=len(history.rounds) - 1, defense=repr(task.protection))
    private.write(out, save({name: value.contiguous() for name, value in history.state.items()}, facts))
    echo(f"wrote {out}")
