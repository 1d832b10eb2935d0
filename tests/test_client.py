"""The one client: gradients and weight changes against torch's own training, losses, recipes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from leakgauge.client import Recipe, gradient_of, update_of
from leakgauge.errors import DomainError, ExpressionError, LeakgaugeError, ModelError
from leakgauge.losses import CrossEntropy, SquaredError, loss_named
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task
from tests.adversary.networks import FITTING, task_of


def trained(model: nn.Module, recipe: Recipe, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The weight change by ``torch.optim.SGD`` and ``backward``, on a copy."""
    own = copy.deepcopy(model).train(recipe.mode == "train")
    before = {name: p.detach().clone() for name, p in own.named_parameters()}
    optimiser = torch.optim.SGD(
        own.parameters(), recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    width = recipe.minibatch or len(inputs)
    for step in range(recipe.local_steps):
        start = step * width % (len(inputs) // width * width)
        outputs = own(inputs[start : start + width])
        loss = nn.functional.cross_entropy(outputs, labels[start : start + width], reduction=recipe.reduction)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: p.detach() - before[name] for name, p in own.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"local_steps": 4, "learning_rate": 0.3},
        {"local_steps": 5, "momentum": 0.9, "weight_decay": 0.1},
        {"local_steps": 7, "minibatch": 2},
        {"local_steps": 3, "minibatch": 4},
        {"local_steps": 2, "reduction": "sum", "learning_rate": 0.01},
    ],
)
def test_a_weight_change_is_what_sgd_does(options: dict[str, Any]) -> None:
    recipe = Recipe(batch=6, shares="change", **options)
    task, records = task_of(FITTING["residual"], recipe=recipe), small_records(6)
    inputs = nn.functional.pad(records.inputs.double(), (1, 1, 1, 1))
    made = update_of(task.working, task.params, task.buffers, inputs, records.labels, recipe)
    for name, wanted in trained(task.model, recipe, inputs, records.labels).items():
        torch.testing.assert_close(made[name], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_gradient_is_what_backward_leaves(mode: str, reduction: str) -> None:
    recipe = Recipe(batch=4, mode=mode, reduction=reduction)  # type: ignore[arg-type]
    task, records = task_of(FITTING["batch norm, eval"], recipe=recipe), small_records(4)
    inputs = nn.functional.pad(records.inputs.double(), (1, 1, 1, 1))
    made = gradient_of(task.working, task.params, task.buffers, inputs, records.labels, recipe)
    own = copy.deepcopy(task.model).train(mode == "train")
    nn.functional.cross_entropy(own(inputs), records.labels, reduction=reduction).backward()
    for name, p in own.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(made[name], p.grad, rtol=1e-9, atol=1e-12)


def test_the_update_can_be_differentiated_in_everything() -> None:
    task, records = small_task(batch=2), small_records(2)
    inputs = records.inputs.double().requires_grad_()
    soft = nn.functional.one_hot(records.labels, 4).double().requires_grad_()
    params = {name: p.clone().requires_grad_() for name, p in task.params.items()}
    made = update_of(task.working, params, task.buffers, inputs, soft, task.recipe)
    total = torch.stack([value.square().sum() for value in made.values()]).sum()
    slopes = torch.autograd.grad(total, [inputs, soft, *params.values()])
    assert all(bool(slope.any()) for slope in slopes)


@given(st.integers(1, 5), st.integers(2, 6), st.floats(0, 0.9), st.integers(0, 10**6))
def test_cross_entropy_is_torchs(batch: int, classes: int, smoothing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(batch, classes, generator=generator, dtype=torch.float64) * 5
    labels = torch.randint(0, classes, (batch,), generator=generator)
    wanted = nn.functional.cross_entropy(outputs, labels, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(CrossEntropy(smoothing)(outputs, labels), wanted)
    soft = torch.rand(batch, classes, generator=generator, dtype=torch.float64).softmax(-1)
    wanted = nn.functional.cross_entropy(outputs, soft, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(CrossEntropy(smoothing)(outputs, soft), wanted)


def test_squared_error_of_classes_and_of_targets() -> None:
    outputs, labels = torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([0, 1])
    assert SquaredError()(outputs, labels).tolist() == [2.0, 2.0]
    assert SquaredError()(outputs, torch.zeros(2, 2)).tolist() == [2.5, 4.5]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"batch": 0}, "recipe: batch must be an integer ≥ 1, got 0"),
        ({"local_steps": 0}, "recipe: local_steps must be an integer ≥ 1, got 0"),
        ({"learning_rate": 0.0}, "recipe: learning_rate must lie in (0, ∞), got 0.0"),
        ({"learning_rate": float("nan")}, "recipe: learning_rate must lie in (0, ∞), got nan"),
        ({"local_steps": 2}, "recipe: 2 local steps have no single gradient"),
        ({"batch": 2, "minibatch": 3, "shares": "change"}, "recipe: minibatch must lie in 1..2 (batch), got 3"),
        ({"minibatch": 0}, "recipe: minibatch must lie in 1..1 (batch), got 0"),
        ({"mode": "trian"}, "recipe: mode must be one of train, eval, got 'trian'"),
        ({"shares": "gradients"}, "recipe: shares must be one of gradient, change, got 'gradients'"),
        ({"reduction": "max"}, "recipe: reduction must be one of mean, sum, got 'max'"),
    ],
)
def test_a_recipe_guards_its_domain(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DomainError) as raised:
        Recipe(**options)
    assert f"{raised.value.where}: {raised.value.what}" == what
    assert raised.value.remedy


