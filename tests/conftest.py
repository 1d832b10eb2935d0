"""What every test gets: one thread, fixed seeds, and a time budget per folder (``budgets.toml``)."""

from __future__ import annotations

import os
import random
import tomllib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

# two workers with many threads each would fight over the cores, and sums would depend on their number
torch.set_num_threads(1)
settings.register_profile("leakgauge", derandomize=True, deadline=None)
settings.register_profile("many", settings.get_profile("leakgauge"), max_examples=500)  # for make test-all
settings.register_profile("few", settings.get_profile("leakgauge"), max_examples=20)  # for runs of many sessions
settings.load_profile("leakgauge")

SPENT: pytest.StashKey[float] = pytest.StashKey()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Fix the global generators, so that a test alone and a test in a crowd see the same numbers."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - libraries under test may still use it
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh torch generator with a fixed seed."""
    return torch.Generator().manual_seed(0)


class Budgets:
    """Say which folders' tests cost more than their budget; a session never fails for that.

    Costs are processor seconds, children included. Another processor takes other times, so a budget that failed the
    session would fail honest tests there. Tests marked slow do not count. With pytest-xdist the workers measure and
    the controller, which sees every report, adds up.
    """

    def __init__(self, budgets: dict[str, float]) -> None:
        self.budgets = budgets
        self.spent: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "slow" not in report.keywords:
            self.spent[folder(report.nodeid)] += getattr(report, "processor_seconds", 0.0)

    def over(self) -> list[str]:
        default = self.budgets["default"]
        return [
            f"tests/{name}: {spent:.0f} s of processor time, budget {self.budgets.get(name, default):.0f} s"
            for name, spent in sorted(self.spent.items())
            if spent > self.budgets.get(name, default)
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.spent:
            each = ", ".join(f"{name} {spent:.0f}" for name, spent in sorted(self.spent.items()))
            terminalreporter.write_line(f"processor seconds: {each}")
        for line in self.over():
            terminalreporter.write_line(f"OVER BUDGET {line} (tests/budgets.toml); mark tests slow or speed them up")


def folder(nodeid: str) -> str:
    """The top-level test folder of a test: ``tests/priors/test_laws.py::test_x`` → ``priors``."""
    pieces = nodeid.partition("::")[0].split("/")
    return pieces[1] if len(pieces) > 2 and pieces[0] == "tests" else "."


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the controller, or the only process
        budgets = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text())
        config.pluginmanager.register(Budgets(budgets["seconds"]), "budgets")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[SPENT] = _processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Runs after each phase; extra attributes of a report travel from worker to controller."""
    report = yield
    now = _processor_seconds()
    report.processor_seconds = now - item.stash.get(SPENT, now)  # type: ignore[attr-defined]
    item.stash[SPENT] = now
    return report


def _processor_seconds() -> float:
    return sum(os.times()[:4])
