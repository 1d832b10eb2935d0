"""`make quick`: which tests a change asks for, and that a deadline is kept and told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import DEADLINE, ROOT, asked_by, changed, selection


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of one room and one module, with tests, on the main branch."""
    for name in (
        *("src/leakgauge/room/door.py", "src/leakgauge/room/deep/well.py", "src/leakgauge/shed.py"),
        *("tests/room/test_door.py", "tests/room/test_laws.py", "tests/room/helpers.py", "tests/test_shed.py"),
        "README.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Change")


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("src/leakgauge/room/door.py", ["tests/room/test_door.py", "tests/room"]),
        ("src/leakgauge/room/deep/well.py", ["tests/room"]),
        ("src/leakgauge/shed.py", ["tests/test_shed.py"]),
        ("src/leakgauge/gone.py", []),
        ("tests/room/test_door.py", ["tests/room/test_door.py"]),
        ("tests/room/helpers.py", ["tests/room"]),
        ("README.md", []),
    ],
)
def test_a_file_asks_for_the_tests_of_its_room(path: str, tests: list[str], project: Path) -> None:
    assert asked_by(path, project) == tests


def test_laws_come_first_and_every_test_once(project: Path) -> None:
    paths = ["src/leakgauge/room/deep/well.py", "src/leakgauge/room/door.py", "src/leakgauge/shed.py"]
    wanted = ["tests/room/test_laws.py", "tests/room/test_door.py", "tests/test_shed.py", "tests/room"]
    assert selection(paths, project) == wanted
    assert selection([], project) == wanted[:1]


def test_changed_is_what_differs_from_main_and_what_is_not_committed(project: Path) -> None:
    assert changed(project) == []
    (project / "README.md").write_text("new")
    commit(project)
    assert changed(project) == ["README.md"]  # on main: since the commit before
    git(project, "checkout", "-qb", "branch")
    (project / "src/leakgauge/shed.py").write_text("new")
    commit(project)
    (project / "src/leakgauge/room/door.py").write_text("new")
    (project / "tests/test_new.py").write_text("")
    assert changed(project) == ["src/leakgauge/room/door.py", "src/leakgauge/shed.py", "tests/test_new.py"]


def test_what_there_is_no_time_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_two.py").write_text("def test_one():\n    assert False\n\ndef test_two():\n    assert False\n")
    monkeypatch.setenv(DEADLINE, "0")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "tests.quick"]
    session = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert session.returncode == 0
    assert "SKIPPED [2]" in session.stdout
    assert "out of time" in session.stdout
