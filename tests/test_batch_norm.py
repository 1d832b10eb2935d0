"""Batch norm in train mode: what a client measures, what others may put in its place, and what shared buffers tell."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge import batch_norm
from leakgauge.adversary.statistics import of_round
from leakgauge.client import BATCH_STATISTICS
from leakgauge.errors import ModelError, ObservationError
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 8, 8), 4)
GRANTED = lg.Threat(grants=frozenset({"batch_statistics"}))


def network(**how: Any) -> nn.Module:
    """Two norms, with running statistics that are not those of any batch."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, **how), nn.Tanh(), nn.Flatten(), nn.Linear(108, 6)
    model = nn.Sequential(*layers, nn.BatchNorm1d(6, **how), nn.Tanh(), nn.Linear(6, 4)).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            if module.running_mean is not None and module.running_var is not None:
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 1.5)
    return model


def records(count: int, seed: int = 1) -> Records:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, *DOMAIN.shape, generator=generator, dtype=torch.float64)
    return Records(inputs, torch.arange(count) % 4, DOMAIN)


def task_of(model: nn.Module | None = None, **recipe: Any) -> lg.Task:
    return lg.Task(model or network(), DOMAIN, lg.Recipe(**{"batch": 5, "mode": "train", **recipe}))


def trained_on(model: nn.Module, inputs: Tensor) -> tuple[nn.Module, dict[str, Tensor]]:
    """The oracle: torch's own pass in train mode on a copy, and what each norm got."""
    own, got = copy.deepcopy(model).train(), dict[str, Tensor]()
    for name in ("1", "5"):
        own.get_submodule(name).register_forward_pre_hook(lambda _, args, name=name: got.update({name: args[0]}))
    own(inputs)
    return own, got


def granted(task: lg.Task, some: Records) -> dict[str, Tensor]:
    statistics = lg.observe(task, some, threat=GRANTED)[0].rounds[0].granted[BATCH_STATISTICS]
    assert isinstance(statistics, dict)
    return statistics


def test_granted_statistics_are_those_of_the_private_batch() -> None:
    task, some = task_of(), records(5)
    _, got = trained_on(task.model, some.inputs)
    statistics = granted(task, some)
    torch.testing.assert_close(statistics["1.mean"], got["1"].mean((0, 2, 3)).unsqueeze(0))
    torch.testing.assert_close(statistics["5.variance"], got["5"].var(0, correction=0).unsqueeze(0))


def test_every_local_step_of_every_client_has_its_own_statistics() -> None:
    recipe = {"batch": 8, "clients": 2, "local_steps": 2, "shares": "change", "learning_rate": 0.3, "minibatch": 2}
    task, some = task_of(**recipe), records(8)
    statistics = granted(task, some)
    assert statistics["1.mean"].shape == (4, 3)
    _, got = trained_on(task.model, some.inputs[4:6])  # the first step of the second client, at the first weights
    torch.testing.assert_close(statistics["1.mean"][2], got["1"].mean((0, 2, 3)))
    alone = task_of(batch=2, shares="change", learning_rate=0.3)
    after = {name: p + alone.update(some[4:6])[name] for name, p in task.params.items()}
    moved = copy.deepcopy(task.model)
    moved.load_state_dict({**task.model.state_dict(), **after})
    _, got = trained_on(moved, some.inputs[6:8])
    torch.testing.assert_close(statistics["5.variance"][3], got["5"].var(0, correction=0))


