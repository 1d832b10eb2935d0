"""The benchmark runs, its engines compute the same, and it notices when they do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks import measure, peers
from benchmarks.cases import KINDS, MODELS, Case, Setting, every
from benchmarks.cli import main
from benchmarks.measure import Comparison, DisagreementError, agreement, flops
from benchmarks.memory import measured
from benchmarks.ours import Ours
from benchmarks.peers import LOSSES, Peer
from benchmarks.stamps import Cost, Stamps

LENET = MODELS["dlg_lenet"]


def few(kind: str = "cosine", problems: int = 3, shared: bool = False) -> Setting:
    return Setting.of(Case(replace(LENET, images=1), kind, problems, shared))


def test_quick_runs_on_the_smallest_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "speed.json"
    assert main(["--quick", "--models", "dlg_lenet", "--malloc", "default", "--json", str(written)]) == 0
    (row,) = json.loads(written.read_text())["cases"]
    assert row["problems"] == 100
    assert max(row["gap"].values()) <= 1e-4
    assert 0 < row["ratio"]["peer"]["cpu"]["low"] <= row["ratio"]["peer"]["cpu"]["median"]
    assert "dlg_lenet cosine" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
def test_our_objective_is_the_peers(kind: str, shared: bool) -> None:
    assert max(agreement(few(kind, shared=shared))) <= 1e-4


def test_in_train_mode_batches_with_a_batch_norm_prior_agree() -> None:
    setting = Setting.of(Case(replace(MODELS["norm_convnet"], shape=(1, 8, 8), batch=3), "cosine", 2))
    before = {name: value.clone() for name, value in setting.net.state_dict().items()}
    assert max(agreement(setting)) <= 1e-4
    for name, value in setting.net.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_search_of_codes_agrees() -> None:
    setting = Setting.of(Case(replace(MODELS["generator"], images=1), "cosine", 2))
    assert max(agreement(setting)) <= 1e-4
    Peer(setting, only_image=False).run(1, Stamps())


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_with_another_objective_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = LOSSES[kind]

    def wrong(observed: Sequence[Tensor], mask: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], Tensor]:
        return right([1.001 * o + 1e-3 for o in observed], mask)

    monkeypatch.setitem(LOSSES, kind, wrong)
    with pytest.raises(DisagreementError, match=kind):
        agreement(few(kind))


def test_a_gradient_that_is_not_a_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    start, objective, gradient = measure.at_start(few())
    monkeypatch.setattr(measure, "at_start", lambda _: (start, objective, torch.full_like(gradient, torch.nan)))
    with pytest.raises(DisagreementError):
        agreement(few())


def test_disagreement_ends_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(peers, "TV", 0.0)
    monkeypatch.setattr(measure, "TOLERANCE", 1e-9)
    assert main(["--quick", "--models", "dlg_lenet", "--malloc", "default"]) == 1
    assert "differ at the start" in capsys.readouterr().out


def test_both_loops_walk_the_same_way() -> None:
    setting, start = few(), torch.rand(1, *LENET.shape)
    ends = [Peer(setting, only).attack(0, start, 3, Stamps()) for only in (False, True)]
    torch.testing.assert_close(ends[0], ends[1])
    assert not torch.equal(ends[0], start)
    assert all(p.grad is None for p in setting.net.parameters())


def test_flops_of_the_loop_are_those_of_its_layers() -> None:
    setting = few()
    forward = 2 * sum((196 * 25, 49 * 300, 49 * 300)) * 12 + 2 * 5880
    # forward, backward to the weights and to the inputs, and both again the other way round
    assert 6 * forward < flops(Peer(setting, False), setting.case) < 10 * forward
    assert flops(Ours(setting), setting.case) < flops(Peer(setting, True), setting.case) + forward


def test_the_first_iterations_of_a_run_do_not_count() -> None:
    stamps = Stamps([[(10.0, 10.0), (11.0, 12.0), (12.0, 14.0)], [(50.0, 50.0), (53.0, 50.5)]])
    assert stamps.cost() == Cost(5 / 3, 1.5)
    assert stamps.cost(images=2) == Cost(5 / 6, 0.75)


def test_ratios_are_between_neighbours_in_time() -> None:
    made = Comparison(every()[0], (0.0, 0.0))
    made.costs["ours"] = [Cost(1.0, 1.0), Cost(10.0, 1.0), Cost(2.0, 1.0)]
    made.costs["peer"] = [Cost(4.0, 1.0), Cost(30.0, 1.0), Cost(10.0, 1.0)]
    assert vars(made.ratio()) == {"median": 4.0, "low": 3.0, "high": 5.0}


def test_memory_is_that_of_the_engine_and_not_of_whoever_asks() -> None:
    ballast = torch.ones(2**28)  # a gigabyte, which must not be counted
    found = measured(every(("dlg_lenet",))[0], "ours", "default")
    assert found.observed == pytest.approx(100 * 13_426 * 4 / 2**20)
    assert 100 < found.peak < 4 * len(ballast) / 2**20
