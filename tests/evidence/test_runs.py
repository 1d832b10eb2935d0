"""Running: what is stored, what is skipped, what fails; with fake checks in a temporary project."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from evidence import Check, Context, Measurement, Number
from evidence.cli import main
from evidence.rows import Row
from evidence.sources import Sources
from evidence.state import fingerprint
from evidence.store import Store
from tests.evidence.fakes import CALLS, FAKES, ROWS

ALL = {name: FAKES[name] for row in ROWS for name in row.checks}
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    for place in ("src/leakgauge/__init__.py", "src/leakgauge/a.py", "src/leakgauge/b.py", "tests/evidence/fakes.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("x = 1\n")
    CALLS.clear()

    def call(*arguments: str, rows: list[Row] = ROWS, checks: dict[str, Check] = ALL, isolate: bool = False):
        out = io.StringIO()
        code = main(arguments, root=tmp_path, rows=rows, checks=checks, isolate=isolate, console=Console(file=out))
        return code, out.getvalue()

    return call


def stored(root: Path, name: str) -> dict[str, object]:
    return json.loads((root / "docs" / "evidence" / f"{name}.json").read_text())


def test_every_check_runs_and_is_stored(run: Run, tmp_path: Path) -> None:
    code, out = run()
    assert code == 1
    assert CALLS == ["fake_good", "fake_bad", "fake_crash", "fake_many"]  # a crash does not stop the others
    assert "[1/4] fake_good: pass: dB: 28.41 [27.9, 28.92] (≥ 25: yes)" in out
    assert "[2/4] fake_bad: MISSES A BAR: low: 0.076 (≥ 0.5: **no**); high: 0.9 (≥ 0.5: yes)" in out
    good = stored(tmp_path, "fake_good")
    bar = {"comparison": ">=", "limit": 25, "tolerance": 0.0}
    assert good["numbers"] == {"dB": {"value": 28.412, "bar": bar, "interval": [27.9, 28.92]}}
    assert (good["row"], good["bar"]) == ("first", "at least 1 | or so")
    assert good["fingerprint"] == fingerprint(FAKES["fake_good"], Sources(tmp_path)).digest
    assert good["command"] == "python -m evidence --only fake_good"
    assert good["about"] == "Counts its calls."
    assert set(good["machine"]) == {"cores", "cpu", "torch", "python"}
    assert good["seconds"] >= 0
    assert good["date"].endswith("+00:00")
    assert good["error"] is None
    many = stored(tmp_path, "fake_many")["numbers"]
    assert {name: number["value"] for name, number in many.items()} == {"a": 1.5, "b": "inf", "c": "none"}


def test_a_crash_is_a_failed_result_without_paths_of_this_machine(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out = run("--only", "fake_crash")
    assert code == 1
    assert "Traceback" in out
    crash = stored(tmp_path, "fake_crash")
    assert crash["numbers"] is None
    assert crash["error"] == "RuntimeError: cannot read ./secret/file.txt"


def test_all_pass(run: Run) -> None:
    assert run("--only", "fake_good", "fake_many")[0] == 0


def test_a_second_run_skips_what_is_current(run: Run, tmp_path: Path) -> None:
    run()
    CALLS.clear()
    code, out = run()
    assert CALLS == ["fake_crash"]  # crashes are tried again, failures are not: they are measurements
    assert code == 1
    assert "fake_good: stored, pass: dB: 28.41" in out
    assert "fake_bad: stored, MISSES A BAR" in out
    CALLS.clear()
    run("--fresh", "--only", "fake_good")
    assert CALLS == ["fake_good"]


def test_a_changed_module_makes_the_results_old_that_depend_on_it(run: Run, tmp_path: Path) -> None:
    run()
    CALLS.clear()
    (tmp_path / "src" / "leakgauge" / "a.py").write_text("x = 2\n")
    assert run("--changed")[0] == 1
    assert sorted(CALLS) == ["fake_crash", "fake_good"]  # only fake_good uses leakgauge.a; crashes are tried again
    run("--changed", "--only", "fake_good")
    assert sorted(CALLS) == ["fake_crash", "fake_good"]
    (tmp_path / "tests" / "evidence" / "fakes.py").write_text("x = 2\n")  # where the checks are
    CALLS.clear()
    run()
    assert CALLS == ["fake_good", "fake_bad", "fake_crash", "fake_many"]


def test_comments_and_other_modules_make_nothing_old(run: Run, tmp_path: Path) -> None:
    run()
    (tmp_path / "src" / "leakgauge" / "a.py").write_text("# a comment\nx = 1\n")
    (tmp_path / "src" / "leakgauge" / "b.py").write_text("x = 2\n")
    CALLS.clear()
    run("--changed")
    assert CALLS == ["fake_crash"]


def test_what_is_old_is_listed_with_its_cost_the_quickest_first(run: Run, tmp_path: Path) -> None:
    run("--only", "fake_good", "fake_bad")
    assert "2 of 4 have no result of the code as it is; they take 25 min" in run("--stale")[1]
    (tmp_path / "src" / "leakgauge" / "a.py").write_text("x = 2\n")
    CALLS.clear()
    code, out = run("--stale")
    assert (code, CALLS) == (0, [])
    assert "3 of 4 have no result" in out
    assert "fake_bad" not in out
    assert out.index("fake_good") < out.index("fake_crash") < out.index("fake_many")
    assert "older than" in out
    run("--changed")
    assert CALLS == ["fake_good", "fake_crash", "fake_many"]


def test_other_files_do_not(run: Run, tmp_path: Path) -> None:
    run("--only", "fake_good")
    (tmp_path / "src" / "leakgauge" / "notes.md").write_text("hello")
    (tmp_path / "README.md").write_text("hello")
    CALLS.clear()
    run("--only", "fake_good")
    assert CALLS == []


def test_what_is_old_takes_one_line_of_a_narrow_terminal_each(run: Run) -> None:
    longest = "a_name_as_long_as_the_longest"
    rows, checks = [replace(ROWS[2], checks=(longest,))], {longest: replace(FAKES["fake_many"], name=longest)}
    out = run("--stale", rows=rows, checks=checks)[1]
    (line,) = [line for line in out.splitlines() if longest in line]
    assert "25 min" in line
    assert "not measured yet" in line


def test_a_changed_bar_makes_its_result_stale(run: Run, tmp_path: Path) -> None:
    run()
    CALLS.clear()
    higher = [replace(ROWS[0], bar="at least 2"), *ROWS[1:]]
    run("--page", rows=higher)
    assert "28.41" not in (tmp_path / "docs" / "evidence.md").read_text()
    run("--only", "fake_good", rows=higher)
    assert CALLS == ["fake_good"]


def test_sources_edited_during_a_check(run: Run, tmp_path: Path) -> None:
    def edits() -> Measurement:
        (tmp_path / "src" / "leakgauge" / "a.py").write_text("x = 2\n")
        return Measurement({"a": Number(1.0)})

    checks = {**ALL, "fake_good": replace(FAKES["fake_good"], function=edits)}
    run("--only", "fake_good", checks=checks)
    assert stored(tmp_path, "fake_good")["fingerprint"] == "changed while running"
    assert stored(tmp_path, "fake_good")["dirty"] is True
    run("--only", "fake_good")
    assert CALLS == ["fake_good"]


def test_an_interrupt_keeps_what_is_finished(run: Run, tmp_path: Path) -> None:
    def interrupted() -> Measurement:
        raise KeyboardInterrupt

    checks = {**ALL, "fake_bad": replace(FAKES["fake_bad"], function=interrupted)}
    code, out = run(checks=checks)
    assert code == 130
    assert "the same command continues" in out
    assert stored(tmp_path, "fake_good")["error"] is None
    assert not (tmp_path / "docs" / "evidence" / "fake_bad.json").exists()
    CALLS.clear()
    run()
    assert CALLS == ["fake_bad", "fake_crash", "fake_many"]


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    store = Store(tmp_path)
    store.write("a", {"value": 1})

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evidence.store.os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        store.write("a", {"value": 2})
    assert store.read("a") == {"value": 1}


def test_an_unreadable_result_counts_as_none(run: Run, tmp_path: Path) -> None:
    run("--only", "fake_good")
    (tmp_path / "docs" / "evidence" / "fake_good.json").write_text('{"value": 28')
    CALLS.clear()
    run("--only", "fake_good")
    assert CALLS == ["fake_good"]


def test_scratch_survives_a_run_and_dies_with_the_sources(run: Run, tmp_path: Path) -> None:
    def parts() -> list[str]:
        digest = fingerprint(FAKES["fake_good"], Sources(tmp_path)).digest
        return sorted(p.name for p in Store(tmp_path).scratch("fake_good", digest).glob("*"))

    run("--only", "fake_good")
    (tmp_path / "docs" / "evidence" / "fake_good.json").unlink()
    run("--only", "fake_good")
    assert parts() == ["part0", "part1"]
    run("--only", "fake_good", "--fresh")
    assert parts() == ["part0"]
    (tmp_path / "src" / "leakgauge" / "a.py").write_text("x = 3\n")
    assert parts() == []


def test_what_a_check_ran_is_stored_unless_it_went_on_from_earlier_work(run: Run, tmp_path: Path) -> None:
    run("--only", "fake_many", "fake_good", isolate=True)
    assert "fake_many" in stored(tmp_path, "fake_many")["ran"]["tests.evidence.fakes"].split()
    assert stored(tmp_path, "fake_many")["executed"]
    assert "ran" not in stored(tmp_path, "fake_good")  # it uses a module that it does not import
    scratch = Store(tmp_path).scratch("fake_many", fingerprint(FAKES["fake_many"], Sources(tmp_path)).digest)
    (scratch / "part").touch()
    run("--only", "fake_many", "fake_good", isolate=True)
    assert "ran" in stored(tmp_path, "fake_many")  # it is current, and was not measured again
    (tmp_path / "docs" / "evidence" / "fake_many.json").unlink()
    run("--only", "fake_many", isolate=True)
    assert "ran" not in stored(tmp_path, "fake_many")


def test_only_and_topic_select(run: Run) -> None:
    run("--topic", "speed")
    assert CALLS == ["fake_many"]
    code, out = run("--only", "fake_god")
    assert code == 2
    assert "'fake_god'" in out
    assert CALLS == ["fake_many"]


def test_list_runs_nothing(run: Run) -> None:
    code, out = run("--list")
    assert (code, CALLS) == (0, [])
    assert all(name in out for name in ALL)
    assert all(row.row in out for row in ROWS)
    assert "not" in out
    assert "4 of 4 have no result" in out


def test_nothing_runs_while_rows_and_checks_disagree(run: Run) -> None:
    short = {name: check for name, check in ALL.items() if name != "fake_many"}
    code, out = run(checks=short)
    assert (code, CALLS) == (2, [])
    assert "row 'third' lists the check 'fake_many', which is not registered" in out
    code, out = run(rows=ROWS[:2])
    assert (code, CALLS) == (2, [])
    assert "check 'fake_many' belongs to the row 'third', which rows.toml does not have" in out
    # whoever writes one check may run it meanwhile, and still sees the gaps
    code, out = run("--only", "fake_good", checks=short)
    assert (code, CALLS) == (0, ["fake_good"])
    assert "inconsistent" in out


def test_a_check_that_returns_no_measurement_fails(run: Run, tmp_path: Path) -> None:
    checks = {**ALL, "fake_good": replace(FAKES["fake_good"], function=lambda: 3.0)}
    assert run("--only", "fake_good", checks=checks)[0] == 1
    assert "returned float" in stored(tmp_path, "fake_good")["error"]


def test_each_check_has_its_own_process(run: Run, tmp_path: Path) -> None:
    rows = [*ROWS[:2], replace(ROWS[2], checks=("fake_many", "fake_killed"))]
    code, _ = run("--only", "fake_good", "fake_killed", rows=rows, checks=FAKES, isolate=True)
    assert code == 1
    assert CALLS == []  # not in this process
    assert stored(tmp_path, "fake_good")["error"] is None
    killed = stored(tmp_path, "fake_killed")
    assert killed["numbers"] is None
    assert "killed by SIGKILL" in killed["error"]


def test_commit_and_dirty(tmp_path: Path) -> None:
    store = Store(tmp_path)
    source = tmp_path / "evidence" / "a.py"
    assert store.commit([source]) == ("unknown", True)

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    source.parent.mkdir()
    source.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    assert store.commit([source]) == (git("rev-parse", "--short", "HEAD"), False)
    store.write("some_result", {"value": 1})
    assert store.commit([source])[1] is False  # only the files that a check depends on count
    source.write_text("x = 2\n")
    assert store.commit([source])[1] is True
    assert store.commit([])[1] is False


def test_a_context_is_given_to_those_who_ask(tmp_path: Path) -> None:
    said: list[str] = []

    def asks(context: Context) -> Measurement:
        context.say("half")
        return Measurement({"a": Number(1.0)})

    Check("x", "y", "fast", asks).measure(Context(said.append, tmp_path))
    assert said == ["half"]
