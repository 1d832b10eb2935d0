"""``leakgauge doctor``: does the simulated client reproduce yours?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.own_code import Allowed, announce
from leakgauge.cli.terminal import echo
from leakgauge.errors import ExitCode


def doctor(
    spec: Annotated[Path, typer.Argument(help="A spec with [task.replay]: before, after, batch.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    own_code: Allowed = False,
) -> None:
    """Compare one of your real updates with the simulated client, and find the settings that replay it.

    \b
    Examples:
      leakgauge doctor spec.toml
      leakgauge doctor spec.toml --json

    An attack on a client that is set up differently from yours proves nothing. So save the weights before and after
    one real update and its batch, and name the files in the spec:

    \b
      [task.replay]
      before = "r12.safetensors"            .safetensors, .npz or .pt
      after = "r12-client3.safetensors"
      batch = "known-batch.npz"             inputs and labels, in the order of use
      defense = "noisy"                     the one of [defenses] that was used; by default all and none are tried

    If the settings of the spec do not replay it, the doctor searches over train or eval mode, reduction, label
    smoothing, gradient or weights, sign, learning rate, momentum, weight decay, local steps, minibatches and their
    order, normalisation and swapped names. It also reports what this update cannot distinguish. The residual of a
    client with a defense must follow the law of that defense.

    Imports your code if the spec names it (package.module:name) and you give --own-code. Exits with 0 if the settings
    replay, otherwise with 4.
    """
    from leakgauge.doctor.diagnosis import examine
    from leakgauge.study import sound

    read = sound(spec, judged=False).spec
    announce(read.task.model, read.task.loss, read.task.data, *read.defenses.values(), allowed=own_code)
    diagnosis = examine(read, spec.parent)
    if as_json:
        echo(json.dumps(asdict(diagnosis)))
    else:
        echo(diagnosis.status)
        for sentence in diagnosis.sentences:
            echo(f"  {sentence}")
    if diagnosis.status != "replays":
        raise typer.Exit(ExitCode.INVALID)
