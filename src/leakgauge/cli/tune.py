"""``leakgauge tune``: search for the settings of an attack, on records that are never reported."""

from __future__ import annotations

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
    trials: Annotated[int, typer.Option(help="Settings to try per defense.")] = 40,
    sampler: Annotated[str, typer.Option(help="How settings are proposed: tpe, random or grid.")] = "tpe",
    points: Annotated[int, typer.Option(min=2, help="Values of each range in a grid.")] = 5,
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
    The model is attacked as given; checkpoints of the spec are not trained. Needs leakgauge[tune].
    """
    from leakgauge.tune import tune as search

    wanted = _wanted(attack, space or [], preset)  # what is malformed shows before anything is built
    study = _study(path, wanted, records, own_code)
    folder = out or path.with_name(f"{path.stem}-tune")
    how: Any = {"sampler": sampler, "trials": trials, "points": points, "updates": records}
    try:
        answers = search(study, wanted, folder, defenses=defense, report=None if quiet else _tell, **how)
    except KeyboardInterrupt:
        echo("interrupted; finished trials are saved, and the same command resumes", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show(answers)
    echo(f"wrote {folder / 'tune.json'}")


def _wanted(attack: str | None, ranges: list[str], preset: str | None) -> Space | Preset:
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
    if preset not in PRESETS:
        raise DomainError(f"there is no preset {preset!r}", where="--preset", remedy=nearest(preset, PRESETS))
    return PRESETS[preset]()


def _study(path: Path, wanted: Space | Preset, records: int, own_code: bool) -> Study:
    """The study of the spec, with the ends of the space in the place of its adversaries."""
    from leakgauge.study import Draft, SpecError, sound
    from leakgauge.study.sections import Tuning
    from leakgauge.tune import Preset

    space = wanted.first if isinstance(wanted, Preset) else wanted
    spec = sound(path, judged=False).spec
    ends = space.corners()
    spec = spec.model_copy(update={"adversaries": {"tune": ends}, "leave_out": [], "tuning": Tuning(records=records)})
    draft = Draft.of(spec, path, judged=False)
    if wrong := draft.problems():
        raise SpecError(wrong)
    announce(*draft.own_code, allowed=own_code)
    return draft.study()


def _tell(defense: str, done: int, total: int, trial: Trial) -> None:
    score = f"failed ({trial.fault})" if trial.score is None else f"{trial.score:.4g}"
    echo(f"{defense} {done}/{total}: {score}  {trial.attack}", err=True)


def _show(answers: dict[str, Tuned]) -> None:
    rows = [(name, f"{trial.score:.4g}", trial.attack) for name, one in answers.items() for trial in one.ranked[:BEST]]
    table(("defense", "score", "setting"), rows)
    for one in answers.values():
        failed = sum(trial.score is None for trial in one.trials)
        echo(one.sentence() + (f"; {failed} trials failed" if failed else ""))
        echo(f"  tuned = {_quoted(one.best.attack)}")


def _quoted(text: str) -> str:
    """As a text in TOML."""
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
