"""Settings that cannot work: one clear message with a remedy, in a spec and in Python, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import leakgauge as lg
from leakgauge.audit import audit
from leakgauge.cli import app
from leakgauge.errors import LeakgaugeError
from leakgauge.study import SpecError, Study, of, problems
from leakgauge.task import Task

DATA = lg.data.load("fashion_mnist_sample")

# expression → what is wrong, and how to mend it
DEFENSES = {
    "mixup(k=11)": ("mixes 11 distinct records, there are 10", "a smaller k"),
    "mixup(k=0)": ("k must be an integer ≥ 1, got 0", "such as k=1"),
    "mixup(k=2.5)": ("k must be an integer ≥ 1, got 2.5", "such as k=1"),
    "mixup(k=4, cap=0.2)": ("cap must lie in (0.25, 1], got 0.2", "such as cap="),
    "mixup(k=4, cap=1.5)": ("cap must lie in (0.25, 1], got 1.5", "such as cap="),
    "mixup(law='beta')": ("law must be one of dirichlet, normal", "say law='dirichlet'"),
    "instahide(k=11)": ("mixes 11 distinct records", "a smaller k"),
    "instahide(public='fashion_mnist_sampel')": ("unknown data set", "did you mean 'fashion_mnist_sample'?"),
    "instahide(k=2, public='fashion_mnist_sample')": ("k must be at least 3", "say k=4, or leave public out"),
    "soteria(layer='linaer1')": ("there is no layer 'linaer1'", "did you mean 'linear1'?"),
    "soteria(layer=3)": ("layer must be a name, got 3", "say layer='linear1'"),
    "soteria(layer='conv1')": ("layer 'conv1' is not linear", "defend one of linear1, linear2"),
    "soteria(layer='linear1', p=1.0)": ("p must lie in [0, 1), got 1.0", "such as p=0.5"),
    "prune(p=1.0)": ("p must lie in [0, 1), got 1.0", "such as p=0.5"),
    "prune(p=-0.1)": ("p must lie in [0, 1), got -0.1", "such as p=0.5"),
    "prune(p='half')": ("p must lie in [0, 1), got 'half'", "such as p=0.5"),
    "random_prune(p=1.0)": ("p must lie in [0, 1), got 1.0", "such as p=0.5"),
    "topk(keep=0)": ("keep must lie in (0, 1], got 0", "such as keep=0.5"),
    "topk(keep=1.5)": ("keep must lie in (0, 1], got 1.5", "such as keep=0.5"),
    "topk(keep=0.5, per='layer')": ("per must be one of update, tensor", "say per='update'"),
    "quantise(levels=0)": ("levels must be an integer ≥ 1, got 0", "such as levels=1"),
    "ats(policy='3-1-50')": ("operation 50 in '3-1-50' does not exist", "use -1 (skip) to 49"),
    "ats(policy='3--2-7')": ("operation -2", "use -1 (skip) to 49"),
    "ats(policy='a-b')": ("'a-b' is no policy", "write indices like 7-4-15"),
    "ats(policy='3-1-7+')": ("'' is no policy", "write indices like 7-4-15"),
    "ats(policy=7)": ("policy must be text, got 7", "policy='7-4-15'"),
    "precode(k=0)": ("k must be an integer ≥ 1, got 0", "such as k=1"),
    "precode(form='old')": ("form must be one of official, bayes", "say form='official'"),
    "precode() | precode(k=3)": ("acts twice at the model stage", "keep one of them"),
    "lrp(share=0)": ("share must lie in (0, ∞), got 0", "such as share=1"),
    "lrp(spread=1.5)": ("spread must lie in [0, 1], got 1.5", "such as spread=0.5"),
    "clip(norm='big')": ("norm must lie in (0, ∞), got 'big'", "such as norm=1"),
    "gaussian(std=-1.0)": ("std must lie in [0, ∞), got -1.0", "such as std=1"),
}
SPECS: dict[str, tuple[dict[str, Any], str, tuple[str, str]]] = {
    "an adversary without a setting": (
        {"task": {"model": "logistic", "records": 10}, "adversaries": {"a": []}},
        "adversaries.a",
        ("there is no setting in the list", "give one, or several to be tuned"),
    ),
    "an attack that chooses by itself in a list": (
        {"task": {"model": "logistic", "records": 10}, "adversaries": {"a": ["adaptive(steps=2)", "standard()"]}},
        "adversaries.a",
        ("standard() chooses its own settings", "give it a name of its own"),
    ),
    "fixed batch norms of a model without them": (
        {"task": {"model": "logistic", "records": 10}, "adversaries": {"a": "adversary(norms='fixed')"}},
        "adversaries.a",
        ("replaces the statistics of batch norms in train mode", "leave norms out"),
    ),
    "a batch-norm prior on a model without them": (
        {"task": {"model": "logistic", "records": 10}, "adversaries": {"a": "adversary(prior=0.1*batch_norm())"}},
        "adversaries.a",
        ("batch_norm() compares statistics of batch norms, and the model has none", "leave it out of the prior"),
    ),
    "more records in a batch than labels allow": (
        {
            "task": {"model": "logistic", "recipe": {"batch": 11}},
            "adversaries": {"a": "adversary(rule='unique')"},
            "threat": {"labels": "inferred"},
        },
        "adversaries.a",
        ("a batch of 11 cannot have unique labels among 10 classes", "leave rule out, which counts repeated labels"),
    ),
    "more records in a batch than GradInversion's labels allow": (
        {
            "task": {"model": "logistic", "recipe": {"batch": 11}},
            "adversaries": {"a": "grad_inversion(rule='unique')"},
            "threat": {"labels": "inferred"},
        },
        "adversaries.a",
        ("a batch of 11 cannot have unique labels among 10 classes", "leave rule out, which counts repeated labels"),
    ),
    "a search of codes without a generator": (
        {"adversaries": {"a": "gias(prior=tv())"}},
        "adversaries.a",
        ("it searches the codes of a generator, and tv() has none", "learned(file="),
    ),
    "an evolution of codes without a generator": (
        {"adversaries": {"a": "ggl(prior=0.1*tv())"}},
        "adversaries.a",
        ("it searches the codes of a generator", "learned(file="),
    ),
    "more rounds than memory": (
        {"task": {"model": "resnet18", "data": "fashion_mnist_sample", "rounds": 1000}},
        "task.rounds",
        ("updates of 1000 rounds take about 447 GB, the limit is 8 GB", "say at most rounds = 17"),
    ),
    "more rounds than ever end": (
        {"task": {"model": "logistic", "rounds": 2_000_000_000}},
        "task.rounds",
        ("must be at most 1000, got 2000000000", "at most 1000"),
    ),
    "more local steps than ever end": (
        {"task": {"model": "logistic", "recipe": {"local_steps": 10**8}}},
        "task.recipe.local_steps",
        ("must be at most 10000, got 100000000", "at most 10000"),
    ),
    "a model without a place for precode": (
        {"task": {"model": "logistic", "records": 10}, "defenses": {"d": "precode()"}},
        "defenses.d",
        ("no hidden layer to put a bottleneck behind", "at least one trained layer before the last"),
    ),
    "a last client with too few records": (
        {"defenses": {"d": "mixup(k=4)"}, "task": {"model": "logistic", "records": 12, "client_records": 10}},
        "defenses.d",
        ("the last client here holds 2 records", "say a smaller k, or records = 10, so that every client is full"),
    ),
    "clients that never have enough records": (
        {"defenses": {"d": "mixup(k=11)"}, "task": {"model": "logistic", "records": 20, "client_records": 10}},
        "defenses.d",
        ("each client holds 10 records", "say a smaller k, or a larger task.client_records"),
    ),
    "one client with too few records": (
        {"defenses": {"d": "mixup(k=8)"}, "task": {"model": "logistic", "records": 7}},
        "defenses.d",
        ("the one client here holds 7 records", "say a smaller k, or more records"),
    ),
    "clients whose records make no whole updates": (
        {"task": {"model": "logistic", "client_records": 5, "recipe": {"batch": 2}}},
        "task.client_records",
        ("5 records do not make whole updates of 2", "give a multiple of 2"),
    ),
    "a bound over fewer rounds than are observed": (
        {"task": {"model": "logistic", "rounds": 3}, "bound": {"rounds": 2}},
        "bound.rounds",
        ("a bound over 2 rounds, the adversary sees 3", "say at least 3"),
    ),
    "a grant that is no nuisance": (
        {"defenses": {"d": "mixup()"}, "threat": {"grants": ["indexes"]}},
        "threat.grants.0",
        ("no defense of this spec has a nuisance 'indexes'", "did you mean 'indices'?"),
    ),
    "a grant that these defenses do not have": (
        {"defenses": {"d": "mixup()"}, "threat": {"grants": ["mask"]}},
        "threat.grants.0",
        ("no defense of this spec has a nuisance 'mask'", "mixup.indices"),
    ),
    "a grant of the rate, on which a gradient does not depend": (
        {"threat": {"grants": ["recipe.learning_rate"]}},
        "threat.grants.0",
        ("no defense of this spec has a nuisance 'recipe.learning_rate'", "a gradient does not depend"),
    ),
    "a grant by its place in a chain": (
        {"defenses": {"d": "random_prune(p=0.5) | gaussian(std=0.1)"}, "threat": {"grants": ["0.mask"]}},
        "threat.grants.0",
        ("no defense of this spec has a nuisance '0.mask'", "random_prune.mask"),
    ),
    "a layer to drop that is not there": (
        {"adversaries": {"a": "drop_layer(layer='linaer1')"}},
        "adversaries.a",
        ("there is no layer 'linaer1'", "did you mean 'linear1'?"),
    ),
    "a stage that presumes batch norms of a model without them": (
        {
            "task": {"model": "logistic", "records": 10},
            "adversaries": {"a": "staged(stages=(adversary(), adversary(prior=0.1*batch_norm())))"},
        },
        "adversaries.a",
        ("batch_norm() compares statistics of batch norms, and the model has none", "leave it out of the prior"),
    ),
    "one of several attacks that drops a layer that is not there": (
        {"adversaries": {"a": "best_of(attacks=(dlg(), drop_layer(layer='linaer1')), judge=adversary())"}},
        "adversaries.a",
        ("there is no layer 'linaer1'", "did you mean 'linear1'?"),
    ),
    "Gauss-Newton on an average over a ball": (
        {"adversaries": {"a": "adversary(solver=gauss_newton(), ball=ball(points=4, delta=0.1))"}},
        "adversaries.a",
        ("there is no update to linearise here", "leave ball and anneal out"),
    ),
    "an adaptive adversary without steps": (
        {"adversaries": {"a": "adaptive(steps=0)"}},
        "adversaries.a",
        ("steps must be an integer ≥ 1, got 0", "such as steps=1"),
    ),
    "labels that are unknown": (
        {"threat": {"labels": "unknown"}},
        "threat.labels",
        ("must be one of 'known', 'inferred' or 'joint'", 'say "inferred"'),
    ),
}
BASE: dict[str, Any] = {"task": {"model": "bayes_cnn", "records": 10}}


def found(raw: dict[str, Any]) -> list[Any]:
    try:
        return problems(of(raw, "spec.toml"), Path("spec.toml"))
    except SpecError as error:
        return list(error.problems)


@pytest.mark.parametrize("text", DEFENSES)
def test_a_bad_defense_is_one_problem_of_its_spec(text: str) -> None:
    (problem,) = found({**BASE, "defenses": {"d": text}})
    what, remedy = DEFENSES[text]
    assert problem.key == "defenses.d"
    assert what in problem.what
    assert remedy in problem.remedy


@pytest.mark.parametrize("name", SPECS)
def test_what_does_not_fit_together_is_one_problem(name: str) -> None:
    raw, key, (what, remedy) = SPECS[name]
    (problem,) = found({**BASE, **raw})
    assert problem.key == key
    assert what in problem.what
    assert remedy in problem.remedy


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(lg.models.build("bayes_cnn", DATA.domain), DATA.domain)


@pytest.mark.parametrize("text", DEFENSES)
def test_python_refuses_the_same_in_the_same_words(text: str, task: Task) -> None:
    what, remedy = DEFENSES[text]
    with pytest.raises(LeakgaugeError) as caught:
        lg.observe(task.protect(text), DATA.sample(10, split="test"))
    assert what in str(caught.value)
    assert caught.value.remedy
    assert remedy in caught.value.remedy


def test_python_refuses_precode_and_grants_that_are_not_there(task: Task) -> None:
    with pytest.raises(LeakgaugeError, match="no hidden layer"):
        Task(lg.models.build("logistic", DATA.domain), DATA.domain).protect("precode()")
    pruned, records = task.protect("random_prune(p=0.5)"), DATA.sample(1, split="test")
    with pytest.raises(
        LeakgaugeError, match=r"no nuisance 'random_prune.maks' to grant; did you mean 'random_prune.mask'"
    ):
        lg.observe(pruned, records, threat=lg.Threat(grants=frozenset({"random_prune.maks"})))
    # what another defense has may be granted to all alike
    threat = lg.Threat(grants=frozenset({"mask"}))
    assert lg.observe(task, records, threat=threat.about(task.nuisances))


@pytest.mark.parametrize("command", ["check", "audit"])
def test_the_program_lists_all_faults_and_runs_nothing(command: str, tmp_path: Path) -> None:
    lines = "\n".join(f'd{i} = "{text}"' for i, text in enumerate(DEFENSES))
    spec = tmp_path / "bad.toml"
    spec.write_text(f'[task]\nmodel = "bayes_cnn"\nrecords = 10\n[defenses]\n{lines}\n', encoding="utf-8")
    done = CliRunner().invoke(app, [command, str(spec)])
    assert done.exit_code == 2
    said = [line for line in done.output.splitlines() if ": defenses." in line]
    assert len(said) == len(DEFENSES)
    assert all(line.startswith(f"error: {spec}: defenses.d") for line in said)
    assert list(tmp_path.iterdir()) == [spec]


def test_a_model_of_ones_own_is_looked_at_before_any_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ones_own.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    raw = {
        "task": {"model": "ones_own:build", "records": 10},
        "defenses": {"a": "precode()", "b": "soteria(layer='2')", "c": "prune(p=0.5)"},
        "adversaries": {"d": "drop_layer(layer='3')"},
    }
    assert found(raw) == []  # check imports nothing
    with pytest.raises(SpecError) as caught:
        audit(Study.of(of(raw), tmp_path), tmp_path / "run")
    assert [problem.key for problem in caught.value.problems] == ["defenses.a", "defenses.b", "adversaries.d"]
    assert all(problem.remedy for problem in caught.value.problems)
    assert not (tmp_path / "run" / "cells").exists()


def test_a_metric_that_does_not_fit_hides_no_other_problem() -> None:
    raw = {
        "task": {"model": "logistic", "records": 10},
        "verdict": {"also": ["lpips()", "ms_ssim()"], "recognisable": {"ssim": 2.0}},
        "threat": {"grants": ["batch_statistics"]},
    }
    with pytest.raises(SpecError) as raised:
        Study.of(of(raw, "spec.toml"))
    keys = [problem.key for problem in raised.value.problems]
    assert sorted(keys) == ["threat.grants.0", "verdict.also", "verdict.also", "verdict.recognisable.ssim"]


def test_labels_granted_by_their_address_need_not_be_unique() -> None:
    raw, key, _ = SPECS["more records in a batch than labels allow"]
    granted = {**raw, "threat": {"labels": "inferred", "grants": ["recipe.labels"]}}
    assert [problem.key for problem in found(raw)] == [key]
    assert found(granted) == []


NOISED = "random_prune(p=0.5) | gaussian(std=0.1)"
IMPOSSIBLE = {
    "through": "adversary(likelihood=through(), solver=gauss_newton(steps=2))",
    "layers": "adversary(likelihood=l2(weights={'conv9': 1.0}))",
}


@pytest.mark.parametrize("command", ["check", "audit"])
def test_adversaries_that_cannot_attack_are_named_before_anything_runs(command: str, tmp_path: Path) -> None:
    lines = "\n".join(f'{name} = "{text}"' for name, text in IMPOSSIBLE.items())
    spec = tmp_path / "spec.toml"
    text = f'[task]\nmodel = "logistic"\nrecords = 10\n[defenses]\na = "{NOISED}"\n[adversaries]\n{lines}\n'
    spec.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, [command, str(spec)])
    assert done.exit_code == 2
    for name in IMPOSSIBLE:
        assert any(line.startswith(f"error: {spec}: adversaries.{name}: ") for line in done.output.splitlines())
    assert list(tmp_path.iterdir()) == [spec]


def test_a_foreign_exception_of_an_attack_is_a_problem_of_its_key(tmp_path: Path, monkeypatch: Any) -> None:
    code = "class Broken:\n    def __call__(self, task, observations, **options):\n        return 1 + 'a'\n"
    (tmp_path / "raises_type_error.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    spec = tmp_path / "spec.toml"
    listed = '[defenses]\na = "sign()"\nb = "clip(norm=1.0)"\n[adversaries]\nmine = "raises_type_error:Broken()"\n'
    spec.write_text(f'leave_out = ["adaptive"]\n[task]\nmodel = "logistic"\nrecords = 10\n{listed}', encoding="utf-8")
    done = CliRunner().invoke(app, ["check", "--time", str(spec)])
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if line.startswith("error: ")]
    assert "adversaries.mine" in line
    assert "TypeError" in line
    assert len(line.split("under ")[1].split(": ")[0].split(", ")) == 3  # both defenses, and the control
