"""The laws, and the tests of the rooms that were changed, in under a minute: ``make quick``.

Changed is what differs from the main branch (on the main branch: from the commit before), and what is not committed. A
file of ``src/leakgauge/<room>`` means ``tests/<room>``, first of all the test file of its own name; a module beside the
rooms means its ``tests/test_<module>.py``. Tests that the minute does not suffice for are skipped and counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 45.0
"""After this many no test starts: starting pytest and ending the last tests take the rest of the minute."""
DEADLINE = "LEAKGAUGE_QUICK_DEADLINE"


def changed(root: Path = ROOT) -> list[str]:
    """Paths that differ from the base, and files that git does not know yet."""
    base = _base(root)
    committed = _git(root, "diff", "--name-only", base) if base else []
    return [*committed, *_git(root, "ls-files", "--others", "--exclude-standard")]


def _base(root: Path) -> str | None:
    """Where the branch left main; on main itself the commit before; None in a clone of a single commit."""
    (head,) = _git(root, "rev-parse", "HEAD")
    for main in ("main", "origin/main"):
        fork = _git(root, "merge-base", "HEAD", main)
        if fork and fork[0] != head:
            return fork[0]
    return next(iter(_git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")), "HEAD")


def _git(root: Path, *words: str) -> list[str]:
    """The lines of a git command; none where it fails (no such branch)."""
    ended = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return ended.stdout.split("\n")[:-1] if ended.returncode == 0 else []


def asked_by(path: str, root: Path = ROOT) -> list[str]:
    """The tests that a changed file asks for, most telling first, as far as they exist."""
    pieces = PurePosixPath(path)
    match pieces.parts:
        case ("src", "leakgauge", room, *_, _) if pieces.suffix == ".py":
            names = [f"tests/{room}/test_{pieces.stem}.py", f"tests/{room}"]
        case ("src", "leakgauge", _) if pieces.suffix == ".py":
            names = [f"tests/test_{pieces.stem}.py"]
        case ("tests", *_, name) if name.startswith("test_") and pieces.suffix == ".py":
            names = [path]
        case ("tests", room, *_, _):
            names = [f"tests/{room}"]
        case _:
            names = []
    return [name for name in names if (root / name).exists()]


def selection(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The laws; then the files that mirror changed ones; then the other tests of their rooms."""
    laws = sorted(str(path.relative_to(root)) for path in (root / "tests").glob("*/test_laws.py"))
    asked = [name for path in paths for name in asked_by(path, root)]
    files_first = sorted(asked, key=lambda name: not name.endswith(".py"))
    return list(dict.fromkeys([*laws, *files_first]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(DEADLINE, "inf")):
        pytest.skip("out of time; make test runs it")


def main() -> int:
    names = selection(changed())
    print("quick:", *names, flush=True)
    words = ["-q", "-n", "2", "--dist", "load", "-m", "not slow", "-p", "no:budgets", "-p", "tests.quick"]
    environment = {**os.environ, DEADLINE: str(time.time() + SECONDS)}
    return subprocess.run([sys.executable, "-m", "pytest", *words, *names], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    raise SystemExit(main())
