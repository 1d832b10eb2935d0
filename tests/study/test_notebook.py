"""Studies made in a notebook: one's own module, tensors, defenses and attacks, and every wrong argument at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.adversary import Reconstruction
from leakgauge.observation import Observation
from leakgauge.study import SpecError
from leakgauge.types import Domain, Records


def images(n: int = 60) -> tuple[Tensor, Tensor]:
    return torch.rand(n, 1, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 4))


def problems(*args: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        lg.Study(*args, **options)
    assert all(problem.file == "Study" and problem.remedy for problem in caught.value.problems)
    return {problem.key: f"{problem.what}; {problem.remedy}" for problem in caught.value.problems}


class Greyish:
    """A stranger's attack: half grey everywhere. No part of ours, only a callable."""

    def __call__(
        self, task: lg.Task, observations: Sequence[Observation], *, seed: int = 0, progress: Any = None
    ) -> Reconstruction:
        shape = (len(observations), task.recipe.batch, *task.domain.shape)
        labels = torch.zeros(shape[:2], dtype=torch.long)
        return Reconstruction(torch.full(shape, 0.5), labels, torch.zeros(len(observations)))


def test_a_module_and_tensors_are_enough() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    study = lg.Study(model, images())
    assert repr(study) == "Study of 1 defense x 2 adversaries on 10 updates of 1 record"
    assert study.task.domain == Domain("image", (1, 12, 12), 4)  # the model has a class that no label names
    assert list(study.adversaries) == ["generic", "adaptive"]
    assert repr(study.adversaries["adaptive"][0]) == "standard(work='quick')"  # the work of the preset
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert study.spec.task.model == "torch.nn.modules.container:Sequential"


def test_reported_records_are_no_reference_records() -> None:
    x, y = images(60)
    split, apart = (
        lg.Study(network(), (x[:40], y[:40])),
        lg.Study(network(), (x[:20], y[:20]), reference=(x[20:], y[20:])),
    )
    for study in (split, apart):
        hashes = study.roles.manifest()["records"]
        assert not set(hashes["reported"]) & set(hashes["reference"])
    assert len(apart.reference) + len(apart.tuning) == 40  # the default adversary chooses on a few of them
    assert all(any(torch.equal(record, one) for one in x[:20]) for record in apart.records.inputs)


def test_values_parts_and_expressions_are_the_same_study() -> None:
    noise = lg.defenses.gaussian(std=0.1)
    ways = [{"d": noise}, {"d": "gaussian(std=0.1)"}, {"d": lg.Protection(update=noise)}]
    attacks = [lg.attacks.inverting_gradients(steps=5), "inverting_gradients(steps=5)"]
    studies = [
        lg.Study(network(), images(), defenses=how, adversaries={"a": attack}, leave_out=["adaptive"])
        for how in ways
        for attack in attacks
    ]
    from leakgauge.audit.plan import plan

    identities = {tuple(cell.id for cell in plan(study).cells) for study in studies}
    assert len(identities) == 1


def test_records_numpy_arrays_data_sets_and_tables_are_taken() -> None:
    x, y = images()
    records = Records(x, y, Domain("image", (1, 12, 12), 4))
    for private in (records, (x.numpy(), y.numpy()), [x, y]):
        assert len(lg.Study(network(), private).records) == 10
    data = lg.data.load("fashion_mnist_sample")
    assert lg.Study("logistic", data, work="standard").updates == 20
    rows = np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32)
    table = lg.Study(nn.Linear(5, 2), (rows, np.arange(80) % 2))
    assert table.task.domain.kind == "table"
    assert len(table.task.domain.features) == 5


def test_an_attack_of_ones_own_is_a_callable() -> None:
    study = lg.Study(network(), images(), adversaries={"mine": Greyish(), "two": ["dlg(steps=2)", Greyish()]})
    assert list(study.adversaries) == ["mine", "two", "adaptive (added)"]
    assert study.spec.adversaries["mine"] == f"{__name__}:Greyish"
    assert len(study.tuning) == 8


def test_a_kind_may_be_left_out() -> None:
    study = lg.Study(network(), images(), leave_out=["adaptive"])
    assert list(study.adversaries) == ["generic"]
    assert "LEFT OUT: the adaptive attack" in study.notes[0]


