"""``leakgauge inspect``: attack captured updates."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from leakgauge.cli.own_code import announce
from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo
from leakgauge.errors import DataError, DomainError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from leakgauge.inspect import Finding
    from leakgauge.inspect.captures import Capture
    from leakgauge.storage.states import State
    from leakgauge.types import Domain, Records

# Optional: typer reads the union | only from 0.12.4 on
File = Optional[Path]  # noqa: UP045
Text = Optional[str]  # noqa: UP045


def inspect(
    model: Annotated[str, typer.Option(help="The model: a name (bayes_cnn) or package.module:build.")],
    before: Annotated[File, typer.Option(help="The weights that the client started from.")] = None,
    after: Annotated[File, typer.Option(help="The weights that it sent back.")] = None,
    gradient: Annotated[File, typer.Option(help="Or the gradient or change that it sent (see kind above).")] = None,
    folder: Annotated[File, typer.Option(help="Or a folder of rounds and clients.")] = None,
    shape: Annotated[Text, typer.Option(help="The shape of a record: 1,28,28; default: that of --known.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Examples per update, known or assumed.")] = 1,
    labels: Annotated[Text, typer.Option(help="Labels of the batch: 3,7; default: inferred from the update.")] = None,
    known: Annotated[File, typer.Option(help="Records that may be in the update (.npz); enables scores.")] = None,
    mean: Annotated[Text, typer.Option(help="Mean with which your client normalises, per channel: 0.286.")] = None,
    std: Annotated[Text, typer.Option(help="Standard deviation with which your client normalises: 0.353.")] = None,
    mode: Annotated[str, typer.Option(help="Mode of the model at the client: train or eval.")] = "eval",
    loss: Annotated[str, typer.Option(help="Loss of the client: a name or package.module:loss.")] = "cross_entropy",
    defense: Annotated[Text, typer.Option(help='What the client does to its update: "gaussian(std=0.01)".')] = None,
    same_records: Annotated[
        bool, typer.Option("--same-records", help="Assume that a client's rounds hold the same records; attack all.")
    ] = False,
    draws: Annotated[int, typer.Option(min=3, help="Number of noise draws to compare with.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of starts and noise.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for pictures and numbers (private files).")] = Path("inspection"),
) -> None:
    """Attack a captured update: what can be read out of these files?

    \b
    Examples:
      leakgauge inspect --before a.safetensors --after b.safetensors --model my.module:build --shape 1,28,28
      leakgauge inspect --before a.pt --gradient g.safetensors --model bayes_cnn --known mine.npz
      leakgauge inspect --folder rounds/ --model my.module:build --shape 3,32,32 --batch 4
      leakgauge inspect --before a.pt --gradient g.pt --model bayes_cnn --shape 1,28,28 --defense "gaussian(std=0.01)"

    The learning rate need not be known: only the direction of the update is used, and both signs are tried unless the
    file states its own. Labels are inferred from the last layer. With --known records the reconstructions are scored;
    without, the command shows how much of the update they explain, beside the same attack on noise. A --defense is
    modelled by the adversary. The metadata of a file may give kind = gradient | change | state, sign, round and client;
    in a folder, names such as r12.safetensors and r12-client3.safetensors do the same, and rounds of one client are
    searched for noise that repeats. With --same-records they are also attacked together: noise that hides a record in
    one round may not hide it after ten.

    Imports your code if --model or --loss names it (package.module:name). Pictures and numbers are written with mode
    0600.
    """
    from leakgauge import models
    from leakgauge.defenses import protection
    from leakgauge.inspect import inspect as run
    from leakgauge.losses import loss_named
    from leakgauge.storage.states import read_state

    if mode not in ("train", "eval"):
        raise DomainError(f"unknown mode {mode!r}", where="--mode", remedy="use train or eval")
    start = read_state(before) if before is not None else None
    records, domain = _domain(shape, known, start or _any(folder))
    announce(model, loss, defense or "")
    built = models.build(model, domain)
    captures = _captures(built, start, after, gradient, folder)
    if mean is not None or std is not None:
        built = models.normalised(built, _numbers(mean, "--mean"), _numbers(std, "--std"))
    own_labels = _labels(labels, batch)
    findings = run(
        built,
        domain,
        captures,
        batch=batch,
        labels=own_labels,
        known=records,
        mode=mode,
        loss=loss_named(loss),
        defense=protection(defense) if defense is not None else None,
        draws=draws,
        seed=seed,
        same_records=same_records,
    )
    _show(findings)
    _write(findings, out, records)


def _any(folder: Path | None) -> State | None:
    """Weights of the model: what a round began with, if such a file can be read, for a client's may be of another."""
    from leakgauge.inspect.captures import is_start
    from leakgauge.storage.states import ENDINGS, FileError, read_state

    paths = sorted(p for p in folder.rglob("*") if p.suffix in ENDINGS and p.is_file()) if folder else []
    first: State | None = None
    for path in paths:
        with suppress(FileError):  # a torn file is told of later, beside those that can be read
            state = read_state(path)
            if is_start(state):
                return state
            first = first or state
    return first or (read_state(paths[-1]) if paths else None)


