"""Put on PYTHONPATH by the operator of a SuperNode: wraps Flower's ClientApp as soon as it is imported.

Python goes on if this file raises, and the app would run without the operator's mods. So it only installs a finder;
everything that can fail happens when ClientApp is imported, and ends that import.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

WATCHED = "flwr.clientapp.client_app"


class Loader(importlib.abc.Loader):
    """Loads the module as its own loader would, then wraps its class."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self.own.exec_module(module)
        from leakgauge.integrations.flower.node import wrap

        wrap(module.ClientApp)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != WATCHED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())

# another sitecustomize that this one hides on the path
here = os.path.dirname(os.path.abspath(__file__))
others = [folder for folder in sys.path if os.path.abspath(folder) != here]
hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if hidden is not None and hidden.loader is not None:
    hidden.loader.exec_module(importlib.util.module_from_spec(hidden))
