"""A search on records that are never reported: it finds the better setting, resumes, and keeps what failed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.errors import DataError, DomainError, LeakgaugeError
from leakgauge.expr import parse
from leakgauge.study import Study
from leakgauge.tune import Preset, Space, Trial, Tuned, bayes, tune
from leakgauge.types import Domain, Records

pytest.importorskip("optuna", reason="needs leakgauge[tune]")
SPACE = Space.of("adaptive(steps=8)", ["tv_weight = log(1e-4, 1e2)"])


def records(count: int, seed: int) -> Records:
    generator = torch.Generator().manual_seed(seed)
    return Records(
        torch.rand(count, 1, 6, 6, generator=generator), torch.arange(count) % 4, Domain("image", (1, 6, 6), 4)
    )


def study(seed: int = 1, defense: str = "identity()", **others: str) -> Study:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(16, 4))
    return Study(
        model,
        records(8, seed),
        reference=records(30, 77),
        defenses={"mine": defense, **others},
        updates=6,
        verdict={"significance": 0.5},
    )


def cells(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cells").glob("*.json")}


def test_a_search_finds_the_better_end_and_resumes_from_its_cells(tmp_path: Path) -> None:
    heard: list[Trial] = []
    answer = tune(study(), SPACE, tmp_path, trials=4, updates=2, report=lambda *event: heard.append(event[3]))["mine"]
    assert answer.best.score == max(trial.score or 0.0 for trial in heard)
    assert len(answer.trials) == len(heard) == 4
    assert answer.plain is not None
    before = cells(tmp_path)
    assert len(before) == 5  # the attack without a search, too
    more = tune(study(), SPACE, tmp_path, trials=6, updates=2)["mine"]
    assert [trial.attack for trial in more.trials[:4]] == [trial.attack for trial in answer.trials]
    assert before.items() <= cells(tmp_path).items()
    assert len(cells(tmp_path)) == 7
    written = json.loads((tmp_path / "tune.json").read_text())
    assert written[0]["best"]["attack"] == more.best.attack


def test_no_reported_record_takes_part_in_a_search(tmp_path: Path) -> None:
    answers = []
    for seed in (1, 2):
        tune(study(seed), SPACE, tmp_path / str(seed), trials=2, sampler="random", updates=2)
        answers.append((cells(tmp_path / str(seed)), (tmp_path / str(seed) / "tune.json").read_bytes()))
        roles = json.loads((tmp_path / str(seed) / "manifest.json").read_text())["records"]
        assert not set(roles["reported"]) & set(roles["reference"])
    assert answers[0] == answers[1]  # to the byte, identities included


def test_settings_that_fail_are_kept_and_a_search_in_which_all_fail_says_why(tmp_path: Path) -> None:
    space = Space.of("adversary(likelihood=choice(density(), cosine()), solver=adam(steps=2))")
    answer = tune(study(), space, tmp_path, sampler="grid", trials=2, updates=1)["mine"]
    assert [trial.score is None for trial in answer.trials] == [True, False]
    assert "cosine()" in answer.best.attack
    none = Space.of("adversary(likelihood=density(), solver=adam(steps=2, lr=log(0.1, 1)))")
    with pytest.raises(LeakgaugeError, match="every trial failed"):
        tune(study(), none, sampler="random", trials=2, updates=1)


def test_what_was_found_against_other_defenses_is_not_lost(tmp_path: Path) -> None:
    space = Space.of("adversary(likelihood=density(), solver=adam(steps=2, lr=log(0.1, 1)))")
    both = study(noisy="gaussian(std=0.1)", cut="prune(p=0.5)")
    with pytest.raises(LeakgaugeError, match=r"defense mine.*and defense cut"):
        tune(both, space, tmp_path, sampler="random", trials=2, updates=1)
    assert [one["defense"] for one in json.loads((tmp_path / "tune.json").read_text())] == ["noisy"]


def test_a_preset_narrows_its_range_around_the_best(tmp_path: Path) -> None:
    whole = bayes()
    first = Space.of(whole.first.text.replace("_range_0", "log(1e-7, 1e5)").replace("steps=200", "steps=2"))

    def near(best: object) -> Space:
        return Space.of(f"bayes(prior=choice({best['prior']:.4g}, 1e-9)*tv(), solver=adam(steps=2))")  # type: ignore[index]

    small = Preset("small", "", first, 2, near, 2)
    answer = tune(study(defense="gaussian(std=0.1)"), small, tmp_path, updates=1)["mine"]
    assert len(answer.trials) == 4
    assert "adam(steps=2)" in answer.trials[-1].attack


def test_bad_input_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="reference records"):
        tune(study(), SPACE, tmp_path, trials=2, updates=1000)
    with pytest.raises(DomainError, match="no defense 'min'"):
        tune(study(), SPACE, tmp_path, defenses=["min"])
    with pytest.raises(DomainError, match="tv_weight"):
        tune(study(), Space.of("adaptive(tv_weight=linear(-1, 1))"), tmp_path)
    with pytest.raises(DomainError, match="chooses its own settings"):
        tune(study(), Space.of("standard(work=choice('quick', 'standard'))"), tmp_path)
    assert not list(tmp_path.iterdir())


OWN = """\
from dataclasses import dataclass

