"""``leakgauge audit``, ``check`` and ``init``: from a spec to evidence."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.errors import LeakgaugeError

GATE_FAILED, INCOMPLETE, INVALID, CONTRADICTION = 3, 1, 4, 5


class Preset(StrEnum):
    """How much work a starter spec asks for."""

    quick = "quick"
    standard = "standard"
    thorough = "thorough"


class Gate(StrEnum):
    """The mildest verdict that fails a gate."""

    detectable = "detectable"
    recognisable = "recognisable"
    exact = "exact"


def init(
    path: Annotated[Path, typer.Argument(help="Where to write the spec.")] = Path("leakgauge.toml"),
    preset: Annotated[Preset, typer.Option(help="How much work it asks for.")] = Preset.standard,
) -> None:
    """Write a commented starter spec that runs as it is."""
    from leakgauge.audit.starter import starter

    if path.exists():
        raise LeakgaugeError("is there already", where=str(path), remedy="give another name, or remove it")
    path.write_text(starter(path.name, preset.value), encoding="utf-8")
    typer.echo(f"wrote {path}; next: leakgauge check {path}")


def check(path: Annotated[Path, typer.Argument(help="The spec, a TOML file.")]) -> None:
    """List every problem of a spec, or its plan. Imports none of your code."""
    from leakgauge.audit.spec import SpecError, load, problems

    spec = load(path)
    found = problems(spec, path)
    if found:
        raise SpecError(found)
    chunks = -(-spec.task.records // 10)
    arms = 3 * len(spec.adversaries) * (len({*spec.defenses.values(), "identity()"}))
    typer.echo(f"{path}: fine")
    typer.echo(
        f"plan: {len(spec.defenses)} defenses x {len(spec.adversaries)} adversaries x 3 arms (the update, noise, "
        f"another record's update), {spec.task.records} updates in {arms * chunks} cells"
    )


def audit(
    path: Annotated[Path, typer.Argument(help="The spec, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run folder; default: the spec's name with -run.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 1,
    fail_on: Annotated[Gate | None, typer.Option(help="Exit with 3 if a verdict is this bad, or unreliable.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Leave the original records out of the report.")] = False,
) -> None:
    """Attack your own set-up and say what leaks. Imports the code your spec names; the same command resumes.

    \b
    Exit codes: 0 done, 1 a planned cell failed, 2 bad spec, 3 gate failed, 4 invalid set-up, 5 an attack beat a bound,
    130 interrupted.
    """
    from leakgauge.audit import audit as run
    from leakgauge.audit.spec import SpecError, load, problems

    spec = load(path)
    found = problems(spec, path)
    if found:
        raise SpecError(found)
    folder = out or path.with_name(f"{path.stem}-run")
    try:
        made = _with_progress(partial(run, redact=redact), spec, path.parent, folder, workers, quiet)
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted; finished cells are kept. Resume with: leakgauge audit {path} --out {folder}", err=True
        )
        raise typer.Exit(130) from None
    _tell(made, folder, redact)
    raise typer.Exit(exit_code(made, fail_on.value if fail_on else None))


def _with_progress(run: Any, spec: Any, home: Path, folder: Path, workers: int, quiet: bool) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet,
    )
    with bar:
        task = bar.add_task("cells", total=None)

        def report(done: int, total: int, cell: Any, fault: str | None) -> None:
            bar.update(task, completed=done, total=total, description=f"{cell.params['defense']}"[:40])
            if fault:
                bar.console.print(f"a cell failed: {fault}", markup=False)

        made: dict[str, Any] = run(spec, home, folder, workers=workers, report=report)
    return made


def _tell(made: dict[str, Any], folder: Path, redact: bool) -> None:
    for checkpoint in made["checkpoints"]:
        for defense in checkpoint["defenses"]:
            typer.echo(f"{defense['name']}: {defense['attack']['verdict']} — {defense['attack']['why']}")
    typer.echo(made["scope"])
    from leakgauge.report import report

    for written in report(folder, redact=redact):
        typer.echo(f"wrote {written}")


def exit_code(made: dict[str, Any], fail_on: str | None) -> int:
    """The exit code of a result under a gate."""
    from leakgauge.audit.verdict import failing

    words = [d["attack"]["verdict"] for c in made["checkpoints"] for d in c["defenses"]]
    if "invalid" in words:
        return INVALID
    if "incomplete" in words:
        return INCOMPLETE
    return GATE_FAILED if fail_on and failing(made, fail_on) else 0
