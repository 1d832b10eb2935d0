"""The plan and its cells: training, tuning and ablation as parents and variants, and records that never mix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.audit import audit
from leakgauge.audit.cells import AttackCell, TuneCell
from leakgauge.audit.estimate import _crossing, estimate
from leakgauge.audit.plan import plan
from leakgauge.study import Draft, Study, of
from leakgauge.study.roles import digest

BASE: dict[str, Any] = {
    "leave_out": ["adaptive"],
    "task": {"model": "mlp(width=8, depth=1)", "records": 7},
    "defenses": {"none": "identity()", "noisy": "gaussian(std=0.001)"},
    "adversaries": {"a": "inverting_gradients(steps=3)"},
}


def draft(folder: Path, **changes: Any) -> Draft:
    return Draft.of(of({**BASE, **changes}), folder / "spec.toml")


def study(folder: Path, **changes: Any) -> Study:
    return draft(folder, **changes).study()


def test_reported_records_stand_in_no_other_role(tmp_path: Path) -> None:
    tuned = study(tmp_path, adversaries={"a": ["dlg(steps=2)", "dlg(steps=3)"]})
    for hashes in (tuned.roles.manifest()["records"], tuned.roles.manifest("salt")["records"]):
        assert len(hashes["reported"]) == 7
        assert len(hashes["tuning"]) == 8
        for role in ("tuning", "another", "reference"):
            assert not set(hashes["reported"]) & set(hashes[role])
        assert not set(hashes["tuning"]) & set(hashes["another"])
    assert not set(hashes["reported"]) & set(tuned.roles.manifest()["records"]["reported"])  # no guess is confirmed
    assert list(tuned.roles.manifest("salt")) == ["records"]
    assert tuned.others.labels.tolist() == tuned.records.labels.tolist()  # labels are granted


def test_the_guess_is_the_mean_of_the_class_only_where_labels_are_granted(tmp_path: Path) -> None:
    known, unknown = (study(tmp_path, threat={"labels": how}) for how in ("known", "inferred"))
    label = int(known.records.labels[0])
    own = known.reference.inputs[known.reference.labels == label].mean(0)
    torch.testing.assert_close(known.guess()[0], own)
    torch.testing.assert_close(unknown.guess()[0], unknown.reference.inputs.mean(0))


def test_identities_change_with_what_a_cell_depends_on_and_with_nothing_else(tmp_path: Path) -> None:
    def ids(**changes: Any) -> set[str]:
        return {cell.id for cell in plan(study(tmp_path, **changes)).cells}

    base = ids()
    assert ids(verdict={"significance": 0.04}) == base
    assert ids(defenses={"other name": "identity()", "noisy": "gaussian(std=0.001)"}) == base
    for changes in ({"seed": 1}, {"threat": {"labels": "inferred"}}, {"task": {**BASE["task"], "records": 8}}):
        assert not ids(**changes) & base
    assert len(ids(defenses={"noisy": "gaussian(std=0.002)"}) & base) == 3  # the control stays


def test_checkpoints_come_from_a_training_and_know_their_accuracy(tmp_path: Path) -> None:
    loud = {"none": "identity()", "noisy": "gaussian(std=1.0)"}
    task = {**BASE["task"], "records": 8}
    trained = study(tmp_path, task=task, checkpoints={"train_steps": [0, 30], "defended": True}, defenses=loud)
    made = audit(trained, tmp_path / "run").as_json()
    first, last = made["checkpoints"]
    assert [first["step"], last["step"]] == [0, 30]
    assert last["accuracy"] > first["accuracy"] + 0.1
    none, noisy = last["defenses"]
    assert none["accuracy"] > noisy["accuracy"] + 0.05  # each was trained with its own defense
    kinds = [cell["kind"] for cell in json.loads((tmp_path / "run" / "plan.json").read_text())]
    assert kinds.count("train") == 2
    assert not made["faults"]


def test_several_seeds_are_trained_and_the_first_is_attacked(tmp_path: Path) -> None:
    def made(seeds: int) -> Any:
        trained = study(tmp_path, checkpoints={"train_steps": [20], "defended": True, "seeds": seeds})
        return audit(trained, tmp_path / f"run{seeds}").as_json()["checkpoints"][0]["defenses"]

    for one, three in zip(made(1), made(3), strict=True):
        assert len(three["accuracies"]) == 3
        assert one["accuracies"] == three["accuracies"][:1] == [three["accuracy"]]
        assert len(set(three["accuracies"])) > 1
        assert one["records"] == three["records"]
    plans = [json.loads((tmp_path / run / "plan.json").read_text()) for run in ("run1", "run3")]
    assert [sum(cell["kind"] == "train" for cell in cells) for cells in plans] == [2, 6]
    assert {cell["id"] for cell in plans[0]} <= {cell["id"] for cell in plans[1]}
    timings = json.loads((tmp_path / "run3" / "timings.json").read_text())
    assert set(timings) == {cell["id"] for cell in plans[1]}


def test_the_best_setting_on_other_records_attacks(tmp_path: Path) -> None:
    settings = ["inverting_gradients(steps=1)", "inverting_gradients(steps=60)"]
    made = audit(study(tmp_path, adversaries={"a": settings}), tmp_path / "run").as_json()
    chosen = made["checkpoints"][0]["defenses"][0]["adversaries"][0]
    assert "steps=60" in chosen["expression"]
    tuned, chose = chosen["tuned"]
    assert "2 settings were tried on 8 other updates" in tuned
    assert "steps=60" in chose
    assert ("a against none", tuned) in [(line["number"], line["assumes"]) for line in made["ledger"]]


def test_ablation_shows_what_a_grant_was_worth(tmp_path: Path) -> None:
    made = audit(study(tmp_path), tmp_path / "run", ablate=True).as_json()
    worth = made["checkpoints"][0]["defenses"][0]["ablation"]
    assert [w["grant"] for w in worth] == ["labels"]
    assert worth[0]["low"] <= worth[0]["mean"] <= worth[0]["high"]


def test_whoever_lacks_a_grant_lacks_it_while_choosing(tmp_path: Path) -> None:
    settings = ["inverting_gradients(steps=1)", "inverting_gradients(steps=2)"]
    cells = plan(study(tmp_path, adversaries={"a": settings}), ablate=True).cells
    tunings = {cell.id: cell for cell in cells if isinstance(cell, TuneCell)}
    attacks = [cell for cell in cells if isinstance(cell, AttackCell)]
    assert {cell.without for cell in attacks} == {None, "labels"}
    assert all(tunings[cell.parents[-1]].threat == cell.threat for cell in attacks)


def test_a_hidden_learning_rate_is_hidden(tmp_path: Path) -> None:
    """A scale-free adversary reaches the same without it; the update it sees does depend on it."""
    task = {**BASE["task"], "recipe": {"shares": "change", "learning_rate": 0.03}}
    runs = [
        audit(study(tmp_path, task=task, threat={"learning_rate": how}), tmp_path / how) for how in ("known", "unknown")
    ]
    scores = [list(next(iter(r.defenses.values())).adversaries[0].scores["real"]["ssim"]) for r in runs]
    assert scores[0] == pytest.approx(scores[1], abs=0.05)


def test_a_redacted_run_keeps_no_picture_and_no_label(tmp_path: Path) -> None:
    made = audit(study(tmp_path, checkpoints={"train_steps": [2]}), tmp_path / "run", redact=True).as_json()
    assert {r["label"] for r in made["checkpoints"][0]["defenses"][0]["records"]} == {None}
    kept = [json.loads(p.with_suffix(".json").read_text())["kind"] for p in (tmp_path / "run").rglob("*.safetensors")]
    assert kept == ["train"]


def test_redacting_a_run_takes_its_pictures_away(tmp_path: Path) -> None:
    audit(study(tmp_path), tmp_path / "run")
    assert list((tmp_path / "run").rglob("*.safetensors"))
    audit(study(tmp_path), tmp_path / "run", redact=True)
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_the_estimate_counts_the_cells_of_the_plan(tmp_path: Path) -> None:
    made = draft(tmp_path, adversaries={"a": "inverting_gradients(steps=40)"})
    counted = estimate(made)
    assert counted.cells == len(plan(made.study()).cells) == 6
    assert counted.evaluations == 6 * 7 * 40
    assert counted.seconds is not None
    assert counted.seconds > 0
    strange = estimate(draft(tmp_path, defenses={"mine": "my.module:part()"}))
    assert strange.seconds is None
    assert "import your code" in strange.sentences()[0]


def test_the_estimate_names_every_kind_of_cell(tmp_path: Path) -> None:
    made = draft(
        tmp_path,
        task={**BASE["task"], "records": 12},
        checkpoints={"train_steps": [3], "defended": True, "seeds": 2},
        leave_out=[],
        defenses={"a": "gaussian(std=0.1)", "b": "clip(norm=1.0)"},
        adversaries={
            "g": ["inverting_gradients(steps=10)", "inverting_gradients(steps=20)"],
            "a": "adaptive(steps=10)",
        },
    )
    counted = estimate(made)
    chunks, arms = 2, 3
    assert counted.counts == {
        "attack": 2 * 2 * arms * chunks,
        "control": 3 * 2 * arms * chunks,  # of every model: trained with a, with b, without
        "ablation": 0,
        "tuning": 2 + 3,
        "training": 3 * 2,
    }
    assert counted.cells == len(plan(made.study()).cells)
    assert "24 attacks, 36 controls on the update without a defense, 5 tunings, 6 trainings" in counted.shares()


def test_the_estimate_counts_restarts_and_every_comparison(tmp_path: Path) -> None:
    """Scores against other records take time: 50 of them 2.5 times as long as 20."""
    alone, twice = (
        estimate(draft(tmp_path, adversaries={"a": f"inverting_gradients(steps=10, restarts={n})"})) for n in (1, 2)
    )
    assert twice.evaluations == 2 * (alone.evaluations or 0) > 0
    few, many = (draft(tmp_path, task={**BASE["task"], "records": n}).study() for n in (20, 400))
    assert _crossing(many, 10) > 1.3 * _crossing(few, 10)


def test_a_slow_training_is_timed(tmp_path: Path) -> None:
    """Twice the steps take about twice as long, and are part of the time."""
    slow = {"adversaries": {"a": "inverting_gradients(steps=10)"}, "defenses": {"none": "identity()"}}
    times = [estimate(draft(tmp_path, checkpoints={"train_steps": [n]}, **slow)) for n in (1000, 100_000)]
    assert times[1].training > 20 * times[0].training > 0
    assert times[1].seconds is not None
    assert times[1].seconds > times[1].training
    assert "1 training (about" in times[1].sentences()[0]


def test_parts_with_a_release_only_are_named_before_the_audit(tmp_path: Path) -> None:
    """What can be simulated, and what cannot: its verdict will never be `no evidence`."""
    own = {"rounded": "tests.adversary.own_parts:Doubled()", "sorted": "tests.adversary.own_parts:NumpySorted()"}
    made = draft(tmp_path, defenses={"plain": "clip(norm=1.0)", **own})
    assert "not estimated" in estimate(made).sentences()[0]
    simulated = estimate(made, own_code=True).simulated
    assert [sentence.split(":")[0] for sentence in simulated] == ["defense rounded", "defense sorted"]
    assert ["cannot be modelled" in sentence for sentence in simulated] == [False, True]


def test_digests_tell_tensors_apart() -> None:
    one = {"a": torch.zeros(4)}
    assert digest(one) != digest({"b": torch.zeros(4)})
    assert digest(one) != digest({"a": torch.zeros(2, 2)})
    assert digest(one) == digest({"a": torch.zeros(4)})
