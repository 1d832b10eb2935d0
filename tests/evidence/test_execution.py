"""What a check ran: every function that was called, nothing else, and what of a change makes a result old."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.sources import Sources

PART = '''
"""A part."""
from __future__ import annotations
from typing import ClassVar
from leakgauge.lonely import alone
from leakgauge.lonely import alone as used
TWICE = 6
LIMIT = TWICE / 2
UNUSED = 8
__all__ = []
def plain():
    """Doc."""
    return LIMIT, used
def other():
    return 1
def decorated(f):
    return f
@decorated
def registered():
    return 2
class Noise:
    """Doc."""
    scale = 1.0
    version: ClassVar[int] = 1
    def release(self):
        def inner():
            return plain()
        return inner()
    def never(self):
        return 0
'''
RUN = """
import json, sys
from evidence import execution
execution.watch(["leakgauge"])
from leakgauge.part import Noise
import leakgauge.lonely
Noise().release()
{more}
print(json.dumps(execution.ran()))
"""
RAN = {"leakgauge": [], "leakgauge.lonely": [], "leakgauge.part": ["Noise.release", "decorated", "plain"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    room = tmp_path / "src" / "leakgauge"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "part.py").write_text(PART)
    (room / "more.py").write_text("x = 1\n")
    (room / "lonely.py").write_text("def alone():\n    return 1\n")
    (tmp_path / "evidence" / "checks").mkdir(parents=True)
    (tmp_path / "evidence" / "checks" / "some.py").write_text("BAR = 1\nSPARE = 2\ndef scored():\n    return BAR\n")
    return tmp_path


def ran(project: Path, more: str = "") -> dict[str, list[str]] | None:
    code = f"import sys; sys.path[:0] = [{str(project / 'src')!r}]\n" + RUN.format(more=more)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    result: dict[str, list[str]] | None = json.loads(done.stdout.splitlines()[-1])
    return result


def test_functions_that_ran_are_named_and_no_others(project: Path) -> None:
    assert ran(project) == RAN


@pytest.mark.parametrize(
    "start",
    [
        "import subprocess; subprocess.run([sys.executable, '-c', ''])",
        "import multiprocessing; p = multiprocessing.get_context('fork').Process(target=int); p.start(); p.join()",
        "execution.unseen()",
    ],
)
def test_what_runs_elsewhere_is_not_seen(project: Path, start: str) -> None:
    assert ran(project, start) is None


def executed(project: Path) -> str:
    return Sources(project).executed("evidence.checks.some", "scored", RAN).digest


@pytest.mark.parametrize(
    ("path", "before", "after", "matters"),
    [
        ("src/leakgauge/part.py", "return LIMIT", "return 1 + LIMIT", True),
        ("src/leakgauge/part.py", "TWICE / 2", "TWICE / 3", True),
        ("src/leakgauge/part.py", "return plain()", "return 5", True),  # inside a function that ran
        ("src/leakgauge/part.py", "scale = 1.0", "scale = 2.0", True),
        ("src/leakgauge/part.py", "def never(self)", "def release(self)", True),  # overrides what ran
        ("src/leakgauge/part.py", "def never(self)", "def __eq__(self, x): ...\n    def never(self)", True),
        ("src/leakgauge/part.py", "def registered()", "def listed()", True),
        ("src/leakgauge/part.py", "def other()", "@decorated\ndef other()", True),
        ("src/leakgauge/part.py", "return 1", "return 7", False),  # other() did not run
        ("src/leakgauge/part.py", "return 2", "return 7", False),  # nor did registered()
        ("src/leakgauge/part.py", "return 0", "return 7", False),
        ("src/leakgauge/part.py", "def other()", "def more():\n    pass\ndef other()", False),
        ("src/leakgauge/part.py", '"""Doc."""', '"""Another text."""', False),
        ("src/leakgauge/lonely.py", "return 1", "return 2", False),
        ("src/leakgauge/part.py", "version: ClassVar[int] = 1", "version: ClassVar[int] = 2", False),
        ("src/leakgauge/part.py", "import alone as used", "import other as used", True),
        ("src/leakgauge/part.py", "import alone\n", "import alone, something\n", False),  # used by nothing that ran
        ("src/leakgauge/part.py", "import alone\n", "import alone\nfrom leakgauge import more\n", True),  # loads it
        ("src/leakgauge/part.py", "import alone\n", "import alone\nfrom leakgauge.more import x\n", True),
        ("src/leakgauge/part.py", "import alone\n", "import alone\nfrom torch import x\n", False),
        ("src/leakgauge/lonely.py", "def alone", "import math\ndef alone", False),
        ("src/leakgauge/lonely.py", "def alone", "import math\nx = math.pi\ndef alone", False),  # used by nothing
        ("src/leakgauge/lonely.py", "def alone", "x = print()\ndef alone", True),  # a call may do anything
        ("src/leakgauge/lonely.py", "def alone", "LIMIT = 3\ndef alone", True),  # a name that something uses
        ("src/leakgauge/part.py", "TWICE = 6", "TWICE = 7", True),  # used by a constant that is used
        ("src/leakgauge/part.py", "UNUSED = 8", "UNUSED = 9", False),
        ("src/leakgauge/part.py", "__all__ = []", "__all__ = ['plain']", False),
        ("src/leakgauge/__init__.py", "", "from leakgauge.part import plain", True),  # for others
        ("evidence/checks/some.py", "BAR = 1", "BAR = 3", True),
        ("evidence/checks/some.py", "SPARE = 2", "SPARE = 3", False),
    ],
)
def test_only_a_change_of_what_ran_matters(project: Path, path: str, before: str, after: str, matters: bool) -> None:
    known = executed(project)
    text = (project / path).read_text()
    assert before in text
    (project / path).write_text(text.replace(before, after))
    assert (executed(project) != known) == matters


def test_a_module_that_is_gone_matters(project: Path) -> None:
    known = executed(project)
    (project / "src/leakgauge/lonely.py").unlink()
    assert executed(project) != known
