"""The standings: fixed rows with intervals and commands, resumable, and a row of one's own by one command."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from leakgauge.attacks.standard import Standard
from leakgauge.audit.store import Store
from leakgauge.cli import app
from leakgauge.cli.listing import parts
from leakgauge.errors import DomainError
from leakgauge.standings import Row, beside, clients, gathered, measured, page, planned, published, run
from leakgauge.standings.page import summary
from leakgauge.standings.rows import Score
from leakgauge.standings.set_ups import CLIENTS, SIZES

QUICK, FULL = SIZES["quick"], SIZES["full"]
OWN = """\
from dataclasses import dataclass

from leakgauge.defenses import Release, UpdatePart


@dataclass(frozen=True)
class Halve(UpdatePart):
    share: float = 0.5

    def release(self, update, context, *, generator):
        return Release({name: self.share * value for name, value in update.items()})
"""


def quick(defense: str = "identity()", attack: str = "adaptive(steps=20)") -> Row:
    return Row(clients(QUICK)[0], QUICK, defense, attack)


@pytest.fixture
def own_defense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "halving.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "halving:Halve()"
    sys.modules.pop("halving", None)


def test_every_defense_and_every_attack_of_the_box_has_a_row() -> None:
    rows = planned(FULL, clients(FULL))
    kinds = parts()
    texts = " ".join(f"{defense} {attack}" for _, defense, attack in rows)
    composed = {"staged", "best_of", "raced"}  # they combine other attacks
    trained = {"gias", "ggl"}  # they need a generator, which no standing bundles
    wanted = {*kinds["defense"], *kinds["attack"]} - composed - trained
    assert {name for name in wanted if not re.search(rf"\b{name}\(", texts)} == set()
    assert {client.batch for client in CLIENTS} >= {1, 4}
    assert any(client.trained for client in CLIENTS)


def test_every_row_can_be_read_and_its_command_names_it() -> None:
    rows = [Row(client, FULL, defense, attack) for client, defense, attack in planned(FULL, clients(FULL))]
    assert len({row.identity for row in rows}) == len(rows)
    ran = CliRunner().invoke(app, ["standings", "--list", "--client", "cnn", "--attack", "adaptive(steps=1000)"])
    assert ran.exit_code == 0
    assert ran.output.splitlines()[0] == (
        'leakgauge standings --client cnn --defense "identity()" --attack "adaptive(steps=1000)"'
    )


def test_a_row_has_an_interval_and_is_not_measured_twice(tmp_path: Path) -> None:
    rows = [quick(), quick("prune(p=0.9)", "inverting_gradients(steps=20)")]
    scores = run(rows, tmp_path)
    assert scores[0].interval.mean > 0.99  # a batch through a first linear layer is taken apart exactly
    assert scores[0].recognised == QUICK.updates * 4
    assert scores[1].interval.low < scores[1].interval.mean < scores[1].interval.high
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    again = run(rows, tmp_path)
    assert again == scores
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == before
    text = page(scores)
    for score in scores:
        assert score.row.command.partition(" --")[0] in text
        assert f"[{score.interval.low:.3f}, {score.interval.high:.3f}]" in text


def test_an_attack_that_does_not_apply_says_why(tmp_path: Path) -> None:
    score = measured(quick("gaussian(std=0.01)", "drop_layer(layer='nowhere')"), Store(tmp_path))
    assert score.fault is not None
    assert "nowhere" in score.fault
    assert "Does not apply" in page([score])


def test_a_defense_of_another_package_gets_its_row_by_one_command(own_defense: str, tmp_path: Path) -> None:
    command = ["standings", "--quick", "--defense", own_defense, "--attack", "inverting_gradients(steps=20)"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "--own-code" in refused.output
    ran = CliRunner().invoke(app, [*command, "--own-code"])
    assert ran.exit_code == 0, ran.output
    (row,) = json.loads((tmp_path / "standings-quick" / "standings.json").read_text())["rows"]
    assert row["defense"] == own_defense
    assert row["fault"] is None
    assert row["command"].endswith("--quick --own-code")
    again = CliRunner().invoke(app, [*command[:2], "--defense", "identity()", *command[4:]])  # without --own-code
    assert again.exit_code == 0, again.output
    text = (tmp_path / "standings-quick" / "standings.md").read_text()
    assert own_defense not in text
    assert "Left out: rows that name somebody's own code (1)" in text
    assert "--own-code adds them" in again.output
    other = CliRunner().invoke(app, ["standings", "--quick", "--attack", "analytic()", "--own-code"])
    assert f"this imports your code: {own_defense[:-2]}" in other.output  # a row of the folder names it
    beside = gathered("standings-quick", QUICK, own_code=True)
    assert {score.row.defense for score in beside} >= {"identity()", own_defense}
    text = page(beside)
    assert all(score.row.command.replace("|", "&#124;") in text for score in beside)


def test_a_changed_source_of_ones_own_part_is_another_row(own_defense: str, tmp_path: Path) -> None:
    before = quick(own_defense).identity
    assert quick(own_defense).identity == before
    (tmp_path / "halving.py").write_text(OWN.replace("0.5", "0.25"))
    assert quick(own_defense).identity != before


def test_an_attack_that_breaks_is_no_result_and_the_other_rows_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    kind: str = "a"

    def __call__(self, task, observations, *, seed=0, progress=None):
        raise ValueError("out of luck")
"""
    (tmp_path / "breaking.py").write_text(broken)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [quick(attack='breaking:Broken(kind="b")'), quick(attack="analytic()")]
    failed, score = run(rows, tmp_path / "out")
    assert (failed.failed, score.failed) == (True, False)
    assert "out of luck" in (failed.fault or "")
    assert [one.row for one in gathered(tmp_path / "out", QUICK, own_code=True)] == rows[1:]
    command = ["standings", "--quick", "--out", str(tmp_path / "out"), "--own-code", "--defense", "identity()"]
    ran = CliRunner().invoke(app, [*command, "--attack", rows[0].attack, "--attack", "analytic()"])
    assert ran.exit_code == 1
    (row,) = json.loads((tmp_path / "out" / "standings.json").read_text())["rows"]
    assert row["attack"] == "analytic()"


