"""``leakgauge claims``: do the privacy settings of an app hold what they claim?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from leakgauge.cli.own_code import announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import DataError, ExitCode
from leakgauge.expr import PATH

if TYPE_CHECKING:
    from leakgauge.claims import Asked, Claims

# Optional: typer reads the union | only from 0.12.4 on
Number = Optional[float]  # noqa: UP045
Count = Optional[int]  # noqa: UP045
Folder = Optional[Path]  # noqa: UP045


def claims(
    subject: Annotated[
        str, typer.Argument(help="An app's or job's folder, one of its files, a setting, or package.module:object.")
    ],
    epsilon: Annotated[Number, typer.Option(min=0.0, help="The ε that you claim for the whole run.")] = None,
    delta: Annotated[Number, typer.Option(help="The δ of that claim; default: the setting's, or 1e-5.")] = None,
    rounds: Annotated[Count, typer.Option(min=1, help="Rounds of the run; default: what the app says.")] = None,
    parameters: Annotated[Count, typer.Option(min=1, help="Parameters of the model (for SVTPrivacy).")] = None,
    capture: Annotated[Folder, typer.Option(help="Captured updates: was the claimed noise really added?")] = None,
    own_code: Annotated[
        bool, typer.Option("--own-code", help="Import the object that you name; trust its code first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> None:
    """Examine privacy settings: do their claims hold, and what are they really worth?

    \b
    Examples:
      leakgauge claims my_flower_app/
      leakgauge claims 'LocalDpMod(clipping_norm=1.0, sensitivity=1e-4, epsilon=10.0, delta=1e-5)'
      leakgauge claims 'SVTPrivacy(fraction=0.1, epsilon=0.1)' --parameters 7000000
      leakgauge claims my_nvflare_job/ --epsilon 2 --delta 1e-5
      leakgauge claims my_flower_app/ --capture captures/

    A folder is read, not run: Python by its syntax tree, jobs by their JSON. Known faults of flwr, nvflare and opacus
    are tested on the installed package by small experiments, so a release that fixes one passes; if the package is not
    installed, the finding says so. `leakgauge list setting` shows the known settings. With package.module:object and
    --own-code the object itself is examined.

    Exits with 3 if a claim does not hold.
    """
    from leakgauge.claims import Asked

    result = _examined(subject, Asked(epsilon, delta, rounds, parameters, capture), own_code)
    if as_json:
        echo(json.dumps(result.as_json()))
    else:
        _show(result)
    if not result.hold:
        raise typer.Exit(ExitCode.GATE_FAILED)


def _examined(subject: str, asked: Asked, own_code: bool) -> Claims:
    from leakgauge.claims import examine_expression, examine_folder, examine_object
    from leakgauge.expr import load

    if not subject.strip():  # an empty path is the folder one stands in, and an unset variable in CI
        raise DataError(
            "there is nothing to examine", where="claims", remedy="give an app's folder, a job or a setting"
        )
    if "(" not in subject and (Path(subject).exists() or "/" in subject or subject.endswith((".py", ".json"))):
        return examine_folder(Path(subject), asked)
    if PATH.fullmatch(subject.strip()):
        announce(subject, allowed=own_code)
        return examine_object(load(subject.strip(), where="claims"), asked, name=subject)
    return examine_expression(subject, asked)


def _show(result: Claims) -> None:
    for one in result.settings:
        echo(f"{one.setting}{f'  ({one.where})' if one.where else ''}")
        for finding in one.findings:
            level = finding.level if finding.level == "holds" else finding.level.upper()
            echo(
                f"  {level:10}  {finding.rule}: {finding if finding.where != one.where else replace(finding, where='')}"
            )
    for note in result.notes:
        echo(f"note: {note}")
    broken = len(result.of("broken"))
    if broken:
        echo(f"does not hold: {broken} finding{'s' if broken > 1 else ''}")
    elif result.settings and result.unexamined:
        echo(f"no claim is refuted, but {result.unexamined} of the points above could not be examined")
    elif result.settings:
        echo("the claims hold, as far as they can be examined")
