"""Attack a handful of bundled images under several protections; write a table and a picture.

    make demo          or, with the package installed:          python examples/demo.py --out demo-output

Each client has one image of the test split and a network with fresh weights. An adversary sees what leaves the
client, and knows the network and the protection; not the image, not its label. Settings were tuned on the train split.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty
from typing import Any, Literal

import torch
from picture import Picture
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import leakgauge as lg

MODEL = "bayes_cnn"
RECORDS = 6
PROTECTIONS = (
    "identity()",
    "gaussian(std=0.01)",
    "gaussian(std=0.1)",
    "clip(norm=1.0) | gaussian(std=0.01)",
    "random_prune(p=0.5) | gaussian(std=0.001)",
    "prune(p=0.9)",
)
STEPS = 150
BATCH = 10  # steps between two signs of life
SHOWS = (
    "What this shows: how much of each image an adversary reads out of one update. The generic attack ignores the "
    "protection, the adaptive one models it; both get the same number of steps. Under plain noise the gain is mostly "
    "a prior of the right weight, under pruning it is the likelihood. The null is the adaptive adversary with noise in "
    "place of the update: a score near it is no reconstruction. The last row is a guess that needs no update at all."
)
HIDES = (
    "What it does not show: an attack says what leaks at least, never what can leak at most. A few images, fresh "
    "weights and one image per update are an easy case for the adversary, not your clients. Membership and property "
    "inference are not tested. Measured numbers with intervals: docs/evidence.md."
)

Role = Literal["generic", "adaptive", "null"]
ROLES: tuple[Role, ...] = ("generic", "adaptive", "null")


@dataclass(frozen=True)
class Cell:
    """One attack: a protection, and who attacks it."""

    protection: str
    role: Role


@dataclass(frozen=True)
class Row:
    """What the attacks on one protection reached: PSNR per image, and the reconstructions."""

    protection: str
    inputs: dict[Role, torch.Tensor]
    psnr: dict[Role, torch.Tensor]
    ssim: float
    labels: str


def private_records() -> lg.Records:
    """The images under attack: of different classes, from the test split, which tuning never saw."""
    return lg.data.load("fashion_mnist_sample").sample(RECORDS, seed=2, split="test")


def average_image() -> torch.Tensor:
    """The guess of somebody who saw no update: the mean of the train split."""
    return lg.data.load("fashion_mnist_sample").train.inputs.mean(0, keepdim=True)


def reconstruct(cell: Cell, steps: int, beat: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one attack; inputs ``[n, 1, 28, 28]`` and labels ``[n]``."""
    torch.set_num_threads(1)  # two processes share two cores
    records = private_records()
    task = lg.Task(lg.models.build(MODEL, records.domain), records.domain).protect(cell.protection)
    seen = lg.observe(task, records, threat=lg.Threat(labels="inferred"))
    if cell.role == "null":
        seen = [without_information(task, observation, seed) for seed, observation in enumerate(seen)]
    attack = lg.attacks.inverting_gradients(steps) if cell.role == "generic" else lg.attacks.adaptive(steps)

    def progress(done: int, total: int, best: float) -> None:
        if done and done % BATCH == 0:
            beat.put(BATCH)

    made = attack(task, seen, progress=progress)
    return made.inputs[:, 0], made.labels[:, 0]


def without_information(task: lg.Task, seen: lg.Observation, seed: int) -> lg.Observation:
    """The observation of a client whose update was noise of the same size, tensor by tensor, protected as usual."""
    generator = torch.Generator().manual_seed(seed)
    noise = {name: torch.randn(o.shape, generator=generator) for name, o in seen.rounds[0].observed.items()}
    update = {name: n * seen.rounds[0].observed[name].norm() / n.norm() for name, n in noise.items()}
    released = task.protection.update.release(update, None, generator=generator)
    return replace(seen, rounds=(replace(seen.rounds[0], observed=released.observed),))


