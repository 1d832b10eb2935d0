"""``leakgauge train-prior``: a prior learned from public records, for attacks that search its codes or weigh by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from leakgauge.cli.own_code import announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import LeakgaugeError

FAMILIES = ("vae", "patches")


def train_prior(
    data: Annotated[str, typer.Option(help="Public records: a data set, or a file; its train split is used.")],
    out: Annotated[Path, typer.Option(help="Write the prior here (.safetensors).")],
    family: Annotated[str, typer.Option(help="vae (a generator) or patches (a density).")] = "vae",
    records: Annotated[Optional[int], typer.Option(min=1, help="Use only this many records; default: all.")] = None,  # noqa: UP045
    codes: Annotated[int, typer.Option(help="vae: numbers that it turns into a record.")] = 32,
    classes: Annotated[bool, typer.Option(help="vae: also train on labels, which attacks know or infer.")] = True,
    epochs: Annotated[int, typer.Option(help="vae: passes over the records.")] = 20,
    size: Annotated[int, typer.Option(help="patches: side of a patch in pixels.")] = 6,
    components: Annotated[int, typer.Option(help="patches: components of the mixture.")] = 16,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Train a prior on public records, in minutes on two cores, and write it as safetensors.

    \b
    Examples:
      leakgauge train-prior --data fashion_mnist --out clothes.safetensors
      leakgauge train-prior --data mnist --family patches --out strokes.safetensors
      then, in a spec:  latent = "bayes(prior=learned(file='clothes.safetensors'))"

    The file holds fingerprints of the records, so that nobody reports on what the prior was trained on.
    Imports your code if the data names it (package.module:records).
    """
    from leakgauge import data as datasets
    from leakgauge.storage import private
    from leakgauge.training.prior import train_patches, train_vae

    announce(data)
    if family not in FAMILIES:
        raise LeakgaugeError(f"unknown family {family!r}", where="--family", remedy=f"use {' or '.join(FAMILIES)}")
    # before minutes of training
    if out.suffix != ".safetensors" or out.is_dir() or not os.access(out.parent, os.W_OK):
        raise LeakgaugeError("cannot be written there", where=str(out), remedy="give a .safetensors file in a folder")
    source = datasets.load(data)
    public: Any = source.train if records is None else source.sample(records, seed=seed, split="train")
    with _bar(quiet) as tick:
        if family == "vae":
            trained = train_vae(public, codes=codes, classes=classes, epochs=epochs, seed=seed, progress=tick)
            told = (
                f"draws records that were held back at {trained.score:.1f} dB: hardly any search of codes does better"
            )
        else:
            trained = train_patches(public, size=size, components=components, seed=seed, progress=tick)
            told = f"log density of patches that were held back: {trained.score:.1f}"
    private.write(out, trained.content)
    echo(told)
    echo(f"wrote {out}: prior={'learned' if family == 'vae' else 'patches'}(file='{out}')")


def _bar(quiet: bool) -> Any:
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), disable=quiet) as drawn:
            line = drawn.add_task("training")

            def tick(done: int, total: int, loss: float) -> None:
                drawn.update(line, completed=done, total=total, description=f"loss {loss:.1f}")

            yield tick

    return bar()