def test_fixed_statistics_make_it_eval_mode() -> None:
    """The oracle is torch's own eval mode, with the private statistics for running ones."""
    task, some = task_of(), records(5)
    statistics = granted(task, some)
    replaced = copy.deepcopy(task.model)
    for name in ("1", "5"):
        norm = replaced.get_submodule(name)
        norm.load_state_dict(
            {
                **norm.state_dict(),
                "running_mean": statistics[f"{name}.mean"][0],
                "running_var": statistics[f"{name}.variance"][0],
            }
        )
    wanted = lg.Task(replaced, DOMAIN, lg.Recipe(batch=5)).update(some)
    fixed = task.update(some, nuisances={BATCH_STATISTICS: statistics})
    measured = task.update(some)
    for name, value in wanted.items():
        torch.testing.assert_close(fixed[name], value)
    # no gradient passes through fixed statistics: even the private ones do not give the client's update
    assert not torch.allclose(fixed["0.weight"], measured["0.weight"], rtol=1e-2)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_shared_buffers_give_the_statistics_away(momentum: float | None) -> None:
    task, some = task_of(network(momentum=momentum), shares_buffers=True), records(5)
    (observation,) = lg.observe(task, some)
    (one,) = observation.rounds
    assert BATCH_STATISTICS not in one.granted
    moved, _ = trained_on(task.model, some.inputs)
    for name, value in one.sent.items():
        torch.testing.assert_close(value, moved.state_dict()[name])
    leaked, private = of_round(task, one), granted(task, some)
    assert leaked is not None
    for name, value in private.items():
        torch.testing.assert_close(leaked[name], value)


def test_without_shared_buffers_only_the_running_statistics_are_known() -> None:
    task = task_of()
    (one,) = lg.observe(task, records(5))[0].rounds
    assert not one.sent
    believed = of_round(task, one)
    assert believed is not None
    state = task.model.state_dict()
    torch.testing.assert_close(believed["1.mean"][0], state["1.running_mean"])
    torch.testing.assert_close(believed["5.variance"][0], state["5.running_var"] * 4 / 5)  # biased, of five numbers
    several = task_of(shares_buffers=True, local_steps=2, shares="change")
    (mixed,) = lg.observe(several, records(5))[0].rounds  # two steps mix: no single batch can be read off
    believed = of_round(several, mixed)
    assert believed is not None
    torch.testing.assert_close(believed["1.mean"][1], state["1.running_mean"])


def test_a_norm_with_a_forward_of_its_own_keeps_it() -> None:
    class Own(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), Own(3), nn.Flatten(), nn.Linear(108, 4)).double()
    task = lg.Task(model, DOMAIN, lg.Recipe(batch=5, mode="train"))
    assert BATCH_STATISTICS not in task.nuisances
    before = copy.deepcopy(model.state_dict())
    task.update(records(5))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_layer_under_two_names_is_one_layer() -> None:
    norm = nn.BatchNorm2d(1)
    model = nn.Sequential(norm, nn.Conv2d(1, 1, 3), norm)
    own = batch_norm.measuring(copy.deepcopy(model).train())
    assert own.get_submodule("0") is own.get_submodule("2")


def test_a_grant_on_a_model_without_batch_norm_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).double()
    for task in (task_of(model), task_of(mode="eval")):
        with pytest.raises(ObservationError, match="no nuisance 'batch_statistics'"):
            lg.observe(task, records(5), threat=GRANTED)


def test_one_value_per_channel_has_no_variance() -> None:
    task = task_of(batch=1)
    with pytest.raises(ModelError, match=r'each of the 6 channels one value, which has no variance.*mode="eval"'):
        lg.observe(task, records(1))
    lg.observe(task_of(batch=1, mode="eval"), records(1))


@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3, 2, 2, 2)])
def test_batches_beside_each_other_are_normalised_as_torch_does_each(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = batch_norm.Measuring(nn.BatchNorm1d(shape[2]).train())
    layer.problems = shape[0]
    each = [nn.functional.batch_norm(one, None, None, training=True, eps=layer.eps) for one in x]
    assert torch.allclose(layer.normalised(x.flatten(0, 1)), torch.cat(each), atol=1e-12)

    def all_that_is_measured(inputs: Tensor) -> tuple[Tensor, ...]:
        normalised = layer.normalised(inputs.flatten(0, 1))
        assert layer.last is not None
        return normalised, *layer.last

    assert torch.autograd.gradcheck(all_that_is_measured, (x.requires_grad_(),))
    assert torch.autograd.gradgradcheck(all_that_is_measured, (x,))
