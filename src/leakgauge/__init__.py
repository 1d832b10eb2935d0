"""leakgauge: how much of your clients' private data can be read back out of the updates they send?

>>> import leakgauge as lg
>>> data = lg.data.load("fashion_mnist_sample")
>>> task = lg.Task(lg.models.build("bayes_cnn", data.domain), data.domain)
>>> task = task.protect("clip(norm=1.0) | gaussian(std=0.001)")

Rooms are imported when they are first used, so that ``leakgauge --help`` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakgauge import adversary, attacks, bounds, data, defenses, metrics, models, priors
    from leakgauge.adversary import Reconstruction
    from leakgauge.attacks.exposure import exposure
    from leakgauge.audit import audit
    from leakgauge.audit.judge.model import Result
    from leakgauge.client import Recipe
    from leakgauge.defenses import Protection
    from leakgauge.errors import LeakgaugeError
    from leakgauge.observation import Observation, Round, observe, summed
    from leakgauge.study import Study
    from leakgauge.task import Task
    from leakgauge.types import Domain, Feature, Records, Threat

__version__ = "0.1.0"

_ROOMS = ("adversary", "attacks", "bounds", "data", "defenses", "fl", "metrics", "models", "priors", "training")
_HOMES = {
    "Domain": "types",
    "Feature": "types",
    "LeakgaugeError": "errors",
    "Observation": "observation",
    "Protection": "defenses",
    "Recipe": "client",
    "Result": "audit.judge.model",
    "Reconstruction": "adversary",
    "Records": "types",
    "Round": "observation",
    "Study": "study",
    "Task": "task",
    "Threat": "types",
    "exposure": "attacks.exposure",
    "observe": "observation",
    "summed": "observation",
}


def parse(text: str, kind: str | None = None, *, where: str = "expression") -> Any:
    """The part that an expression names: ``parse("clip(norm=1.0) | gaussian(std=0.1)")``."""
    from leakgauge import expr

    for room in _ROOMS:
        importlib.import_module(f"leakgauge.{room}")  # importing a room registers its parts
    return expr.parse(text, kind, where=where)


def __getattr__(name: str) -> Any:
    if name in _ROOMS or name == "audit":  # the room of audits can be called
        return importlib.import_module(f"leakgauge.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"leakgauge.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'leakgauge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Domain",
    "Feature",
    "LeakgaugeError",
    "Observation",
    "Protection",
    "Recipe",
    "Reconstruction",
    "Records",
    "Result",
    "Round",
    "Study",
    "Task",
    "Threat",
    "adversary",
    "attacks",
    "audit",
    "bounds",
    "data",
    "defenses",
    "exposure",
    "fl",
    "metrics",
    "models",
    "observe",
    "parse",
    "priors",
    "summed",
    "training",
]