def _domain(shape: str | None, known: Path | None, weights: State | None) -> tuple[Records | None, Domain]:
    """The domain from the known records or the shape; classes are the rows of the last linear layer."""
    from leakgauge.data import read_npz
    from leakgauge.types import Domain

    if weights is None:
        raise DataError("there is nothing to inspect", where="inspect", remedy="give --before, or --folder with files")
    rows = [value.shape[0] for value in weights.tensors.values() if value.dim() == 2]
    if not rows:
        raise DataError("has no linear layer", where=str(weights.path), remedy="give the weights of a classifier")
    if known is not None:
        npz = read_npz(known)
        sizes = tuple(npz.train.inputs.shape[1:])
        domain = Domain("image" if len(sizes) == 3 else "table", sizes, rows[-1], npz.features)
        return npz.train.records(domain), domain
    if shape is None:
        raise DataError("the shape of a record is missing", where="inspect", remedy="give --shape 1,28,28 or --known")
    sizes = tuple(int(n) if n.is_integer() else 0 for n in _numbers(shape, "--shape"))
    if not sizes or min(sizes) < 1 or max(sizes) > 1 << 16:
        raise DomainError(f"{shape!r} is not a shape", where="--shape", remedy="write 1,28,28")
    return None, Domain("image" if len(sizes) == 3 else "table", sizes, rows[-1])


def _numbers(text: str | None, where: str) -> list[float]:
    try:
        return [float(part) for part in (text or "").split(",")]
    except ValueError:
        raise DomainError(f"{text!r} is not a list of numbers", where=where, remedy="write 0.1,0.2,0.3") from None


def _labels(text: str | None, batch: int) -> Tensor | None:
    import torch

    if text is None:
        return None
    numbers = [int(n) for n in _numbers(text, "--labels")]
    if len(numbers) != batch:
        raise DomainError(
            f"{len(numbers)} labels for a batch of {batch}", where="--labels", remedy="give one per example"
        )
    return torch.tensor(numbers)


def _captures(
    model: nn.Module, before: State | None, after: Path | None, gradient: Path | None, folder: Path | None
) -> list[Capture]:
    from leakgauge.inspect.captures import CaptureWarning, captured, folder_of
    from leakgauge.storage.states import read_state

    if sum(source is not None for source in (after, gradient, folder)) != 1:
        raise DataError(
            "the update must be given exactly once", where="inspect", remedy="give --after, --gradient or --folder"
        )
    if folder is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CaptureWarning)
            captures = folder_of(folder, model, before)
        for one in caught:
            echo(str(one.message), err=True)
        return captures
    if before is None:
        raise DataError("the weights before the update are missing", where="inspect", remedy="give --before")
    if after is not None:
        return [captured(before, read_state(after), model)]
    assert gradient is not None
    sent = read_state(gradient)
    return [captured(before, sent, model, kind=sent.kind or "gradient")]


def _show(findings: list[Finding]) -> None:
    heads = ("update", "labels", "explained", "of noise")
    rows = [
        (
            _short(f.name),
            ", ".join(map(str, f.labels.tolist())),
            f"{f.explained:.1%}",
            f"{f.null_explained:.1%}",
        )
        for f in findings
    ]
    if findings[0].scores:  # records are known
        scores = [tuple(f.metric.text(max(values)) for values in (f.scores, f.null_scores)) for f in findings]
        best = f"best {findings[0].metric.label}"
        table((*heads, best, "of noise"), [(*row, *both) for row, both in zip(rows, scores, strict=True)])
    else:
        table(heads, rows)
    for f in findings:
        echo(f"{f.name}: {f.sentence}")
        for note in f.notes:
            echo(f"  note: {note}")


def _short(name: str, most: int = 32) -> str:
    """The end of a long name, which tells files of one folder apart: the numbers beside it need the room."""
    stem = name.removesuffix(".safetensors")
    return stem if len(stem) <= most else f"…{stem[1 - most :]}"


def _write(findings: list[Finding], out: Path, known: Records | None) -> None:
    import torch
    from safetensors.torch import save

    from leakgauge.inspect import picture
    from leakgauge.storage.private import write

    images = torch.stack([f.inputs for f in findings]).contiguous()
    write(out / "reconstructions.safetensors", save({"inputs": images}))
    write(out / "inspect.json", json.dumps([f.as_json() for f in findings], indent=1).encode())
    if findings[0].inputs.dim() == 4 and findings[0].inputs.shape[1] in (1, 3):
        picture(findings, out / "inspect.png", known)
        other = " | opposite sign" if any(f.other is not None for f in findings) else ""
        echo(f"reconstruction{other} | noise{' | known' if known else ''}: {out / 'inspect.png'}")
    else:
        echo(f"reconstructions: {out / 'reconstructions.safetensors'}")
