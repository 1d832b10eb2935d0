"""What a redacted run says: nothing of a fault but its kind, scores to two digits; and nothing that moves a cursor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from leakgauge.audit import audit
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.claims import Claims
from leakgauge.audit.plan import plan
from leakgauge.audit.store import Store
from leakgauge.audit.work import Outcome, Work
from leakgauge.cli import app
from leakgauge.cli.terminal import printable
from leakgauge.data import load
from leakgauge.data.dataset import _turns
from leakgauge.report import report
from leakgauge.report.reading import read
from leakgauge.storage.keys import redaction_key
from leakgauge.storage.redaction import coarse, discreet
from leakgauge.study import Study
from leakgauge.study.roles import Roles
from leakgauge.types import Domain, Progress, Records

SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
data = "fashion_mnist_sample"
records = 8
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
linear = "analytic()"
"""
SECRET = "patient 4711 weighs 83.25"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "spec.toml").write_text(SPEC)
    return Study.load(tmp_path / "spec.toml")


def floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from floats(inner)


def texts(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_a_fault_does_not_tell_a_record(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Work.run

    def stumbling(work: Work, cell: Cell, progress: Progress | None = None) -> Outcome:
        if "gaussian" in repr(cell.defense):
            raise ValueError(SECRET)
        return real(work, cell, progress)

    monkeypatch.setattr(Work, "run", stumbling)
    open_, closed, shared = tmp_path / "open", tmp_path / "closed", tmp_path / "shared"
    audit(study, open_)
    report(open_)
    assert SECRET in (open_ / "junit.xml").read_text()
    report(open_, redact=True, out=shared)
    assert SECRET not in texts(shared)
    assert "ValueError (message left out" in (shared / "junit.xml").read_text()
    audit(study, closed, redact=True)
    report(closed, redact=True)
    assert SECRET not in texts(closed)
    audit(study, open_, redact=True)  # a run that was not redacted before
    report(open_, redact=True)
    assert SECRET not in texts(open_)


def test_redacted_scores_have_two_digits(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    audit(study, run)
    cells = {path: json.loads(path.read_text()) for path in run.glob("cells/*.json")}
    precise = [x for cell in cells.values() for x in floats(cell["scores"])]
    assert any(x != coarse(x) for x in precise)
    audit(study, run, redact=True)
    result = json.loads((run / "result.json").read_text())
    for defense in result["checkpoints"][0]["defenses"]:
        for key in ("records", "adversaries", "attack"):
            assert all(x == coarse(x) for x in floats(defense[key]))
    redacted = {path: json.loads(path.read_text()) for path in run.glob("cells/*.json")}
    assert all(x == coarse(x) for cell in redacted.values() for x in floats({**cell, "params": None}))
    fresh = tmp_path / "fresh"
    audit(study, fresh, redact=True)
    assert (fresh / "result.json").read_bytes() == (run / "result.json").read_bytes()
    audit(study, run)  # coarse scores do not serve a run that is not redacted
    assert {path: json.loads(path.read_text()) for path in run.glob("cells/*.json")} == cells


def test_numbers_and_faults() -> None:
    assert coarse({"a": [0.123456, 12.3456, 7, True], "b": "0.123456"}) == {"a": [0.12, 12.0, 7, True], "b": "0.123456"}
    assert coarse([0.31, 0.32]) == [0.31, 0.32]
    assert discreet("its worker process died twice (out of memory?)").startswith("its worker")
    assert discreet(f"a worker process cannot load the study (ValueError: {SECRET})").startswith("a fault (")
    once = discreet(f"ValueError: {SECRET}: {SECRET}")
    assert discreet(once) == once == "ValueError (message left out by --redact)"


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.replace("noisy =", '"\\u001b]0;evil\\u0007\\u009b2J" ='))
    run = str(tmp_path / "run")
    commands = (
        ["audit", str(spec), "--out", run],
        ["compare", run, run],
        ["check", str(spec)],
        ["preflight", str(spec)],
        ["price", run],
    )
    for command in commands:
        output = CliRunner().invoke(app, command).output
        assert "evil" in output or command[0] != "audit"
        assert not set("\x1b\x07\x9b") & set(output), command
    for name in ("junit.xml", "report.html", "report.md"):
        assert "\x1b" not in (Path(run) / name).read_text(), name
    assert printable("a\x1b[2J\u202eb\tc\nd\u00a0e") == "a\ufffd[2J\ufffdb\tc\nd\u00a0e"


def test_commands_print_through_one_function() -> None:
    import leakgauge.cli

    folder = Path(leakgauge.cli.__file__).parent
    users = [path.name for path in folder.glob("*.py") if "typer.echo(" in path.read_text()]
    assert users == ["terminal.py"]


def test_labels_do_not_follow_from_the_seed(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes take turns in an order that seed, size of the split and counts of the classes determine."""
    public = np.sort(load("fashion_mnist_sample").labels("test"))  # the counts, and nothing else of the records
    predicted = public[_turns(public, study.seed)[: len(study.records)]]
    numbered: list[list[int]] = []
    monkeypatch.setattr(Store, "keep", lambda store, inputs, labels: numbered.append(labels.tolist()))
    audit(study, tmp_path / "open")
    audit(study, tmp_path / "closed", redact=True)
    plain, private = numbered
    assert plain == predicted.tolist()  # the attack is as strong as it was: a plain run does not hide its labels
    assert sorted(private) == sorted(plain)
    assert sum(a == b for a, b in zip(private, predicted, strict=True)) < len(plain) // 2


def test_labels_do_not_follow_from_the_manifest(study: Study, tmp_path: Path) -> None:
    """A record that stands in for a reported one has its label; its place among the reference records tells which."""
    public = np.sort(load("fashion_mnist_sample").labels("train"))
    turns = public[_turns(public, study.seed)]

    def read_off(hashes: dict[str, list[str]]) -> list[int]:
        first = len(hashes["tuning"])
        return [int(turns[first + hashes["reference"].index(stand_in)]) for stand_in in hashes["another"]]

    plain = study.roles.manifest()["records"]
    assert read_off(plain) == study.records.labels.tolist()  # the attack works
    audit(study, tmp_path, redact=True)
    private = json.loads((tmp_path / "manifest.json").read_text())["records"]
    assert all(hashes == sorted(hashes) for hashes in private.values())
    assert set(private["another"]) <= set(private["reference"])  # what it is there to show
    assert not set(private["reported"]) & set(private["reference"])


def test_numbers_of_peers_do_not_tell_which_labels_are_equal(study: Study) -> None:
    few, private = len(study.records), study.in_private_order()
    plain, mixed = study.peers.labels[few:], private.peers.labels[few:]
    assert sorted(plain.tolist()) == sorted(mixed.tolist())
    assert int((plain.diff() != 0).sum()) == len(plain.unique()) - 1
    assert int((mixed.diff() != 0).sum()) > len(mixed) // 2


def test_cells_in_the_order_of_the_seed_do_not_outlive_redaction(study: Study, tmp_path: Path) -> None:
    audit(study, tmp_path)
    before = {path.name for path in tmp_path.glob("cells/*")}
    audit(study, tmp_path, redact=True)
    assert before
    assert not before & {path.name for path in tmp_path.glob("cells/*")}


def test_a_redacted_report_numbers_records_at_random(study: Study, tmp_path: Path) -> None:
    result = audit(study, tmp_path)
    numbers = [record.record for record in result.records["noisy"]]
    orders = {tuple(record.record for record in read(tmp_path, redact=True).result.records["noisy"]) for _ in range(5)}
    assert all(sorted(order) == sorted(numbers) for order in orders)
    assert len(orders) > 1
    assert {(r.cell, r.row) for r in read(tmp_path, redact=True).result.records["noisy"]} == {("", 0)}
    audit(study, tmp_path, redact=True)
    assert len({read(tmp_path, redact=True).result.text() for _ in range(3)}) == 1  # its own order is private


def test_batches_stay_together_in_private_order() -> None:
    x = torch.arange(12.0)[:, None]
    records = Records(x, torch.arange(12) % 3, Domain("table", (1,), 3))
    roles = Roles(records, replace(records, inputs=x + 100), *(records[:0],) * 4)
    private = roles.in_private_order(4)
    assert torch.equal(private.others.inputs, private.reported.inputs + 100)
    together = {frozenset(batch) for batch in private.reported.inputs.flatten().view(3, 4).tolist()}
    assert together == {frozenset(range(start, start + 4)) for start in (0, 4, 8)}
    again = replace(roles, reported=private.reported, others=private.others).in_private_order(4)
    assert len(again.reported) == 12


def test_names_of_cells_confirm_no_guess(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has every record can compute the names of a plain run's cells; those of a redacted one need a secret."""
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "mine"))
    guessed = {cell.id for cell in plan(study).cells} | {cell.id for cell in plan(study.in_private_order()).cells}
    audit(study, tmp_path / "run", redact=True)
    names = {path.stem for path in (tmp_path / "run").glob("cells/*.json")}
    assert names
    assert not any(name in texts(tmp_path / "run") for name in guessed)
    done: list[str] = []
    audit(study, tmp_path / "run", redact=True, report=lambda event: done.append(event.cell.id))
    assert not done  # the owner resumes
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "theirs"))
    theirs = {cell.id for cell in plan(study.in_private_order(), secret=redaction_key()).cells}
    assert not names & theirs


