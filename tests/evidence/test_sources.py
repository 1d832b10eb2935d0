"""Which code a check depends on: what it imports, however far away, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from evidence.sources import Sources
from evidence.syntax import dump

FILES = {
    "src/leakgauge/__init__.py": '''
"""A package that imports its rooms when they are first used."""
import importlib
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from leakgauge import metrics
    from leakgauge.task import Task
__version__ = "1"
_ROOMS = ("metrics", "parts")
def parse(text):
    for room in _ROOMS:
        importlib.import_module(f"leakgauge.{room}")
def __getattr__(name):
    return importlib.import_module(f"leakgauge.{name}")
''',
    "src/leakgauge/metrics.py": "def psnr(x):\n    return x\n",
    "src/leakgauge/task.py": "from leakgauge.tree import leaves\nclass Task:\n    pass\n",
    "src/leakgauge/tree.py": "def leaves():\n    pass\n",
    "src/leakgauge/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from leakgauge import tree\n",
    "src/leakgauge/lazy.py": "def late():\n    from . import alone\n    return alone\n",
    "src/leakgauge/alone.py": "x = 1\n",
    "src/leakgauge/parts/__init__.py": "from leakgauge.parts.noise import noise\n",
    "src/leakgauge/parts/noise.py": "def noise():\n    pass\n",
    "src/leakgauge/parts/sample/records.bin": "bits",
    "evidence/__init__.py": "from evidence.registry import check\n",
    "evidence/registry.py": "def check(name):\n    return lambda f: f\n",
    "evidence/planted.py": "class Plant:\n    pass\n",
    "evidence/checks/__init__.py": "",
    "evidence/checks/some.py": '''
import leakgauge as lg
from evidence import check
from leakgauge import metrics, typed
from leakgauge.lazy import late
from leakgauge.parts import noise

BAR = 25
"""A note."""

def _helper():
    return metrics.psnr(BAR)

@check("scored")
def scored():
    """Says something."""
    return _helper()  # a comment

@check("tasks")
def tasks():
    return lg.Task()

@check("types")
def types():
    return typed

@check("late")
def lately():
    return late()

@check("parsed")
def parsed():
    return lg.parse("noise()")

@check("planted")
def planted():
    return f"evidence.planted:Plant(strength={BAR})"

@check("other")
def other():
    from evidence.checks.more import LIMIT
    return LIMIT
''',
    "evidence/checks/more.py": "from leakgauge import tree\nLIMIT = 3\nOTHER = tree\n",
    "examples/demo.toml": "a = 1\n",
}
CHECKS = ("scored", "tasks", "types", "lately", "parsed", "planted", "other")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digests(root: Path) -> dict[str, str]:
    sources = Sources(root)
    prints = {name: sources.fingerprint("evidence.checks.some", name) for name in CHECKS}
    assert all(not one.missing for one in prints.values())
    return {name: one.digest for name, one in prints.items()}


def changed(root: Path, place: str, before: str, after: str) -> set[str]:
    """The checks that become old by an edit."""
    old, path = digests(root), root / place
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    new = digests(root)
    return {name for name in CHECKS if old[name] != new[name]}


@pytest.mark.parametrize(
    ("place", "before", "after", "old"),
    [
        ("src/leakgauge/metrics.py", "return x", "return 2 * x", {"scored", "parsed"}),
        ("src/leakgauge/tree.py", "pass", "return 1", {"tasks"}),  # two modules away
        ("src/leakgauge/alone.py", "x = 1", "x = 2", {"lately"}),  # imported inside a function, relatively
        ("src/leakgauge/parts/noise.py", "pass", "return 1", {"parsed"}),  # found by name: f"leakgauge.{room}"
        ("src/leakgauge/parts/sample/records.bin", "bits", "bytes", {"parsed"}),
        ("evidence/planted.py", "pass", "x = 1", {"planted"}),  # named by an expression
        ("evidence/checks/some.py", "BAR = 25", "BAR = 26", {"scored", "planted"}),
        ("evidence/checks/some.py", "return _helper()", "return 2 * _helper()", {"scored"}),
        ("evidence/checks/some.py", "return lg.Task()", "return lg.Task", {"tasks"}),
        ("evidence/checks/some.py", 'check("tasks")', 'check("tasks", cost="long")', {"tasks"}),
        ("evidence/checks/more.py", "LIMIT = 3", "LIMIT = 4", {"other"}),
        ("evidence/checks/more.py", "OTHER = tree", "OTHER = None", set()),
        ("evidence/registry.py", "lambda f: f", "lambda f: (f)()", set()),  # runs checks; measures nothing
        ("src/leakgauge/__init__.py", '__version__ = "1"', '__version__ = "2"', set()),
        ("src/leakgauge/__init__.py", '"metrics", "parts"', '"metrics", "tree"', {"parsed"}),
    ],
)
def test_an_edit_makes_exactly_those_checks_old(
    project: Path, place: str, before: str, after: str, old: set[str]
) -> None:
    assert changed(project, place, before, after) == old


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("evidence/checks/some.py", "# a comment", "# another"),
        ("evidence/checks/some.py", "Says something.", "Says it otherwise."),
        ("evidence/checks/some.py", "A note.", "Another note."),
        ("evidence/checks/some.py", "metrics.psnr(BAR)", "metrics.psnr(\n        BAR,\n    )"),
        ("src/leakgauge/tree.py", "def leaves", "\n\n# leaves\ndef leaves"),
        ("src/leakgauge/metrics.py", "    return x", '    """New."""\n    return (x)'),
    ],
)
def test_comments_docstrings_and_layout_make_nothing_old(project: Path, place: str, before: str, after: str) -> None:
    assert changed(project, place, before, after) == set()


def test_what_is_used_without_an_import(project: Path) -> None:
    def digest(*uses: str) -> str:
        return Sources(project).fingerprint("evidence.checks.some", "types", uses).digest

    before = digest(), digest("examples/demo.toml"), digest("examples"), digest("leakgauge.alone")
    assert len(set(before)) == 3  # a folder is its files
    (project / "examples" / "demo.toml").write_text("a = 2\n")
    (project / "src" / "leakgauge" / "alone.py").write_text("x = 2\n")
    after = digest(), digest("examples/demo.toml"), digest("examples"), digest("leakgauge.alone")
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False, False]


def test_imports_that_lead_nowhere_are_named(project: Path) -> None:
    (project / "src" / "leakgauge" / "alone.py").write_text("import leakgauge.ghost\n")
    fingerprint = Sources(project).fingerprint("evidence.checks.some", "lately", ("nowhere.txt",))
    assert fingerprint.missing == ("leakgauge.ghost", "nowhere.txt")


def test_files_are_those_that_count(project: Path) -> None:
    files = Sources(project).fingerprint("evidence.checks.some", "scored").files
    assert {path.relative_to(project).as_posix() for path in files} == {
        "evidence/checks/some.py",
        "src/leakgauge/__init__.py",
        "src/leakgauge/metrics.py",
    }


def test_sources_notice_that_they_were_edited(project: Path) -> None:
    sources = Sources(project)
    assert sources.fresh() is sources
    (project / "evidence" / "planted.py").write_text("class Plant:\n    y = 1\n")
    assert sources.fresh() is not sources


def test_a_dump_tells_different_programs_apart() -> None:
    programs = ["x = 1", "x = 1.0", "x = '1'", "x: int = 1", "y = 1", "x = [1]", "x = (1,)", "x = f'{1}'", "x = True"]
    programs += ["x += 1", "x = not 1", "x = -1", "x = {1}", "def x(): 1", "async def x(): 1", "class x: 1", "x = b'1'"]
    assert len({dump(ast.parse(text)) for text in programs}) == len(programs)


def test_a_folder_is_hashed_without_the_results_stored_in_it(project: Path) -> None:
    """Else a check that uses the docs would be older than itself as soon as its result is stored."""

    def digest() -> str:
        return Sources(project).fingerprint("evidence.checks.some", "types", ("docs/",)).digest

    (project / "docs" / "evidence").mkdir(parents=True)
    text = project / "docs" / "page.md"
    text.write_text("We measured <!-- evidence:some -->1 dB<!-- /evidence --> once.")
    before = digest()
    (project / "docs" / "evidence" / "some.json").write_text("{}")
    (project / "docs" / "evidence.md").write_text("all results")
    text.write_text("We measured <!-- evidence:some -->2 dB<!-- /evidence --> once.")
    assert digest() == before
    text.write_text("We measured <!-- evidence:some -->2 dB<!-- /evidence --> twice.")
    assert digest() != before
