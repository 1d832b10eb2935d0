"""Specs: what is read, and that every problem is listed at once, in plain words, without importing user code."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from typer.testing import CliRunner

from leakgauge.cli import app
from leakgauge.losses import CrossEntropy
from leakgauge.study import Draft, Problem, Spec, SpecError, Study, load, of, problems, sound
from leakgauge.study.sections import RecipeSpec, Replay
from leakgauge.study.starter import PRESETS, starter

GOOD: dict[str, Any] = {"task": {"model": "logistic"}}


def task(**settings: Any) -> dict[str, Any]:
    return {"task": {"model": "logistic", **settings}}


def of_form(raw: dict[str, Any]) -> list[Problem]:
    with pytest.raises(SpecError) as fault:
        of(raw, "spec.toml")
    return list(fault.value.problems)


def found(raw: dict[str, Any], folder: Path = Path()) -> dict[str, str]:
    return {p.key: f"{p.what}; {p.remedy}" for p in problems(of(raw), folder / "spec.toml")}


def test_the_defaults_have_no_problem() -> None:
    assert found(GOOD) == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_starter_is_sound_also_with_its_optional_lines(preset: str, tmp_path: Path) -> None:
    text = starter("spec.toml", preset)
    optional = ("[checkpoints]", "train_steps", "defended", "seeds", "shares", "linear", "tuned", "normalise")
    for line in (*optional, "mixed", "bottled", "[price]", "records = 5000", "epochs"):
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    for path, content in (("as-it-is.toml", starter("spec.toml", preset)), ("all.toml", text)):
        (tmp_path / path).write_text(content, encoding="utf-8")
        assert problems(load(tmp_path / path), tmp_path / path) == []


# --- the form


@pytest.mark.parametrize(
    ("raw", "key", "said"),
    [
        ({}, "task", "is missing; add task"),
        ({"task": {}}, "task.model", "is missing; add model"),
        ({"tsk": {}}, "tsk", "no such key; did you mean 'task'"),
        ({"task": 3}, "task", "must be a table of its own, got 3"),
        (task(recrods=3), "task.recrods", "did you mean 'records'"),
        (task(recipe={"bach": 3}), "task.recipe.bach", "did you mean 'batch'"),
        (task(normalise={"mean": [0.1], "std": [0.0]}), "task.normalise.std.0", "must be above 0"),
        (task(normalise={"mean": [float("nan")], "std": [1.0]}), "task.normalise.mean.0", "must be a finite number"),
        (task(normalise={"maen": [0.1], "std": [1.0]}), "task.normalise.maen", "did you mean 'mean'"),
        (task(records="many"), "task.records", "must be a whole number, got 'many'"),
        (task(records=2.5), "task.records", "must be a whole number, got 2.5"),
        (task(records=0), "task.records", "must be at least 1, got 0"),
        (task(model=7), "task.model", "must be text in quotes, got 7"),
        (task(recipe={"mode": "trian"}), "task.recipe.mode", "did you mean 'train'"),
        (task(recipe={"mode": 3}), "task.recipe.mode", "one of train, eval"),
        (task(recipe={"shares": "gradeint"}), "task.recipe.shares", "did you mean 'gradient'"),
        (task(recipe={"learning_rate": float("inf")}), "task.recipe.learning_rate", "must be a finite number"),
        (task(recipe={"momentum": 1.0}), "task.recipe.momentum", "must be below 1"),
        ({**GOOD, "checkpoints": {"train_steps": []}}, "checkpoints.train_steps", "must not be empty"),
        ({**GOOD, "checkpoints": {"train_steps": 3}}, "checkpoints.train_steps", "must be a list"),
        ({**GOOD, "defenses": ["identity()"]}, "defenses", "must be a table of names and texts"),
        ({**GOOD, "defenses": {"a": 1}}, "defenses.a", "must be text in quotes"),
        ({**GOOD, "threat": {"labels": "guessed"}}, "threat.labels", "must be one of 'known', 'inferred' or 'joint'"),
        ({**GOOD, "verdict": {"significance": 1.5}}, "verdict.significance", "must be below 1"),
        ({**GOOD, "seed": -1}, "seed", "must be at least 0"),
    ],
)
def test_problems_of_form(raw: dict[str, Any], key: str, said: str) -> None:
    by = {p.key: str(p) for p in of_form(raw)}
    assert said in by[key]
    assert "pydantic" not in by[key]
    assert by[key].startswith("spec.toml: ")


def test_all_problems_of_form_at_once() -> None:
    raw = {"task": {"modle": "x", "records": -1}, "verdict": {"significance": 2}, "sed": 1}
    assert {p.key for p in of_form(raw)} == {
        "task.model",
        "task.modle",
        "task.records",
        "verdict.significance",
        "sed",
    }


def all_problems(text: str, folder: Path) -> list[str]:
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as fault:
        sound(path)
    return [p.key for p in fault.value.problems]


BOTH_KINDS = """\
price.records = -5
[task]
model = "logistic"
records = 0
rounds = 3
normalise = { mean = [0.3], std = [0.0] }
[checkpoints]
seeds = 0
[defenses]
wrong = "gaussian(std=-1.0)"
[bound]
rounds = 2
"""


def test_a_problem_of_form_hides_none_of_sense(tmp_path: Path) -> None:
    form = ["task.normalise.std.0", "task.records", "checkpoints.seeds", "price.records"]
    assert all_problems(BOTH_KINDS, tmp_path) == [*form, "defenses.wrong", "bound.rounds"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[defenses]\na = "nosuch()"\n', ["task", "defenses.a"]),
        ('task = 3\n[defenses]\na = "nosuch()"\n', ["task", "defenses.a"]),
        ('[task]\nmodel = 7\n[defenses]\na = "nosuch()"\n', ["task.model", "defenses.a"]),
        ('[task]\nmodel = "logistic"\n[task.replay]\nbefore = "x.npz"\n[defenses]\na = "nosuch()"\n',
         ["task.replay.after", "task.replay.batch", "defenses.a"]),
        ('[task]\nmodel = "logistic"\n[defenses]\na = 1\n[threat]\ngrants = ["mask"]\n', ["defenses.a"]),
        ('seed = -1\ndefenses = 1\n[task]\nmodel = "nosuch"\n', ["defenses", "seed", "task.model"]),
        ('seed = -1\n[task]\nmodel = "logistic"\n[adversaries]\na = [1, 2]\nb = "nosuch()"\n',
         ["adversaries.a.0", "adversaries.a.1", "seed", "adversaries.b"]),
    ],
)  # fmt: skip
def test_what_stands_for_a_wrong_key_has_no_problem_of_its_own(text: str, keys: list[str], tmp_path: Path) -> None:
    assert all_problems(text, tmp_path) == keys


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[task\nmodel", "syntax"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a = " + b"[" * 20_000, "nested too deeply"),
        (b"a = " + b"9" * 5000, "syntax"),
        (b"x" * (2 << 20), "more than"),
        (b"", "task: is missing"),
        (b"task = 1979-05-27", "must be a table"),
        (b"\0", "syntax"),
    ],
)
def test_hostile_text(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=said):
        load(path)


def test_absent_and_irregular(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no.toml", "no such file"), (tmp_path, "regular file"), (Path("/dev/zero"), "regu")):
        with pytest.raises(SpecError, match=said):
            load(path)
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(SpecError):
            load(tmp_path / name)


TEXT = """\
[task]
model = "logistic"
records = 20
[defenses]
noisy = "clip(norm=1.0) | gaussian(std=0.01)"
[threat]
labels = "inferred"
"""


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_flipped_bytes(flips: list[tuple[int, int]]) -> None:
    content = bytearray(TEXT.encode())
    for at, value in flips:
        content[at] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.toml"
        path.write_bytes(content)
        with contextlib.suppress(SpecError):
            problems(load(path), path)


# --- what a well-formed spec says that cannot work


@pytest.mark.parametrize(
    ("raw", "key", "said"),
    [
        (task(model="logistik"), "task.model", "did you mean 'logistic'"),
        (task(model="mlp(widht=3)"), "task.model", "widht"),
        (task(model="mlp(width=0)"), "task.model", "at least 1"),
        (task(model="mlp(width=100000)"), "task.model", "parameters; make it smaller"),
        (task(model="gaussian(std=1.0)"), "task.model", "is not a model"),
        (task(model="os:system('ls')"), "task.model", "standard library"),
        (task(loss="crossentropy"), "task.loss", "did you mean 'cross_entropy'"),
        (task(loss="my loss:x"), "task.loss", "package.module:name"),
        (task(loss="cross_entropy(smoothing=1.0)"), "task.loss", "smoothing"),
        (task(loss="cross_entropi(smoothing=0.1)"), "task.loss", "did you mean 'cross_entropy'"),
        (task(loss="tv()"), "task.loss", "tv"),
        (task(loss="os:system('ls')"), "task.loss", "standard library"),
        (task(data="fashion_mnist_sampel"), "task.data", "did you mean 'fashion_mnist_sample'"),
        (task(data="no/such.npz"), "task.data", "no such file"),
        (task(data="x" * 5000), "task.data", "cannot be used"),
        (task(weights="no.safetensors"), "task.weights", "no such file"),
        (task(weights="no.bin"), "task.weights", "unknown ending"),
        (task(records=100_000), "task.records", "say at most records = "),
        (task(normalise={"mean": [0.1, 0.2], "std": [0.1]}), "task.normalise", "2 means but 1 deviations"),
        (task(normalise={"mean": [0.1] * 3, "std": [0.1] * 3}), "task.normalise", "have 1"),
        (task(recipe={"batch": 2, "minibatch": 3}), "task.recipe.minibatch", "say at most 2"),
        (task(recipe={"local_steps": 2, "shares": "gradient"}), "task.recipe.shares", "no single gradient"),
        (task(replay={"before": "b.pt", "after": "a.pt", "batch": "b.npz"}), "task.replay.after", "no such file"),
        (task(replay={"before": "b.pt", "after": "a.pt", "batch": "b.npz"}), "task.replay.batch", "no such file"),
        ({**GOOD, "defenses": {}}, "defenses", "there is none"),
        ({**GOOD, "defenses": {"a": "gausian(std=1.0)"}}, "defenses.a", "did you mean 'gaussian'"),
        ({**GOOD, "defenses": {"a": "gaussian(std=-1.0)"}}, "defenses.a", "std"),
        ({**GOOD, "defenses": {"a": "gaussian(std=1.0"}}, "defenses.a", "cannot read"),
        ({**GOOD, "defenses": {"a": "gaussian(1.0) | tv()"}}, "defenses.a", "'tv' is not a defense"),
        ({**GOOD, "defenses": {"a": "my.code:part() | clip(norm=-1.0)"}}, "defenses.a", "norm"),
        ({**GOOD, "adversaries": {"a": "gaussian(std=1.0)"}}, "adversaries.a", "is not an attack"),
        ({**GOOD, "adversaries": {"a": "bayes(prior=tw())"}}, "adversaries.a", "unknown name 'tw'"),
        ({**GOOD, "defenses": {"a": "mixup(k=30)"}}, "defenses.a", "30"),
        (
            {**GOOD, "defenses": {"a": "random_prune(p=0.5)"}, "threat": {"grants": ["maks"]}},
            "threat.grants.0",
            "did you mean 'mask'",
        ),
        (
            {**GOOD, "defenses": {"a": "random_prune(p=0.5) | random_prune(p=0.1)"}, "threat": {"grants": ["mask"]}},
            "threat.grants.0",
            "may mean random_prune.mask or random_prune#2.mask; say 'random_prune.mask'",
        ),
        ({**GOOD, "verdict": {"recognisable": {"sim": 0.5}}}, "verdict.recognisable", "did you mean 'ssim'"),
        ({**GOOD, "verdict": {"recognisable": {"ssim": 2.0}}}, "verdict.recognisable.ssim", "at most 1"),
        ({**GOOD, "verdict": {"recognisable": {"feature_share": 0.8}}}, "verdict.recognisable", "these are image"),
        ({**GOOD, "verdict": {"recognisable": {"mse": 0.1}}}, "verdict.recognisable", "must rise"),
        ({**GOOD, "verdict": {"recognisable": {"ssim": 0.5, "my.code:Mae()": 0.2}}}, "verdict.recognisable", "alone"),
        (
            {**GOOD, "verdict": {"recognisable": {"ssim": 0.5, "ms_ssim(scales=2)": 0.2}}},
            "verdict.recognisable",
            "both judge",
        ),
        ({**GOOD, "adversaries": {"a": "adversary(solver=adam(schedule=cosine()))"}}, "adversaries.a", "schedule"),
        ({**GOOD, "adversaries": {"a": "adversary(likelihood=l1(weights='exp'))"}}, "adversaries.a", "weights"),
        (task(records=4), "verdict.significance", "take at least records = 6"),
        ({**GOOD, "verdict": {"significance": 1e-6}}, "verdict.significance", "say at least significance"),
    ],
)
def test_problems_of_sense(raw: dict[str, Any], key: str, said: str) -> None:
    assert said in found(raw)[key]


def test_holm_counts_the_defenses() -> None:
    many = {f"d{i}": f"gaussian(std={i + 1}.0)" for i in range(4)}
    assert found(task(records=6)) == {}  # 2/64 for one defense
    assert "corrected for 4 comparisons" in found({**task(records=6), "defenses": many})["verdict.significance"]
    later = {**task(records=6), "checkpoints": {"train_steps": [0, 10]}}
    assert "corrected for 2 comparisons" in found(later)["verdict.significance"]


@pytest.mark.parametrize(
    ("raw", "key", "said"),
    [
        ({**GOOD, "adversaries": {"a": 3}}, "adversaries.a", "must be text in quotes"),
        ({**GOOD, "adversaries": {"a": ["dlg()", 3]}}, "adversaries.a.1", "must be text in quotes"),
    ],
)
def test_an_adversary_is_a_text_or_a_list_of_texts(raw: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        of(raw)
    assert [p.key for p in caught.value.problems] == [key]
    assert said in str(caught.value)


def test_settings_to_tune_are_checked_one_by_one() -> None:
    assert "unknown name 'dgl'" in found({**GOOD, "adversaries": {"a": ["dlg()", "dgl()"]}})["adversaries.a"]
    assert "no setting" in found({**GOOD, "adversaries": {"a": []}})["adversaries.a"]


def test_all_problems_of_sense_at_once(tmp_path: Path) -> None:
    raw = {
        "task": {"model": "mpl", "loss": "hinge", "data": "mnits", "records": 2, "weights": "w.pt"},
        "defenses": {"a": "clipp(norm=1.0) | gausian(std=0.1)", "b": "prune(p=7.0)"},
        "adversaries": {"c": "inverting()"},
    }
    got = problems(of(raw), tmp_path / "spec.toml")
    keys = [p.key for p in got]
    assert set(keys) >= {
        "task.model",
        "task.weights",
        "task.loss",
        "task.data",
        "defenses.a",
        "defenses.b",
        "adversaries.c",
        "verdict.significance",
    }
    assert keys.count("defenses.a") == 2
    assert all(p.remedy and "\n" not in str(p) for p in got)


def test_weights_are_compared_with_the_model(tmp_path: Path) -> None:
    save_file({"linear.weight": torch.zeros(10, 5), "linear.bias": torch.zeros(10)}, tmp_path / "w.safetensors")
    assert "(10, 784)" in found(task(weights="w.safetensors"), tmp_path)["task.weights"]
    save_file({"linear.weight": torch.zeros(10, 784), "linear.bias": torch.zeros(10)}, tmp_path / "w.safetensors")
    assert found(task(weights="w.safetensors"), tmp_path) == {}


def test_small_images_have_no_ssim(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", inputs=np.zeros((60, 1, 4, 4), np.uint8), labels=np.arange(60) % 3)
    asked = {**task(data="d.npz", records=8), "verdict": {"recognisable": {"ssim": 0.5}}}
    assert "psnr" in found(asked, tmp_path)["verdict.recognisable"]
    assert "verdict.recognisable" not in found(task(data="d.npz", records=8), tmp_path)  # PSNR judges by default


def test_user_code_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users_own.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    own = "users_own:thing"
    raw = {
        "task": {"model": own, "loss": own, "data": own},
        "defenses": {"a": f"{own}() | clip(norm=1.0)"},
        "adversaries": {"b": f"{own}(steps=3)", "c": f"bayes(prior={own}())"},
        "threat": {"grants": ["anything"]},
    }
    assert found(raw, tmp_path) == {}
    assert "users_own" not in sys.modules


@pytest.mark.parametrize("command", ["check", "audit"])
@pytest.mark.parametrize(
    "names",
    [
        {"data": "users_own:records."},
        {"data": "users_own:a..b"},
        {"data": "users_own:a.1"},
        {"loss": "1users_own:loss"},
        {"loss": "'users_own:loss"},
        {"loss": "üsers_own:loss"},
    ],
)
def test_what_is_nearly_a_path_is_imported_by_nobody(
    names: dict[str, str], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commands announce and what they import is the same, letter by letter."""
    for module in ("users_own", "1users_own", "'users_own", "üsers_own"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    keys = "".join(
        f"{key} = {value!r}\n" if "'" not in value else f'{key} = "{value}"\n' for key, value in names.items()
    )
    (tmp_path / "spec.toml").write_text(
        f'[task]\nmodel = "mlp(width=4, depth=1)"\nrecords = 8\n{keys}', encoding="utf-8"
    )
    words = [command, str(tmp_path / "spec.toml"), *(["--out", str(tmp_path / "run")] if command == "audit" else [])]
    ended = CliRunner().invoke(app, words)
    assert not (tmp_path / "ran").exists()
    assert ended.exit_code == 2


def test_spec_is_frozen() -> None:
    assert isinstance(of(GOOD), Spec)


@pytest.mark.parametrize(
    ("listed", "added"),
    [
        ({"a": "analytic()"}, {"adaptive (added)": "standard()"}),
        ({"a": "my.code:Attack()"}, {"adaptive (added)": "standard()"}),
        ({"a": "adaptive(steps=3)"}, {"generic (added)": "inverting_gradients()"}),
        (
            {"a": ["adaptive()", "dlg()"]},
            {"generic (added)": "inverting_gradients()", "adaptive (added)": "standard()"},
        ),
        ({"a": "dlg()", "b": "adaptive()"}, {}),
        ({"a": "dlg()", "b": "drop_layer()"}, {"adaptive (added)": "standard()"}),
    ],
)
def test_a_generic_and_an_adaptive_adversary_always_attack(listed: dict[str, Any], added: dict[str, str]) -> None:
    made = Draft.of(of({**GOOD, "adversaries": listed}), Path("spec.toml")).spec
    assert made.adversaries == {**listed, **added}
    assert [note.partition(": ")[0] for note in made.notes()] == list(added)
    assert Draft.of(of(made.model_dump()), Path("spec.toml")).spec == made  # the written-out spec is the same audit


def test_leaving_one_out_is_said_and_must_be_meant() -> None:
    made = Draft.of(of({**GOOD, "leave_out": ["generic"]}), Path("spec.toml")).spec
    assert list(made.adversaries) == ["adaptive"]
    assert "LEFT OUT: the generic attack" in made.notes()[0]
    assert (
        "lists a generic one" in found({**GOOD, "adversaries": {"a": "dlg()"}, "leave_out": ["generic"]})["leave_out.0"]
    )
    assert "there is none" in found({**GOOD, "leave_out": ["generic", "adaptive"]})["adversaries"]
    own = {**GOOD, "adversaries": {"mine": "own_module:Attack()"}}  # counts as generic, and is not imported to see
    assert not any("leave_out" in where for where in found({**own, "leave_out": ["adaptive"]}))
    assert "lists a generic one" in found({**own, "leave_out": ["generic"]})["leave_out.0"]
    assert "at the top" in found({**GOOD, "adversaries": {"leave_out": ["generic"]}})["adversaries.leave_out"]


def test_metrics_of_ones_own_are_own_code() -> None:
    """They are imported by an audit, so that they need the user's word as every other code of his does."""
    verdict = {"recognisable": {"my_metrics:Judge()": 0.9}, "also": ["my_metrics:Beside(level=2)", "psnr()"]}
    draft = Draft.of(of({**GOOD, "verdict": verdict}), Path("spec.toml"))
    assert draft.own_code == ["my_metrics:Judge", "my_metrics:Beside"]


def test_the_reference_lists_every_key() -> None:
    """A key that only the code knows is found by nobody."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    kinds = [*(field.annotation for field in Spec.model_fields.values()), RecipeSpec, Replay]
    keys = [key for kind in kinds for key in getattr(kind, "model_fields", ())]
    assert [key for key in keys if f"`{key}`" not in page and f"[task.{key}]" not in page] == []


@pytest.mark.parametrize(
    "loss", ["cross_entropy", "cross_entropy()", "cross_entropy(smoothing=0.1)", "my.code:Loss(a=1)"]
)
def test_a_loss_may_have_settings(loss: str) -> None:
    assert "task.loss" not in found(task(loss=loss))


def test_a_loss_with_settings_is_the_clients() -> None:
    raw = {"task": {"model": "logistic", "loss": "cross_entropy(smoothing=0.1)", "records": 10}}
    assert Study.of(of(raw)).task.recipe.loss == CrossEntropy(smoothing=0.1)