def test_a_secret_is_private_made_once_and_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "cache"))
    secret = redaction_key()
    (path,) = (tmp_path / "cache").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    assert redaction_key() == secret == path.read_text()
    path.write_text("cut")
    assert redaction_key() not in (secret, "cut", "")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "file" / "below"))
    assert redaction_key() != redaction_key()


def test_redacting_a_run_forgets_the_names_of_its_cells(study: Study, tmp_path: Path) -> None:
    """They are hashes over the records: whoever has a candidate computes them again, and sees."""
    run = tmp_path / "run"
    audit(study, run)
    plain = [path.stem for path in run.glob("cells/*.json")]
    assert all(name in (run / "timings.json").read_text() for name in plain)
    audit(study, run, redact=True)
    assert not any(name in texts(run) for name in plain)
    assert json.loads((run / "timings.json").read_text()).keys() == {path.stem for path in run.glob("cells/*.json")}


def test_reports_of_a_plain_run_do_not_outlive_a_redaction_that_is_killed(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    audit(study, run)
    report(run)
    assert "data:image" in (run / "report.html").read_text()

    def killed(*_: object, **__: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(Work, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        audit(study, run, redact=True)
    left = {path.name for path in run.iterdir()}
    assert not left & {"report.html", "report.md", "junit.xml", "result.json", "records.safetensors"}


def test_claims_of_a_shared_run_that_was_killed_do_not_outlive_redaction(study: Study, tmp_path: Path) -> None:
    run = tmp_path / "run"
    claims = Claims(run, 60.0)
    identity = plan(study).cells[0].id
    run.mkdir()
    assert claims.take(identity) is not None  # its holder is killed
    claims.fail(identity, f"ValueError: {SECRET}")
    audit(study, run, redact=True)
    assert SECRET not in texts(run)
    assert not [path for path in run.rglob("*") if identity in path.name]