def attacked(steps: int, console: Console) -> Iterator[Row]:
    """Every protection with its three attacks, in two processes, under a progress bar."""
    cells = [Cell(protection, role) for protection in PROTECTIONS for role in ROLES]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(2, mp_context=spawn) as pool:
        beat = manager.Queue()
        futures = {cell: pool.submit(reconstruct, cell, steps, beat) for cell in cells}
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("attacking", total=len(cells) * (steps // BATCH) * BATCH)
            while not all(future.done() for future in futures.values()):
                try:
                    progress.advance(bar, beat.get(timeout=0.2))
                except Empty:
                    finished = sum(future.done() for future in futures.values())
                    progress.update(bar, description=f"attack {min(finished + 1, len(cells))} of {len(cells)}")
        found = {cell: future.result() for cell, future in futures.items()}
    records = private_records()
    for protection in PROTECTIONS:
        inputs = {role: found[Cell(protection, role)][0] for role in ROLES}
        labels = found[Cell(protection, "adaptive")][1]
        yield Row(
            protection,
            inputs,
            {role: lg.metrics.psnr(guess, records.inputs) for role, guess in inputs.items()},
            float(lg.metrics.ssim(inputs["adaptive"], records.inputs).mean()),
            f"{int((labels == records.labels).sum())}/{len(records)}",
        )


def lines(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """The table: a head, and one line per protection."""
    head = ["protection", "generic", "adaptive", "SSIM", "null", "labels"]
    body = [
        [
            "no protection" if row.protection == "identity()" else row.protection,
            *(f"{row.psnr[role].mean():.1f} dB" for role in ("generic", "adaptive")),
            f"{row.ssim:.2f}",
            f"{row.psnr['null'].mean():.1f} dB",
            row.labels,
        ]
        for row in rows
    ]
    records = private_records()
    guess = average_image().expand_as(records.inputs)
    psnr, ssim = lg.metrics.psnr(guess, records.inputs).mean(), lg.metrics.ssim(guess, records.inputs).mean()
    body.append(["(average training image)", "", f"{psnr:.1f} dB", f"{ssim:.2f}", "", ""])
    return head, body


def show(head: list[str], body: list[list[str]], console: Console) -> None:
    title = f"Mean PSNR over {RECORDS} images; SSIM of the adaptive attack. High: it leaks."
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for place, (name, *rest) in enumerate(body):
        table.add_row(name.replace(" | ", "\n  | "), *rest, end_section=place == len(body) - 2)
    console.print(table)


def markdown(head: list[str], body: list[list[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (head, ["---"] * len(head), *body)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in escaped)
    return f"{text}\n\n{SHOWS}\n\n{HIDES}\n"


def write(path: Path, content: bytes) -> None:
    """For the owner's eyes only: these files show private images."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def picture(rows: list[Row]) -> bytes:
    records = private_records()
    sheet = Picture(records, len(rows) + 2)
    setting = f"{len(records)} clients, one Fashion-MNIST image each, {MODEL} with fresh weights."
    reading = "Below each image: PSNR in dB; red: SSIM of at least 0.5, a recognisable reconstruction."
    sheet.title(
        "What one update gives away", [f"{setting} {reading}", "Membership and property inference are not tested."]
    )
    sheet.heads(("generic attack: ignores the protection", "adaptive attack: models the protection"))
    sheet.row("original", (records.inputs, records.inputs), note="what the client keeps", scores=False)
    for row in rows:
        name = "no protection" if row.protection == "identity()" else row.protection.replace(" | ", "\n| ")
        sheet.row(name, (row.inputs["generic"], row.inputs["adaptive"]))
    sheet.rule()
    sheet.heads(("average training image: a guess without any update", "adaptive attack on noise instead of an update"))
    average = average_image().expand_as(records.inputs)
    sheet.row("controls", (average, rows[0].inputs["null"]), note="no information")
    return sheet.png()


def main() -> None:
    parser = argparse.ArgumentParser(description="Attack bundled images under several protections.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the picture and the table")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of every attack")
    options = parser.parse_args()
    console, start = Console(), time.monotonic()
    rows = list(attacked(options.steps, console))
    head, body = lines(rows)
    show(head, body, console)
    console.print(SHOWS, HIDES, sep="\n\n", highlight=False)
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "table.md", markdown(head, body).encode())
    write(options.out / "picture.png", picture(rows))
    console.print(f"\n{time.monotonic() - start:.0f} s. Files (mode 0600: they show the private images):")
    for name in ("picture.png", "table.md"):
        console.print(f"  {options.out / name}", soft_wrap=True)


if __name__ == "__main__":
    main()