import leakgauge as lg
import torch


@dataclass(frozen=True)
class Grey:
    level: float = 0.5
    other: float = 0.0

    def __post_init__(self):
        if self.level > 0.5 and self.other > 0.5:
            raise lg.DomainError("level and other may not both be large", where="Grey", remedy="lower one")

    def __call__(self, task, observations, *, seed=0, progress=None):
        if self.other > 0.9:
            raise RuntimeError("broken")
        shape = (len(observations), task.recipe.batch)
        labels = torch.zeros(shape, dtype=torch.long)
        guess = torch.full((*shape, *task.domain.shape), LEVEL)
        return lg.Reconstruction(guess, labels, torch.zeros(len(observations)))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, level in (("mine_a", "self.level"), ("mine_b", "0.0")):
        (tmp_path / f"{name}.py").write_text(OWN.replace("LEVEL", level))
    yield tmp_path
    for name in ("mine_a", "mine_b"):
        sys.modules.pop(name, None)


def test_own_attacks_that_print_alike_are_not_taken_for_each_other(own: Path) -> None:
    first, second = (
        tune(study(), Space.of(f"mine_{one}:Grey(level=linear(0.4, 0.6))"), own / "out", trials=2, updates=2)["mine"]
        for one in "ab"
    )
    assert [trial.score for trial in first.trials] != [trial.score for trial in second.trials]
    assert first.best.attack.startswith("mine_a:Grey(")
    assert parse(first.best.attack, "attack")  # what is printed can be put into a spec


def test_a_setting_that_breaks_or_is_refused_is_one_failed_trial(own: Path) -> None:
    space = Space.of("mine_a:Grey(level=linear(0, 1), other=linear(0, 1))")
    answer = tune(study(), space, own / "out", sampler="grid", points=3, trials=9, updates=1)["mine"]
    failed = [trial for trial in answer.trials if trial.score is None]
    assert len(answer.trials) == 9
    assert {trial.attack.partition("other=")[2] for trial in failed} == {"1.0)"}  # whatever the level
    assert len(failed) == 3
    assert len(cells(own / "out")) == 6  # what broke is tried again


@pytest.mark.parametrize(
    "text",
    [
        "log(1, 2)",
        "[adaptive(steps=whole(1, 3))]",
        "whole(1, 3)*tv()",
        "best_of(attacks=(standard(),), judge=log(1, 2))",
    ],
)
def test_what_is_no_attack_is_refused_before_anything_runs(text: str, tmp_path: Path) -> None:
    with pytest.raises(LeakgaugeError) as raised:
        tune(study(), Space.of(text), tmp_path / "out")
    assert raised.value.remedy
    assert not (tmp_path / "out").exists()


def test_an_attack_that_chooses_inside_another_is_refused(tmp_path: Path) -> None:
    judge = "adversary(prior=log(1e-3, 1)*tv(), solver=adam(steps=1))"
    with pytest.raises(LeakgaugeError, match=r"standard\(\) chooses its own settings"):
        tune(study(), Space.of(f"best_of(attacks=(standard(work='quick'),), judge={judge})"), tmp_path)


