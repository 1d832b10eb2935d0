"""Tasks: the user's model stays as it is, and what does not fit is said at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client import Recipe
from leakgauge.errors import DataError, ExpressionError, ModelError, ObservationError
from leakgauge.observation import observe
from leakgauge.task import ClientContext, Task, working_copy
from leakgauge.testing import small_records, small_task, task_is_untouched
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)


def normed() -> nn.Module:
    layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 4)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_making_and_using_a_task_leaves_the_model_alone(mode: str) -> None:
    model = normed().train(mode == "eval")  # the other way round than the recipe wants it
    model(torch.rand(2, 1, 6, 6)).sum().backward()

    def use() -> None:
        task = Task(model, DOMAIN, Recipe(batch=2, mode=mode))  # type: ignore[arg-type]
        task.update(small_records(2))
        observe(task.protect("gaussian(std=0.1)"), small_records(4))
        task.to(dtype=torch.float64).update(small_records(2))
        ClientContext(task, small_records(2), task.params).representation("4")

    task_is_untouched(model, use)


def test_the_working_copy_shares_parameters_and_keeps_nothing_in_place() -> None:
    model = normed()
    copied = working_copy(model, "train")
    for (name, p), (other, q) in zip(model.named_parameters(), copied.named_parameters(), strict=True):
        assert name == other
        assert p is q
    assert copied.training
    assert not any(getattr(module, "inplace", False) for module in copied.modules())
    assert [name for name, _ in copied.named_buffers()] == []  # batch statistics: nothing to write
    assert len(list(working_copy(model, "eval").named_buffers())) == 3


def test_batch_statistics_are_used_in_train_mode_and_running_ones_in_eval_mode() -> None:
    model, records = normed(), small_records(4)
    updates = {mode: Task(model, DOMAIN, Recipe(batch=4, mode=mode)).update(records) for mode in ("train", "eval")}
    assert not torch.allclose(updates["train"]["0.weight"], updates["eval"]["0.weight"])


def test_an_update_at_other_parameters() -> None:
    task, records = small_task(), small_records(1)
    other = {name: 2 * p for name, p in task.params.items()}
    there = task.update(records, other)
    model = small_task().model
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    wanted = Task(model, task.domain).update(records)
    for name, value in there.items():
        torch.testing.assert_close(value, wanted[name])


def test_protect_takes_expressions_parts_and_protections() -> None:
    task = small_task()
    text = "clip(norm=1.0) | gaussian(std=0.1)"
    made = task.protect(text)
    assert repr(made.protection) == text
    assert task.protect(made.protection.update) == task.protect(made.protection) == made
    with pytest.raises(ExpressionError, match="defense: unknown name 'gausian'"):
        task.protect("gausian(std=0.1)")


def test_precision_follows_the_model() -> None:
    task = small_task(dtype=torch.float32)
    assert task.update(small_records(1))["last.bias"].dtype == torch.float32
    assert task.to(dtype=torch.float64).update(small_records(1))["last.bias"].dtype == torch.float64


class Tuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return self.layer(x.flatten(1)), 1


BAD: dict[str, tuple[object, str]] = {
    "no module": ("resnet", "Task: the model is a str; give an nn.Module"),
    "no parameters": (nn.Flatten(), "Task: the model has no trainable parameters; give a model that trains"),
    "frozen": (
        nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).requires_grad_(False),
        "Task: the model has no trainable parameters; give a model that trains",
    ),
    "shape": (
        nn.Sequential(nn.Flatten(), nn.Linear(35, 4)),
        "Task: the model does not take inputs of shape (1, 6, 6) (RuntimeError: ",
    ),
    "classes": (
        nn.Sequential(nn.Flatten(), nn.Linear(36, 5)),
        "Task: the model returns (2, 5) for 2 inputs, the domain has 4 classes; make the model return",
    ),
    "outputs": (Tuple(), "Task: the model returns tuple for 2 inputs, the domain has 4 classes; make the model return"),
    "dimensions": (nn.Conv2d(1, 4, 1), "Task: the model returns (2, 4, 6, 6) for 2 inputs, the domain has 4 classes"),
}


@pytest.mark.parametrize("which", BAD)
def test_a_model_that_does_not_fit_is_refused_with_what_and_remedy(which: str) -> None:
    model, wanted = BAD[which]
    with pytest.raises(ModelError) as raised:
        Task(model, DOMAIN)  # type: ignore[arg-type]
    assert wanted in str(raised.value)
    assert raised.value.remedy


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "no such device"])
def test_a_device_that_is_not_there_is_refused_in_a_sentence(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    domain = Domain("image", (1, 4, 4), 2)
    task = Task(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), domain)
    with pytest.raises(ModelError, match=f'Task.to: cannot be moved to {device} .*; stay on "cpu"'):
        task.to(device)


def test_a_client_shows_its_examples_and_representations_to_defenses() -> None:
    task, records = small_task(batch=3), small_records(3)
    context = ClientContext(task, records, task.params)
    alone = context.per_example()
    for i in range(3):
        single = Task(task.model, task.domain).update(records[i : i + 1])
        for name, value in single.items():
            torch.testing.assert_close(alone[name][i], value)
    for name, value in task.update(records).items():
        torch.testing.assert_close(alone[name].mean(0), value)
    features = context.representation("last")
    assert features.shape == (3, 1250)
    logits = features @ task.params["last.weight"].T + task.params["last.bias"]
    torch.testing.assert_close(logits, task.model(records.inputs.double()))
    inputs = records.inputs.double().requires_grad_()
    (slope,) = torch.autograd.grad(context.representation_of("last")(inputs).sum(), inputs)
    assert bool(slope.any())
    with pytest.raises(ModelError, match=r"model: there is no layer 'lsat'; did you mean 'last'\?"):
        context.representation("lsat")


@pytest.mark.parametrize(
    ("inputs", "labels", "what"),
    [
        (torch.rand(2, 1, 6, 6), [0], "Records: 2 inputs but 1 labels; give one label per input"),
        (torch.rand(2, 6, 6), [0, 1], "Records: inputs have shape (6, 6), the domain says (1, 6, 6); give inputs as"),
        (torch.rand(2, 1, 6, 6), [0, 4], "Records: labels span 0..4; labels must lie in 0..3"),
        (torch.rand(2, 1, 6, 6), [-1, 0], "Records: labels span -1..0; labels must lie in 0..3"),
    ],
)
def test_records_guard_their_domain(inputs: Tensor, labels: list[int], what: str) -> None:
    with pytest.raises(DataError) as raised:
        Records(inputs, torch.tensor(labels), DOMAIN)
    assert str(raised.value).startswith(what)


def test_records_are_indexed_and_batched() -> None:
    records = small_records(7)
    assert len(records[:3]) == 3
    assert torch.equal(records[[4, 1]].labels, records.labels[[4, 1]])
    assert len(records[[]]) == 0
    assert [len(part) for part in records.batches(3)] == [3, 3]
    assert DOMAIN.size == 36
    assert DOMAIN.box == (0.0, 1.0)
    assert Domain("table", (5,), 2).box is None


def test_arguments_of_another_kind_are_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"the domain is a str; give a Domain\("):
        Task(normed(), "image")  # type: ignore[arg-type]
    with pytest.raises(ObservationError, match=r"the threat is a str; give a Threat, as in Threat\("):
        observe(small_task(), small_records(1), threat="known")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "labels", "domain", "what"),
    [
        ([1, 2], [0, 1], DOMAIN, "inputs are a list"),
        (torch.rand(2, 1, 6, 6), [0, 1], DOMAIN, "labels are a list"),
        (torch.rand(2, 1, 6, 6), torch.tensor([0.0, 1.0]), DOMAIN, "torch.float32"),
        (torch.rand(2, 1, 6, 6), torch.tensor([[0, 1], [1, 0]]), DOMAIN, "(2, 2)"),
        (torch.rand(2, 1, 6, 6), torch.tensor([True, False]), DOMAIN, "torch.bool"),
        (torch.rand(2, 1, 6, 6), torch.tensor([0, 1]), "image", "domain is a str"),
    ],
)
def test_records_of_another_kind_are_refused_in_a_sentence(inputs: Any, labels: Any, domain: Any, what: str) -> None:
    with pytest.raises(DataError) as raised:
        Records(inputs, labels, domain)
    assert what in raised.value.what
    assert raised.value.remedy


def test_one_place_gives_one_record() -> None:
    records = small_records(3)
    assert len(records[1]) == 1
    assert torch.equal(records[-1].inputs, records.inputs[2:])
    assert [int(records[i].labels) for i in range(3)] == records.labels.tolist()


def test_a_defense_in_the_place_of_the_recipe_is_told_where_it_goes() -> None:
    task = small_task()
    for options in ({"recipe": "gaussian(std=1.0)"}, {"protection": "gaussian(std=1.0)"}):
        with pytest.raises(ModelError, match="is a str") as raised:
            Task(task.model, task.domain, **options)  # type: ignore[arg-type]
        assert "task.protect" in str(raised.value.remedy)
