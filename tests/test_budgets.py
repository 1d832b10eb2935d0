"""The budgets themselves: they fit into `make test`, and a folder that exceeds its own is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
BUSY = """
import time

def test_busy():
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
"""


def test_all_budgets_fit_into_make_test() -> None:
    seconds = tomllib.loads((HERE / "budgets.toml").read_text())["seconds"]
    assert sum(spent for name, spent in seconds.items() if name != "default") <= 960


def test_a_folder_over_its_budget_is_named(tmp_path: Path) -> None:
    # with a worker, the harder case: it measures, the controller decides; our own session is the case that passes
    for name in ("cheap", "dear"):
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(BUSY)
    shutil.copy(HERE / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "budgets.toml").write_text("[seconds]\ndefault = 50\ndear = 0.1\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"]
    session = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert session.returncode == 0  # seconds of another processor fail no test
    assert "OVER BUDGET tests/dear" in session.stdout
    assert "tests/cheap:" not in session.stdout
    assert "2 passed" in session.stdout
