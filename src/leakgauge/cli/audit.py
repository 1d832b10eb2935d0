"""``leakgauge audit``, ``check`` and ``init``: from a spec to evidence."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakgauge.cli import signing
from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.terminal import echo, printable
from leakgauge.errors import ExitCode, LeakgaugeError

if TYPE_CHECKING:
    from leakgauge.audit.engines import Engine as Runner
    from leakgauge.audit.judge.model import Result


class Preset(StrEnum):
    """The compute budget of a starter spec."""

    quick = "quick"
    standard = "standard"
    thorough = "thorough"


class Engine(StrEnum):
    """What runs the cells of an audit."""

    local = "local"
    shared = "shared"
    ray = "ray"


class Gate(StrEnum):
    """The mildest verdict that fails a gate."""

    detectable = "detectable"
    recognisable = "recognisable"
    exact = "exact"


def init(
    path: Annotated[Path, typer.Argument(help="Where to write the spec.")] = Path("leakgauge.toml"),
    preset: Annotated[Preset, typer.Option(help="The compute budget of the audit.")] = Preset.standard,
) -> None:
    """Write a commented starter spec that runs as it is."""
    from leakgauge.study.starter import starter

    if path.exists():
        raise LeakgaugeError("already exists", where=str(path), remedy="give another name, or remove it")
    try:
        path.write_text(starter(path.name, preset.value), encoding="utf-8")
    except OSError as fault:
        remedy = "give a path in an existing folder that you can write to"
        raise LeakgaugeError(f"cannot be written ({fault.strerror})", where=str(path), remedy=remedy) from None
    echo(f"wrote {path}; next: leakgauge check {path}")


def check(
    path: Annotated[Path, typer.Argument(help="The spec, a TOML file.")],
    ablate: Annotated[bool, typer.Option("--ablate", help="Plan for `audit --ablate`.")] = False,
    timed: Annotated[
        bool, typer.Option("--time", help="Also import your own code, time it, and say how it is modelled.")
    ] = False,
) -> None:
    """List every problem of a spec; if there are none, show the plan with its work, time and memory.

    Imports none of your code, unless --time asks for it; built-in parts are timed on their first steps.
    """
    from leakgauge.audit.estimate import estimate
    from leakgauge.audit.plan import CHUNK
    from leakgauge.study import sound

    draft = sound(path)
    if timed:
        announce(*draft.own_code)
    spec, work = draft.spec, estimate(draft, ablate=ablate, own_code=timed)
    steps = list(dict.fromkeys(spec.checkpoints.train_steps))
    listed = f"step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}"
    at = "" if steps == [0] else f" x {_many(len(steps), 'checkpoint')} ({listed})"
    chunks = -(-spec.task.records // CHUNK)
    split = "" if chunks == 1 else f" x {chunks} chunks (of up to {CHUNK} updates)"
    echo(f"{path}: fine")
    least = "at least " if work.seconds is None else ""  # the cost of user parts is known only when they run
    echo(
        f"plan: {_many(len(spec.defenses), 'defense')} x {_many(len(spec.adversaries), 'adversary')} x 3 arms "
        f"(the update, another record's update, noise){at}{split}, {_many(spec.task.records, 'update')} of "
        f"{_many(spec.task.recipe.batch, 'record')}: {least}{work.cells} cells{work.shares()}"
    )
    if draft.own_code:
        echo(f"own code: {', '.join(draft.own_code)}; `audit` imports it only with --own-code")
    for sentence in (*(f"adversaries: {note}" for note in spec.notes()), *work.sentences()):
        echo(sentence)


def _many(count: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word if count == 1 else plural}"


def audit(
    path: Annotated[Path, typer.Argument(help="The spec, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run folder; default: the name of the spec with -run.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 1,
    engine: Annotated[
        Engine,
        typer.Option(
            help="local: this machine; shared: any number of processes that work in one --out; ray: a Ray cluster."
        ),
    ] = Engine.local,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster: host:port, or auto for one on this machine.")
    ] = None,
    fail_on: Annotated[
        Gate | None, typer.Option(help="Exit with 3 if a verdict is this bad or worse, or inconclusive.")
    ] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also attack without each grant, to see what it was worth.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Do not store originals, reconstructions or labels.")
    ] = False,
    own_code: Allowed = False,
    sign: signing.Key = None,
) -> None:
    """Attack your own set-up and report what leaks; run it again to resume.

    Code that the spec names (package.module:name) is imported only with --own-code.

    \b
    Examples:
      leakgauge audit leakgauge.toml --workers 2
      leakgauge audit leakgauge.toml --fail-on recognisable --quiet     in CI
      leakgauge audit leakgauge.toml --ablate                           measure what each grant is worth
      leakgauge audit leakgauge.toml --out run --engine shared          on every node of an array job
      leakgauge audit leakgauge.toml --engine ray --address head:6379   on a Ray cluster that is running

    \b
    Exit codes: 0 done, 1 a planned cell failed, 2 bad spec, 3 gate failed, 4 invalid set-up, 5 an attack beat a bound,
    130 interrupted.
    """
    from leakgauge.audit import audit as run
    from leakgauge.storage.signing import private_key
    from leakgauge.storage.signing import sign as signed
    from leakgauge.study import sound

    runner = _engine(engine, workers, address)
    key = private_key(sign) if sign else None  # a key that cannot be used shows now, not after the audit
    draft = sound(path)
    announce(*draft.own_code, allowed=own_code)
    folder = out or path.with_name(f"{path.stem}-run")
    try:
        study = draft.study()
        result = _with_progress(
            partial(run, study, folder, workers=workers, engine=runner, redact=redact, ablate=ablate, warn=_warn), quiet
        )
    except KeyboardInterrupt:
        joined = f"engine {engine.value}" + (f" --address {address}" if address else "")
        options = (("ablate", ablate), ("redact", redact), (joined, runner is not None))
        flags = "".join(f" --{flag}" for flag, wanted in options if wanted)
        echo(
            f"interrupted; finished cells are saved. Resume with: leakgauge audit {path} --out {folder}{flags}",
            err=True,
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _tell(result, folder, redact)
    if key is not None:
        echo(f"signed: {signed(folder, (*signing.SIGNED, *signing.BESIDE), key)}")
    gate: Any = fail_on.value if fail_on else None
    for line in result.failing(gate) if gate else ():
        echo(f"gate {gate} fails: {line}", err=True)
    raise typer.Exit(result.exit_code(gate))


def _engine(engine: Engine, workers: int, address: str | None) -> Runner | None:
    """The engine of an audit; None for this machine alone."""
    from leakgauge.audit import RayCluster, SharedFolder

    if engine is not Engine.local and workers > 1:
        remedy = {
            Engine.shared: "leave --workers out and start the command several times; each is one worker",
            Engine.ray: "leave --workers out; the cluster says how many it has",
        }[engine]
        raise LeakgaugeError(f"--workers {workers} with --engine {engine.value}", where="audit", remedy=remedy)
    if (engine is Engine.ray) != (address is not None):
        what = "--engine ray without --address" if address is None else f"--address with --engine {engine.value}"
        raise LeakgaugeError(what, where="audit", remedy="use --engine ray --address host:port (or auto)")
    if engine is Engine.ray and address is not None:
        return RayCluster(address)
    return SharedFolder() if engine is Engine.shared else None


def _warn(sentence: str) -> None:
    echo(f"warning: {sentence}", err=True)


def _with_progress(run: Any, quiet: bool) -> Result:
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
        TextColumn("{task.description}", markup=False),  # a name of a spec is no markup
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet,
    )
    with bar:
        task = bar.add_task("cells", total=None)

        best: dict[str, float] = {}

        def report(event: Any) -> None:
            about = event.cell.params["defense"]
            if event.cell.params.get("arm") == "real" and event.best is not None:
                best[about] = max(event.best, best.get(about, event.best))
            suffix = f", best {best[about]:.2f}" if about in best else ""
            bar.update(task, completed=event.done, total=event.total, description=f"{printable(about[:40])}{suffix}")
            if event.fault:
                bar.console.print(printable(f"a cell failed: {event.fault}"), markup=False)

        result: Result = run(report=report)
    return result


def _tell(result: Result, folder: Path, redact: bool) -> None:
    from leakgauge.report import report

    several = len(result.checkpoints) > 1
    for checkpoint, defense in result.each():
        at = f" (step {checkpoint.step})" if several else ""
        echo(f"{defense.name}{at}: {defense.verdict} — {defense.attack.why}")
    for line in result.contradictions():
        echo(f"contradiction: {line}")
    for note in result.notes:
        echo(f"adversaries: {note}")
    echo(result.scope)
    page, *others = report(folder, redact=redact)
    echo(f"wrote {', '.join(map(str, others))} and {folder / 'result.json'}")
    echo(f"the report: {page}")