def half(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss of the user's own."""
    return 0.5 * CrossEntropy()(outputs, labels)


def test_losses_by_name_and_by_path() -> None:
    assert loss_named("cross_entropy") == CrossEntropy()
    assert loss_named("squared_error") == SquaredError()
    own = loss_named(f"{__name__}:half")
    outputs, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
    torch.testing.assert_close(own(outputs, labels), half(outputs, labels))
    with pytest.raises(ModelError, match=r"recipe\.loss: unknown loss 'cross_entrpy'; did you mean 'cross_entropy'\?"):
        loss_named("cross_entrpy")
    with pytest.raises(ExpressionError, match="loss: cannot load"):
        loss_named("nowhere:loss")


def test_adam_steps_are_torch_s() -> None:
    task, records = small_task(), small_records(6)
    recipe = Recipe(batch=6, shares="change", local_steps=5, minibatch=2, learning_rate=0.01, optimiser="adam")
    made = update_of(task.working, task.params, task.buffers, records.inputs.double(), records.labels, recipe)
    own = copy.deepcopy(task.model)
    before = {name: p.detach().clone() for name, p in own.named_parameters()}
    optimiser = torch.optim.Adam(own.parameters(), 0.01)
    for step in range(5):
        rows = slice(step % 3 * 2, step % 3 * 2 + 2)
        optimiser.zero_grad()
        nn.functional.cross_entropy(own(records.inputs[rows].double()), records.labels[rows]).backward()
        optimiser.step()
    for name, p in own.named_parameters():
        torch.testing.assert_close(made[name], p.detach() - before[name], rtol=1e-7, atol=1e-10)


def test_an_update_of_adam_has_a_slope_where_a_gradient_is_zero() -> None:
    task = small_task()
    recipe = Recipe(shares="change", local_steps=2, learning_rate=0.01, optimiser="adam")
    params = {**task.params, "last.weight": torch.zeros_like(task.params["last.weight"])}  # nothing flows back past it
    inputs = small_records(1).inputs.double().requires_grad_()
    update = update_of(task.working, params, task.buffers, inputs, small_records(1).labels, recipe)
    (slope,) = torch.autograd.grad(sum(value.sum() for value in update.values()), inputs)
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("shares", ["gradient", "change"])
def test_the_mean_of_clients_is_that_of_their_own_updates(shares: Any) -> None:
    task, records = small_task(), small_records(6)
    inputs = records.inputs.double()
    steps = {"local_steps": 3, "minibatch": 1} if shares == "change" else {}
    alone, together = Recipe(batch=2, shares=shares, **steps), Recipe(batch=6, clients=3, shares=shares, **steps)
    each = [
        update_of(task.working, task.params, task.buffers, inputs[i : i + 2], records.labels[i : i + 2], alone)
        for i in (0, 2, 4)
    ]
    mean = update_of(task.working, task.params, task.buffers, inputs, records.labels, together)
    for name, value in mean.items():
        torch.testing.assert_close(value, sum(one[name] for one in each) / 3, rtol=1e-12, atol=1e-15)


def test_a_drawn_order_is_the_order_of_the_steps() -> None:
    task, records = small_task(), small_records(4)
    recipe = Recipe(batch=4, minibatch=2, local_steps=4, shares="change", shuffle=True)
    shuffled = Task(task.model, task.domain, recipe)
    order = shuffled.draw(4, (3,))["recipe.order"]
    assert isinstance(order, torch.Tensor)
    assert sorted(order[:2].flatten().tolist()) == sorted(order[2:].flatten().tolist()) == [0, 1, 2, 3]
    rows = order.flatten()
    plain = Recipe(batch=8, minibatch=2, local_steps=4, shares="change")
    wanted = update_of(
        task.working, task.params, task.buffers, records.inputs.double()[rows], records.labels[rows], plain
    )
    for name, value in shuffled.update(records, nuisances={"recipe.order": order}).items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clients": 0}, "clients must be an integer ≥ 1"),
        ({"batch": 4, "clients": 3}, "4 examples are not shared equally by 3 clients; say batch=6"),
        ({"batch": 4, "clients": 2, "minibatch": 3}, r"minibatch must lie in 1..2 \(batch\)"),
        ({"optimiser": "adam"}, 'Adam takes steps, it shares no gradient; say shares="change"'),
    ],
)
def test_recipes_of_several_clients_and_of_adam_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Recipe(**options)


def test_all_wrong_numbers_of_a_recipe_are_named() -> None:
    with pytest.raises(DomainError) as raised:
        Recipe(batch=0, learning_rate=-1, mode="test")  # type: ignore[arg-type]
    for part in ("batch must be an integer", "learning_rate must lie in", "mode must be one of"):
        assert part in str(raised.value)
    with pytest.raises(DomainError, match=r"^recipe: batch must be an integer ≥ 1, got 0; give"):
        Recipe(batch=0)


def test_a_loss_is_read_with_its_settings() -> None:
    assert loss_named("cross_entropy(smoothing=0.1)") == CrossEntropy(smoothing=0.1)
    assert loss_named("cross_entropy()") == loss_named("cross_entropy")
    for text in (
        "cross_entropy(smoothing=1.0)",
        "cross_entropy(smoothing=-0.1)",
        "cross_entropy(smothing=0.1)",
        "tv()",
    ):
        with pytest.raises(LeakgaugeError):
            loss_named(text)


def test_all_that_is_wrong_with_a_recipe_is_said_at_once() -> None:
    wrong = {"batch": 0, "local_steps": 0, "learning_rate": -1, "mode": "x", "optimiser": "y"}
    with pytest.raises(DomainError) as raised:
        Recipe(**wrong)  # type: ignore[arg-type]
    assert all(name in str(raised.value) for name in wrong)