def test_a_defense_that_breaks_is_no_result(own_defense: str, tmp_path: Path) -> None:
    (tmp_path / "halving.py").write_text(OWN.replace("return Release", "raise KeyError('layer'); return Release"))
    command = ["standings", "--quick", "--defense", own_defense, "--attack", "analytic()", "--own-code"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 1, ran.output
    assert "failed (halving:Halve(): its release raises KeyError: 'layer'" in ran.output.replace("\n", " ")
    assert gathered(tmp_path / "standings-quick", QUICK, own_code=True) == []


def test_a_defense_that_says_why_it_does_not_apply_is_a_result(own_defense: str, tmp_path: Path) -> None:
    refusing = 'raise LeakgaugeError("it needs\\na layer"); return Release'
    text = f"from leakgauge.errors import LeakgaugeError\n{OWN.replace('return Release', refusing)}"
    (tmp_path / "halving.py").write_text(text)
    score = measured(quick(own_defense, "analytic()"), Store(tmp_path / "out"))
    assert (score.failed, "it needs" in (score.fault or "")) == (False, True)


@pytest.mark.parametrize("attack", ["standard(work='quick')", 'standard(work="quick")', "mine:A(text='$HOME `x` \"')"])
def test_a_shell_reads_the_command_of_a_row_as_it_is_meant(attack: str) -> None:
    words = shlex.split(quick(attack=attack).command)
    assert words[words.index("--attack") + 1] == attack


def test_rows_say_the_versions_of_their_parts_and_the_page_that_of_standard(tmp_path: Path) -> None:
    (score,) = run([quick(attack="analytic()")], tmp_path)
    assert score.as_json()["versions"] == score.row.versions
    assert any(version.startswith("Analytic@") for version in score.row.versions)
    assert f"version {Standard.version}" in page([score])


def test_attacks_that_met_every_defense_are_ranked_and_special_ones_are_not(tmp_path: Path) -> None:
    met = [
        quick(d, f"{a}(steps=20)") for d in ("identity()", "prune(p=0.9)") for a in ("adaptive", "inverting_gradients")
    ]
    special = quick(attack="analytic()")
    scores = run([*met, special], tmp_path)
    means = {
        name: sum(s.interval.mean for s in scores if s.row.attack == name) / 2 for name in {row.attack for row in met}
    }
    _, ranking = page(scores).split("## Attacks that meet every defense")
    ranked = re.findall(r"^\| <code>(.+?)</code> \| (\S+) \|", ranking.partition("\n## ")[0], re.MULTILINE)
    assert ranked == sorted(((name, f"{mean:.3f}") for name, mean in means.items()), key=lambda one: -means[one[0]])
    assert "## Attacks that meet every defense" not in page([s for s in scores if s.row == special])


def test_an_interval_ends_where_a_score_does() -> None:
    between = Score(quick(), ssim=(0.2, *[1.0] * 9)).interval
    assert between.low < between.mean < between.high == 1.0


def test_a_row_of_a_client_that_is_gone_is_left_out(tmp_path: Path) -> None:
    run([quick(attack="analytic()")], tmp_path)
    store = Store(tmp_path)
    (score,) = gathered(tmp_path, QUICK)
    store.commit("0" * 24, {"kind": "row", **score.as_json(), "client": "of-another-version"}, {})
    assert gathered(tmp_path, QUICK) == [score]


def test_unknown_clients_and_parts_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=r"no client 'lenett'.*and.*no client 'cnnn'"):
        clients(FULL, ["lenett", "cnnn", "lenett"])
    ran = CliRunner().invoke(app, ["standings", "--quick", "--defense", "sing()", "--out", str(tmp_path / "x")])
    assert ran.exit_code == 2
    assert "sign" in ran.output
    assert not (tmp_path / "x").exists()


