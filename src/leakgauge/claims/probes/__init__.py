"""Probes: small experiments on the installed packages, so that a release which mends a fault passes.

A probe returns its numbers and whether the fault is there. One that cannot run (the package is not installed, or has
changed its interface) is said to be not probed; it never guesses from a version.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps

import numpy as np

Numbers = dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """What a probe saw. ``faulty`` is None where it could not run."""

    faulty: bool | None
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def probe(package: str) -> Callable[[Callable[..., tuple[bool, Numbers]]], Callable[..., Outcome]]:
    """Make a probe of a function that returns whether the fault is there, and its numbers. Results are kept."""

    def make(run: Callable[..., tuple[bool, Numbers]]) -> Callable[..., Outcome]:
        @cache
        @wraps(run)
        def probed(*settings: object) -> Outcome:
            if not installed(package):
                return Outcome(None, note=f"{package} is not installed, not probed")
            version = importlib.metadata.version(package)
            try:
                with undisturbed():
                    faulty, numbers = run(*settings)
            except Exception as fault:  # a release with another interface: neither right nor wrong is known
                reason = f"{type(fault).__name__}: {fault}".splitlines()[0][:120]
                return Outcome(None, note=f"{package} {version} cannot be probed ({reason})")
            return Outcome(faulty, numbers, note=f"probed: {package} {version}")

        return probed

    return make


def installed(package: str) -> bool:
    """Whether a package can be imported; nothing is imported."""
    return importlib.util.find_spec(package) is not None


@contextmanager
def undisturbed() -> Iterator[None]:
    """No warnings and logs of the package, and numpy's and torch's global generators as they were."""
    import torch

    numpy_state, torch_state, level = np.random.get_state(), torch.get_rng_state(), logging.root.manager.disable  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            yield
    finally:
        logging.disable(level)
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(torch_state)
