"""Write ``docs/api/*.md``: one heading per public name or part; mkdocstrings fills in the docstrings.

python docs/make_api.py

A page lists names of ``leakgauge`` (``CORE``), every part of some kinds (``PARTS``) or what a package exports
(``ROOMS``). Names are written as they are imported, so that moving a module changes nothing here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from leakgauge.cli.listing import parts

FOLDER = Path(__file__).parent / "api"
CORE = {
    "task": ("Task and recipe", "What is public about a client, and how it trains.", ("Task", "Recipe")),
    "records": (
        "Records and domains",
        "Private examples, and what kind of thing they are.",
        ("Records", "Domain", "Feature"),
    ),
    "threat": ("Threat", "What the adversary is told.", ("Threat",)),
    "observation": (
        "Observations",
        "What leaves a client, and all that an adversary gets.",
        ("observe", "summed", "Observation", "Round"),
    ),
    "exposure": (
        "Exposure",
        "Which records of a client's own batch exact recovery would give away.",
        ("exposure",),
    ),
    "reconstruction": ("Reconstruction", "What an attack returns.", ("Reconstruction",)),
    "audit": (
        "Studies and results",
        "An audit in Python: what to audit, running it, and what it found. On the command line: `leakgauge audit`.",
        ("Study", "audit.auditing.audit", "Result"),
    ),
    "expressions": (
        "Expressions and errors",
        "The [textual form](../reference/expressions.md) of a part, and the base of all exceptions.",
        ("parse", "LeakgaugeError"),
    ),
}
"""Pages of names that ``leakgauge`` itself exports, with their members."""

PARTS = {
    "attacks": ("Attacks", "Published methods, and the adversary that is built against a protection.", ("attack",)),
    "adversary": (
        "The adversary",
        "Likelihood, prior and solver in one configured attack; the optional average over a δ-ball.",
        ("adversary", "ball"),
    ),
    "likelihoods": ("Likelihoods", "`log p(observed | x)`: how well a candidate explains an update.", ("likelihood",)),
    "priors": ("Priors", "`log p(x)`: how plausible a candidate is. Priors add and scale.", ("prior",)),
    "solvers": ("Solvers and schedules", "How the maximum is searched for.", ("solver", "schedule")),
    "partitions": ("Partitions", "How records are spread over the clients of a federated training.", ("partition",)),
    "networks": ("Networks and losses", "The networks of the papers, and the losses.", ("model", "loss")),
    "defenses": (
        "Defenses",
        "How a client protects itself, and what composes the four stages.",
        ("defense",),
    ),
    "settings": (
        "Privacy settings",
        "Settings of other packages that `leakgauge claims` [examines](../how-to/check-privacy-claims.md).",
        ("setting",),
    ),
}
"""Pages of registered parts, by kind."""

WRITTEN = (
    "A heading is the part's name in Python and in expressions; the signature shows the class or function behind it."
)

EXTRA = {"defenses": ("leakgauge.Protection",)}
"""What a page of parts shows first."""

ROOMS = {
    "bounds": ("Bounds", "What no adversary can beat. [How to read them](../explanation/bounds.md)."),
    "metrics": ("Metrics", "How near a reconstruction is. [Units](../explanation/metrics-and-units.md)."),
    "data": ("Data", "Data sets, files and folders of records. [How to](../how-to/get-data.md)."),
    "training": ("Training", "Central training with checkpoints, accuracy and what a defense costs."),
    "tune": ("Tuning", "A search of your own for the settings of an attack. [How to](../how-to/tune-an-attack.md)."),
    "standings": ("Standings", "One fixed set of clients for everybody. [How to](../how-to/standings.md)."),
    "fl": ("Federated training", "Rounds of clients, engines that run them, and sums that tell nobody's own values."),
    "claims": ("Claims", "Privacy settings of other packages, examined. [How to](../how-to/check-privacy-claims.md)."),
}
"""Pages of everything a package exports."""


def pages() -> dict[Path, str]:
    """Every page by its path."""
    texts = {name: _core(*row) for name, row in CORE.items()}
    texts |= {name: _parts(*row, first=EXTRA.get(name, ())) for name, row in PARTS.items()}
    texts |= {name: _room(name, *row) for name, row in ROOMS.items()}
    return {FOLDER / f"{name}.md": text for name, text in texts.items()}


def _core(title: str, intro: str, names: Iterable[str]) -> str:
    return _page(title, intro, (_entry(f"leakgauge.{name}", name.rpartition(".")[2], members=True) for name in names))


def _parts(title: str, intro: str, kinds: Iterable[str], first: Iterable[str]) -> str:
    registered = parts()
    ours = {
        name: _public(part)
        for kind in kinds
        for name, part in registered.get(kind, {}).items()
        if part.__module__.partition(".")[0] == "leakgauge"
    }
    heads = (_entry(path, path.rpartition(".")[2], members=True) for path in first)
    return _page(title, f"{intro}\n{WRITTEN}", [*heads, *(_entry(path, name) for name, path in sorted(ours.items()))])


def _room(room: str, title: str, intro: str) -> str:
    module = importlib.import_module(f"leakgauge.{room}")
    documented = {
        name: getattr(module, name) for name in sorted(module.__all__) if inspect.getdoc(getattr(module, name))
    }
    registered = {part: name for named in parts().values() for name, part in named.items()}
    headings = {name: registered.get(value, name) if callable(value) else name for name, value in documented.items()}
    return _page(title, intro, (_entry(_path(module, n), heading, members=True) for n, heading in headings.items()))


def _public(part: Callable[..., Any]) -> str:
    """Where a part is imported from: the shallowest package that exports it under its own name."""
    steps = part.__module__.split(".")
    for depth in range(2, len(steps) + 1):
        package = importlib.import_module(".".join(steps[:depth]))
        if getattr(package, part.__name__, None) is part:
            return _path(package, part.__name__)
    raise LookupError(f"{part!r} cannot be imported by its name")


def _path(package: ModuleType, name: str) -> str:
    """``package.name``, or the full path where a module of that name would be taken instead."""
    hidden = hasattr(package, "__path__") and find_spec(f"{package.__name__}.{name}")
    return f"{getattr(package, name).__module__ if hidden else package.__name__}.{name}"


def _entry(path: str, heading: str, *, members: bool = False) -> str:
    options = [f'heading: "{heading}"', f'toc_label: "{heading}"', *([] if members else ["members: false"])]
    return "\n".join([f"::: {path}", "    options:", *(f"      {option}" for option in options)])


def _page(title: str, intro: str, entries: Iterable[str]) -> str:
    note = "<!-- Written by docs/make_api.py; do not edit. -->"
    return "\n\n".join([f"# {title}", note, intro, *entries]) + "\n"


def stale() -> Iterator[Path]:
    """Pages that no longer belong to anything."""
    return (path for path in FOLDER.glob("*.md") if path not in pages())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path in stale():
        path.unlink()
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
