"""``leakgauge tune``: search for the settings of an attack, on records that are never reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.tables import table
from leakgauge.cli.terminal import echo
from leakgauge.errors import DomainError, ExitCode, nearest

if TYPE_CHECKING:
    from leakgauge.study import Study
    from leakgauge.tune import Preset, Space, Trial, Tuned

BEST = 5
"""Settings that are printed per defense."""


def tune(
    path: Annotated[Path, typer.Argument(help="The spec, a TOML file.")],
    attack: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the union | only from 0.12.4 on
        typer.Option(help='The attack, with or without ranges inside: "adaptive(steps=300)".'),
    ] = None,
    space: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help='A range for an argument of the attack: "tv_weight = log(1e-5, 1e-1)"; may be repeated.'),
    ] = None,
    preset: Annotated[Optional[str], typer.Option(help="The search of a paper instead of both: bayes.")] = None,  # noqa: UP045
    trials: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Settings to try per defense.", show_default="40"),
    ] = None,
    sampler: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="How settings are proposed: tpe, random or grid.", show_default="tpe"),
    ] = None,
    points: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=2, help="Values of each range in a grid.", show_default="5"),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="Updates that every setting attacks.")] = 8,
    defense: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="A defense of the spec, by name; may be repeated. Default: all."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The folder of the trials; default: the name of the spec with -tune."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line per trial.")] = False,
    own_code: Allowed = False,
) -> None:
    """Search for the best settings of an attack against each defense of a spec; run it again to resume.

    \b
    Examples:
      leakgauge tune leakgauge.toml --attack "adaptive(steps=300)" --space "tv_weight = log(1e-5, 1e-1)"
      leakgauge tune leakgauge.toml --attack "adversary(prior=log(1e-5, 1)*tv(), solver=adam(lr=log(0.01, 1)))"
      leakgauge tune leakgauge.toml --preset bayes --defense noisy

    Ranges: log(low, high), linear(low, high), whole(low, high), choice(a, b, …). Every setting attacks the same updates
    of reference records; those that an audit reports are never used. Put the line that it prints into [adversaries].
    A preset brings its own attack, ranges, sampler and number of settings.
    The model is attacked as given; checkpoints of the spec are not trained. Needs leakgauge[tune].
    """
    from leakgauge.tune import tune as search

    given = {"sampler": sampler, "trials": trials, "points": points}
    how: Any = {name: value for name, value in given.items() if value is not None}
    wanted = _wanted(attack, space or [], preset, list(how))  # what is malformed shows before anything is built
    study = _study(path, wanted, records, own_code)
    folder = out or path.with_name(f"{path.stem}-tune")
    tell = None if quiet else _tell
    try:
        answers = search(study, wanted, folder, defenses=defense, updates=records, report=tell, **how)
    except KeyboardInterrupt:
        echo("interrupted; finished trials are saved, and the same command resumes", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show(answers)
    echo(f"wrote {folder / 'tune.json'}")


def _wanted(attack: str | None, ranges: list[str], preset: str | None, how: list[str]) -> Space | Preset:
    from leakgauge.tune import Space
    from leakgauge.tune.presets import PRESETS

    if preset is None:
        if attack is None:
            raise DomainError(
                "there is nothing to tune",
                where="tune",
                remedy='give --attack "adaptive(steps=300)", or --preset bayes',
            )
        return Space.of(attack, ranges)
    if attack is not None or ranges:
        raise DomainError("a preset brings its own attack", where="--preset", remedy="leave --attack and --space out")
    if how:
        options = " and ".join(f"--{name}" for name in how)
        raise DomainError("a preset brings its own search", where="--preset", remedy=f"leave {options} out")
    if preset not in PRESETS:
        raise DomainError(f"there is no preset {preset!r}", where="--preset", remedy=nearest(preset, PRESETS))
    return PRESETS[preset]()


def _study(path: Path, wanted: Space | Preset, records: int, own_code: bool) -> Study:
    """The study of the spec, with the ends of the space in the place of its adversaries."""
    from leakgauge.expr import read
    from leakgauge.study import Draft, SpecError, sound
    from leakgauge.study.sections import Problem, Tuning
    from leakgauge.tune import Preset
    from leakgauge.tune.trials import faults_of

    space = wanted.first if isinstance(wanted, Preset) else wanted
    own = [path for text in space.corners() for path in read(text, "attack", own_code=False).own]
    announce(*own, allowed=own_code)
    wrong = [Problem("tune", "space", fault.what, fault.remedy or "") for fault in faults_of(space)]
    spec = sound(path, judged=False).spec
    ends = {"adversaries": {"tune": space.corners()}, "leave_out": [], "tuning": Tuning(records=records)}
    draft = Draft.of(spec.model_copy(update=ends), path, judged=False)
    told = [(problem, problem.key.startswith("adversaries")) for problem in draft.problems()]
    wrong += [problem for problem, of_space in told if not of_space]
    if not wrong:  # what the ends are, but not on this task; several may have the same problem
        wrong += dict.fromkeys(replace(problem, file="tune", key="space") for problem, of_space in told if of_space)
    if wrong:
        raise SpecError(wrong)
    announce(*(path for path in draft.own_code if path not in own), allowed=own_code)
    return draft.study()


def _tell(defense: str, done: int, total: int, trial: Trial) -> None:
    score = f"failed ({trial.fault})" if trial.score is None else f"{trial.score:.4g}"
    echo(f"{defense} {done}/{total}: {score}  {trial.attack}", err=True)


def _show(answers: dict[str, Tuned]) -> None:
    rows = [(name, f"{trial.score:.4g}", trial.attack) for name, one in answers.items() for trial in one.ranked[:BEST]]
    table(("defense", "score", "setting"), rows)
    for one in answers.values():
        failed = sum(trial.score is None for trial in one.trials)
        echo(one.sentence() + (f"; {failed} trial{'s' * (failed != 1)} failed" if failed else ""))
        echo(f"  tuned = {_quoted(one.recommended.attack)}")


def _quoted(text: str) -> str:
    """As a text in TOML."""
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
