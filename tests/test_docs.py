"""The docs: every Python snippet runs and prints what the page says; commands and links exist; the reference is new.

The ``python`` blocks of a page run in order, in one namespace and an empty folder. A ``text`` block right after one is
its output, ``...`` standing for anything. The ``leakgauge`` lines of a ``sh`` block with such an output run too.
A ``python`` or ``toml`` block that begins with a comment like ``# my_clinic.py`` is saved under that name. Blocks of
prompts (``>>>``) are doctests.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import leakgauge as lg
from leakgauge import expr
from leakgauge.cli import app
from leakgauge.cli.listing import parts

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SNIPPET = re.compile(
    r"^```(?P<kind>python|sh|toml)\n(?P<code>.*?)^```\n(?:\n*```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
SHELL = re.compile(r"^```sh\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^leakgauge (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
HEADING = re.compile(r'^      heading: "(\w+)"$', re.MULTILINE)
FETCHED = re.compile(r'<(?:script|img|iframe)[^>]*\bsrc="(?:https?:)?//|<link[^>]*\bhref="(?:https?:)?//')
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run a page in, whose modules and registered parts leave with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    parts()  # every room registers its parts now, not halfway
    before = {kind: dict(made) for kind, made in expr.REGISTRY.items()}
    yield tmp_path
    expr.REGISTRY.clear()
    expr.REGISTRY.update(before)
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.mark.parametrize("page", [p for p in PAGES if SNIPPET.search(p.read_text())], ids=lambda p: p.stem)
def test_snippets_run_and_print_what_the_page_says(page: Path, workshop: Path) -> None:
    space: dict[str, object] = {"__name__": page.stem}
    text = page.read_text(encoding="utf-8")
    for snippet in SNIPPET.finditer(text):
        code, line = snippet["code"], text[: snippet.start()].count("\n") + 2
        if named := FILE.match(code):
            (workshop / named[1]).write_text(code)
        elif snippet["kind"] == "sh":
            if snippet["output"] is not None:
                commands = [shlex.split(command, comments=True) for command in COMMAND.findall(code)]
                printed = "".join(CliRunner().invoke(app, command).output for command in commands)
                same = doctest.OutputChecker().check_output(snippet["output"], printed, doctest.ELLIPSIS)
                assert same, f"{page.name}:{line} printed\n{printed}"
        elif code.startswith(">>>"):
            case = doctest.DocTestParser().get_doctest(code, space, page.name, str(page), line)
            found = io.StringIO()
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            assert not runner.run(case, out=found.write, clear_globs=False).failed, found.getvalue()
            space.update(case.globs)
        elif snippet["kind"] == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True), space)
            if snippet["output"] is not None:
                same = doctest.OutputChecker().check_output(snippet["output"], out.getvalue(), doctest.ELLIPSIS)
                assert same, f"{page.name}:{line} printed\n{out.getvalue()}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.stem)
def test_commands_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command in COMMAND.findall("".join(SHELL.findall(text))):
        words = [word for word in shlex.split(command.partition("#")[0]) if re.fullmatch("[a-z-]+", word)]
        # a group has commands, a command has arguments: ask the longest path that is one for its help
        path = words[: 2 if words[0] in ("data", "bound") else 1]
        assert CliRunner().invoke(app, [*path, "--help"]).exit_code == 0, command
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_reference_is_current() -> None:
    module = _script("make_reference")
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python docs/make_reference.py"


def test_api_pages_are_current() -> None:
    module = _script("make_api")
    pages = {path: path.read_text(encoding="utf-8") for path in module.FOLDER.glob("*.md")}
    assert pages == module.pages(), "run python docs/make_api.py"


def test_api_pages_cover_every_public_name_and_part() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    paths, headings = set(ENTRY.findall(text)), set(HEADING.findall(text))
    for name in lg.__all__:
        if isinstance(getattr(lg, name), ModuleType):
            assert any(path.startswith(f"leakgauge.{name}.") for path in paths), f"nothing of leakgauge.{name}"
        else:
            assert f"leakgauge.{name}" in paths, f"leakgauge.{name} has no entry; add it to docs/make_api.py"
    ours = {
        name for named in parts().values() for name, part in named.items() if part.__module__.startswith("leakgauge.")
    }
    assert ours <= headings, f"parts without an entry: {sorted(ours - headings)}"


def test_the_navigation_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)  # the page for a missing address comes on top
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not FETCHED.findall(text), f"{page.name} loads something from the network"
        assert ":::" not in text, f"{page.name} has an entry that was not filled in"


def _script(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