@pytest.mark.parametrize(
    ("changes", "key", "sentence"),
    [
        ({"model": 3}, "model", "is an int; give an nn.Module"),
        ({"model": "logistik"}, "model", "did you mean 'logistic'"),
        ({"records": 3}, "records", "is an int; give (inputs, labels)"),
        ({"records": (torch.rand(9, 4, 4), torch.zeros(9).long())}, "records", "shape (9, 4, 4)"),
        ({"records": (torch.rand(9, 1, 12, 12), torch.zeros(8).long())}, "records", "9 inputs but 8 labels"),
        ({"records": (torch.rand(9, 1, 12, 12), torch.rand(9))}, "records", "one class number per record"),
        ({"records": (torch.rand(60, 1, 12, 12) * 255, images()[1])}, "records", "scale images to [0, 1]"),
        ({"reference": (torch.rand(9, 1, 8, 8), torch.zeros(9).long())}, "records", "shape"),
        ({"recipe": {"batch": 2}}, "recipe", "is a dict; give leakgauge.Recipe"),
        ({"threat": "known"}, "threat", "is a str; give leakgauge.Threat"),
        ({"work": "slow"}, "work", "say one of quick, standard, thorough"),
        ({"defenses": {"d": "gausian(std=1.0)"}}, "defenses.d", "did you mean 'gaussian'"),
        ({"defenses": {"d": 3}}, "defenses.d", "3 is not a defense"),
        ({"defenses": {"d": "soteria(layer='x')"}}, "defenses.d", "there is no layer 'x'"),
        ({"adversaries": {"a": 3}}, "adversaries.a", "3 is not an attack"),
        ({"adversaries": {"a": lg.attacks.Adaptive}}, "adversaries.a", "is not an attack"),
        ({"verdict": {"significnace": 0.1}}, "verdict.significnace", "did you mean 'significance'"),
        ({"updates": 4}, "verdict.significance", "take at least records = 6"),
        ({"updates": 0}, "task.records", "must be at least 1"),
        ({"rounds": 0}, "task.rounds", "must be at least 1"),
        ({"seed": -1}, "seed", "must be at least 0"),
    ],
)
def test_a_wrong_argument_is_one_clear_sentence(changes: dict[str, Any], key: str, sentence: str) -> None:
    arguments: dict[str, Any] = {"model": network(), "records": images(), **changes}
    assert sentence in problems(**arguments)[key]


def test_all_wrong_arguments_at_once() -> None:
    wrong = problems(
        network(),
        images(),
        defenses={"a": "clipp(norm=1.0) | gaussian(std=-1.0)"},
        adversaries={"b": 7},
        work="slow",
        rounds=0,
    )
    assert set(wrong) == {"defenses.a", "adversaries.b", "work", "task.rounds"}


def test_too_few_records_hide_no_other_fault() -> None:
    wrong = problems(network(), images(8), updates=6, defenses=["soteria(layer='x')"])
    assert "are needed" in wrong["task.data"]
    assert "there is no layer 'x'" in wrong["defenses.soteria(layer='x')"]
    with pytest.raises(lg.errors.DataError, match="are needed"):
        lg.Study(network(), images(8), updates=6)


def test_audit_wants_a_study() -> None:
    with pytest.raises(lg.LeakgaugeError, match=r"the study is of type Sequential; give a Study: Study\(model"):
        lg.audit(network())  # type: ignore[arg-type]


def test_a_notebook_audits_its_own_model() -> None:
    study = lg.Study(
        network(), images(), defenses={"none": "identity()", "drowned": "clip(norm=1.0) | gaussian(std=3.0)"},
        adversaries={"linear": "analytic()", "mine": Greyish()}, leave_out=["adaptive"],
    )  # fmt: skip
    result = lg.audit(study)
    # neither attack models the defense, so that its silence says nothing
    assert result.verdicts == {"none": "exact", "drowned": "too weak"}


def test_rounds_are_observed() -> None:
    """Ten rounds of noise are averaged: the same attack reaches more than in one."""
    options: dict[str, Any] = {
        "defenses": {"noisy": "gaussian(std=0.02)"},
        "adversaries": {"a": "bayes(solver=adam(lr=0.1, steps=60), prior=uniform())"},
        "leave_out": ["generic", "adaptive"],
        "updates": 8,
    }
    once, often = (lg.audit(lg.Study(network(), images(), rounds=n, **options)) for n in (1, 10))
    scores = [result.defenses["noisy"].adversaries[0].mean for result in (once, often)]
    assert scores[1] > scores[0]
    assert often.bounds["noisy"].rounds == 10


def test_clients_are_the_studys_and_not_the_chunks() -> None:
    from leakgauge.audit.plan import CHUNK, chunks

    x, y = images(60)
    options: dict[str, Any] = {"reference": (x, y), "updates": 24, "defenses": {"mixed": "mixup(k=2)"}}
    private = (1 - x[:24], y[:24])
    whole, some = lg.Study(network(), private, **options), lg.Study(network(), private, client_records=4, **options)
    mixed = whole.defenses["mixed"]
    assert CHUNK == 10
    assert chunks(whole, mixed) == [((0, 24),)]
    assert chunks(some, mixed) == [((0, 4), (4, 8)), ((8, 12), (12, 16)), ((16, 20), (20, 24))]
    assert chunks(some, lg.Protection()) == [((0, 8),), ((8, 16),), ((16, 24),)]
