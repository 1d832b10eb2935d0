"""The node's side: its operator switches mods on for every app that the node runs, without the app's help.

    export PYTHONPATH=$(python -m leakgauge.integrations.flower)   # a folder with a sitecustomize.py
    export LEAKGAUGE_CAPTURE=/var/lib/captures                     # Capture(…)
    export LEAKGAUGE_DEFEND="clip(norm=1.0) | gaussian(std=0.1)"   # Defend(…)
    export LEAKGAUGE_GATE=my_site.policy:gate                      # a Gate, or any mod, of the operator's own
    flower-supernode …

On the way out the update passes ``LEAKGAUGE_DEFEND``, the gate, then the capture: what is written is what leaves. A
setting that cannot be used makes every app of this node answer with an error. This guards against forgetting, not
against hostile code in an app, which runs in the same process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.errors import ExpressionError
from leakgauge.integrations.files import VARIABLE
from leakgauge.integrations.flower.capture import Capture
from leakgauge.integrations.flower.defend import Defend
from leakgauge.integrations.flower.messages import LOG, withheld

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context, Message

    Mod = Callable[..., Message]

HOOK = Path(__file__).parent / "hook"
"""The folder for PYTHONPATH."""

SETTINGS = (VARIABLE, "LEAKGAUGE_GATE", "LEAKGAUGE_DEFEND")


def mods_of(environment: Mapping[str, str]) -> list[Mod]:
    """The mods that the operator's settings ask for, outermost first."""
    capture, gate, defend = (environment.get(name, "") for name in SETTINGS)
    mods: list[Mod] = [Capture(capture)] if capture else []
    if gate:
        mods.append(_loaded(gate))
    return [*mods, Defend(defend)] if defend else mods


def _loaded(path: str) -> Mod:
    from leakgauge.expr.reading import load

    mod: Mod = load(path, where="LEAKGAUGE_GATE")
    if not callable(mod) or isinstance(mod, type):
        raise ExpressionError(f"{path} is no mod", where="LEAKGAUGE_GATE", remedy="name a Gate(…) of your own")
    return mod


def wrap(app_class: Any, environment: Mapping[str, str] | None = None) -> None:
    """Let every app of this class run inside the operator's mods; calling it twice wraps once."""
    inner = app_class.__call__
    if getattr(inner, "leakgauge", False):
        return
    settings = dict(os.environ if environment is None else environment)

    def call(app: Any, message: Message, context: Context) -> Message:
        try:
            mods = mods_of(settings)
        except Exception as fault:
            LOG.error("node: no app runs: %s", fault)
            return withheld(message)
        run: Callable[..., Message] = partial(inner, app)
        for mod in reversed(mods):
            run = partial(_call, mod, run)
        return run(message, context)

    call.leakgauge = True  # type: ignore[attr-defined]
    app_class.__call__ = call


def _call(mod: Mod, call_next: Callable[..., Message], message: Message, context: Context) -> Message:
    """Call a mod; where it raises itself, the update stays here: Flower would send the text of it to the server."""
    of_app: list[BaseException] = []

    def run(*arguments: Any) -> Message:
        try:
            return call_next(*arguments)
        except BaseException as fault:
            of_app.append(fault)
            raise

    try:
        return mod(message, context, run)
    except Exception as fault:
        if any(fault is one for one in of_app):  # the app's own fault is Flower's business
            raise
        LOG.error("node: the update was withheld: %s: %s", type(fault).__name__, fault)
        return withheld(message)
