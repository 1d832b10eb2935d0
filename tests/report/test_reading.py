"""Reading run folders: hostile and broken ones become one clear error; nothing heavy is imported."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leakgauge.report import RunError, read, report
from tests.report.samples import make


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", b'{"schema": 2}', b"[" * 100_000],
    ids=["empty", "cut", "binary", "list", "null", "bare", "future", "deep"],
)
def test_a_broken_result_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(RunError, match=r"result\.json"):
        read(tmp_path)


def test_an_absent_run_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no result\.json"):
        read(tmp_path)
    with pytest.raises(RunError, match="no such file or folder"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize("key", ["checkpoints", "thresholds", "scope", "spec", "metric", "replay"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    folder = make(tmp_path / "run")
    whole = json.loads((folder / "result.json").read_text())
    del whole[key]
    (folder / "result.json").write_text(json.dumps(whole))
    with pytest.raises(RunError, match=key):
        read(folder)


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    text = (folder / "result.json").read_text().replace('"exact": 60.0', '"exact": NaN')
    (folder / "result.json").write_text(text)
    with pytest.raises(RunError, match="NaN"):
        read(folder)


@pytest.mark.parametrize("cell", ["../records", "/etc/passwd", "aa/../../records", ""])
def test_a_cell_cannot_point_outside_its_folder(tmp_path: Path, cell: str) -> None:
    assert read(make(tmp_path / "run")).reconstruction(cell, 0) is None


def test_rows_beyond_the_end_have_no_picture(tmp_path: Path) -> None:
    run = read(make(tmp_path / "run"))
    assert run.original(0) is not None
    assert run.original(10**6) is None
    assert run.reconstruction("aa", 10**6) is None


def test_reports_are_private_files(tmp_path: Path) -> None:
    paths = report(make(tmp_path / "run"))
    assert [p.name for p in paths] == ["report.html", "report.md", "junit.xml"]
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in paths)


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from leakgauge.report import report; "
        f"report(pathlib.Path({str(make(tmp_path / 'run'))!r})); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


VALUES = [None, -1, 1e308, 1e-320, "", "\ud800", [], {}, {"a": [{"b": None}]}, 10**30, float("nan"), "<b>|`\x00\x1b"]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of a JSON value, however deep."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*at, key)
        yield from places(value[key], (*at, key))


@pytest.mark.parametrize("seed", range(40))
def test_a_result_with_a_wrong_value_is_shown_or_refused(tmp_path: Path, seed: int) -> None:
    """Any one value replaced: a report in every format, or one clear error; never a traceback."""
    draw = random.Random(seed)
    folder = make(tmp_path / "run")
    whole = inner = json.loads((folder / "result.json").read_text())
    *way, last = draw.choice(list(places(whole)))
    for key in way:
        inner = inner[key]
    inner[last] = draw.choice(VALUES)
    (folder / "result.json").write_text(json.dumps(whole))
    try:
        paths = report(folder)
    except RunError as error:
        refused = str(error)
        assert "result.json" in refused
    else:
        assert all(path.read_text() for path in paths)