def test_everything_that_is_wrong_with_a_search_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(LeakgaugeError) as raised:
        tune(study(), SPACE, tmp_path, defenses=["nope"], sampler="magic", trials=0, updates=0)  # type: ignore[arg-type]
    assert all(
        word in str(raised.value)
        for word in ("nope", "magic", "trials must be an integer ≥ 2, got 0", "updates must be")
    )
    with pytest.raises(LeakgaugeError) as raised:
        Space.of("adaptive()", ["tv_weight = log(0, 1)", "steps = choice(1)", "lr = linear(1, 1)"])
    assert all(word in str(raised.value) for word in ("log(0", "choice(1)", "linear(1"))


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_space_with_no_more_settings_than_trials_is_tried_in_full(sampler: Any, tmp_path: Path) -> None:
    space = Space.of("adaptive(steps=whole(1, 2), latent=choice('joint', 'before'))")
    heard: list[int] = []
    answer = tune(
        study(), space, tmp_path, sampler=sampler, trials=5, updates=1, report=lambda *event: heard.append(event[2])
    )["mine"]
    assert len({trial.attack for trial in answer.trials}) == len(answer.trials) == 4
    assert heard == [4] * 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"study": "leakgauge.toml"}, "study is a str"),
        ({"space": "adaptive(steps=2)"}, "space is a str"),
        ({"defenses": "mine"}, r"give a list of names: \['mine'\]"),
        ({"trials": "4"}, "trials must be an integer"),
        ({"trials": 2.5}, "trials must be an integer"),
        ({"updates": True}, "updates must be an integer"),
        ({"sampler": "grid", "points": 0}, "points must be an integer"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_in_a_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DomainError, match=words) as raised:
        tune(**{"study": study(), "space": SPACE, "trials": 2, "updates": 1} | change)  # type: ignore[arg-type]
    assert raised.value.remedy


def test_a_search_that_gains_nothing_says_so_and_recommends_what_there_was() -> None:
    plain, lower, same = (Trial(text, scores) for text, scores in (("a", (0.5,)), ("b", (0.4,)), ("c", (0.5,))))
    worse = Tuned("mine", "ssim", (lower, Trial("d", (0.3,))), plain)
    assert worse.recommended == plain
    assert worse.sentence().endswith("; none did better than the attack without the search")
    idle = Tuned("mine", "ssim", (same, Trial("d", (0.5,))), plain)
    assert idle.recommended == plain
    assert "seems to change nothing against this defense" in idle.sentence()
    apart = Tuned("mine", "ssim", (lower, Trial("d", (0.4,))), plain)  # alike, but not as the attack without the search
    assert apart.sentence().endswith("; none did better than the attack without the search")
    gain = Tuned("mine", "ssim", (same, lower), lower)
    assert gain.recommended == gain.best == same
    assert gain.sentence().endswith("the best of 2 settings")
    assert Tuned("mine", "ssim", (same,)).sentence().endswith("on one record that is not reported; of one setting")


def test_searches_of_one_folder_keep_what_the_others_found(tmp_path: Path) -> None:
    both, how = study(noisy="gaussian(std=0.1)"), {"trials": 2, "updates": 1}
    other = Space.of("inverting_gradients(steps=2)", ["tv_weight = log(1e-4, 1)"])
    further = Space.of("adaptive(steps=8)", ["tv_weight = log(1e-4, 1e-2)"])  # the same attack, another range
    for defense, space in (("mine", SPACE), ("noisy", SPACE), ("mine", other), ("mine", further), ("mine", SPACE)):
        tune(both, space, tmp_path, defenses=[defense], **how)  # type: ignore[arg-type]
    found = json.loads((tmp_path / "tune.json").read_text())
    keys = [(one["defense"], one["space"]) for one in found]
    wanted = [("mine", one.written) for one in (SPACE, other, further)] + [("noisy", SPACE.written)]
    assert sorted(keys) == sorted(wanted)
    assert Space.of(keys[0][1]).ranges  # what is kept can be searched again


def test_the_folder_of_an_audit_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[]")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(LeakgaugeError, match="holds an audit"):
        tune(study(), SPACE, tmp_path, trials=2, updates=1)
    assert (tmp_path / "manifest.json").read_text() == "{}"
    assert not (tmp_path / "tune.json").exists()


@pytest.mark.parametrize(
    "content", ["{}", '{"attack": "a", "scores": [], "evaluations": 1, "fault": null}', '{"scores": 3}']
)
def test_a_cell_that_is_no_trial_says_which_and_what_to_do(content: str, tmp_path: Path) -> None:
    how = {"trials": 2, "updates": 1}
    tune(study(), SPACE, tmp_path, **how)  # type: ignore[arg-type]
    victim = sorted((tmp_path / "cells").glob("*.json"))[0]
    victim.write_text(content)
    with pytest.raises(LeakgaugeError) as raised:
        tune(study(), SPACE, tmp_path, **how)  # type: ignore[arg-type]
    assert raised.value.where == str(victim)
    assert "delete it" in (raised.value.remedy or "")
