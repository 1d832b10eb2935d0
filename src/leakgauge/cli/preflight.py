"""``leakgauge preflight``: what leaks by structure, before any attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.terminal import echo


def preflight(
    spec: Annotated[Path, typer.Argument(help="The spec of an audit; model, data and recipe are used.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    own_code: Allowed = False,
) -> None:
    """Report what the structure of your client reveals, in about a second and without an attack.

    \b
    Examples:
      leakgauge preflight spec.toml
      leakgauge preflight spec.toml --json

    Finds a first linear layer with a bias (exact with a batch of 1), which of the spec's records their batches expose
    to exact recovery, a batch smaller than the width of a linear layer, labels that the last layer reveals, shared
    batch-norm statistics, and more equations than unknowns. The absence of findings does not prove safety.

    Imports your code if the spec names it (package.module:name) and you give --own-code.
    """
    from leakgauge.preflight import preflight as run
    from leakgauge.study import sound

    draft = sound(spec, judged=False)
    announce(*draft.own_code, allowed=own_code)
    study = draft.study()
    leaks = run(study.task, study.records)
    if as_json:
        echo(json.dumps([leak.as_json() for leak in leaks]))
        return
    for leak in leaks:
        echo(f"{leak.severity:>6}  {leak.name}: {leak.sentence}")
    if not leaks:
        echo("nothing leaks by structure alone; an attack may still succeed")