def test_everything_that_is_wrong_with_rows_is_said_at_once() -> None:
    command = ["standings", "--quick", "--defense", "sing()", "--attack", "adaptive(step=3)", "--attack", "analitic()"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 2
    for word in ("'sing'", "'step'", "'analitic'"):
        assert ran.output.count(f"{word} in ") == 1, ran.output


def test_a_row_that_is_asked_for_twice_is_measured_once() -> None:
    twice = planned(QUICK, clients(QUICK, ["mlp", "mlp"]), ["sign()", "sign()"], ["analytic()", "analytic()"])
    assert [(client.name, *others) for client, *others in twice] == [("mlp", "sign()", "analytic()")]


def test_rows_need_at_least_one_worker(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="workers must be an integer ≥ 1, got 0"):
        run([quick()], tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_quick_standings_are_measured_by_two_workers(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["standings", "--quick", "--workers", "2", "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    rows = json.loads((tmp_path / "out" / "standings.json").read_text())["rows"]
    assert len(rows) == len(planned(QUICK, clients(QUICK)))


def test_published_rows_stand_beside_ones_own(tmp_path: Path) -> None:
    elsewhere, here = quick(attack="analytic()"), quick("prune(p=0.9)", "inverting_gradients(steps=20)")
    file = tmp_path / "published.json"
    others = run([elsewhere, here], tmp_path / "elsewhere")
    file.write_text(summary(others))
    assert published(QUICK, file) == [replace(score, seconds=0.0) for score in others]  # the time is not published
    assert published(FULL, file) == []
    own = run([here], tmp_path / "here")
    every = beside(own, QUICK, file)
    assert [(score.row, score.published) for score in every] == [(elsewhere, True), (here, False)]
    marked = [line for line in page(every).splitlines() if line.startswith("|") and "†" in line]
    assert len(marked) == 1
    assert "analytic()" in marked[0]


def test_published_rows_of_another_version_of_a_part_are_left_out(tmp_path: Path) -> None:
    raw = json.loads(summary(run([quick()], tmp_path / "elsewhere")))
    raw["rows"][0]["identity"] = "0" * 24
    file = tmp_path / "published.json"
    file.write_text(json.dumps(raw))
    assert published(QUICK, file) == []
    assert published(QUICK, tmp_path / "absent.json") == []


def test_an_exact_copy_does_not_outweigh_the_other_records(tmp_path: Path) -> None:
    (score,) = run([quick(attack="analytic()")], tmp_path)
    exact = replace(score, psnr=(2000.0, *[20.0] * (len(score.psnr) - 1)))
    mean = (100.0 + 20.0 * (len(score.psnr) - 1)) / len(score.psnr)
    assert f"| {mean:.1f} dB |" in page([exact])
