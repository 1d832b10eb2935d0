"""Hidden rates that repeat between rounds: said where they do, and at the stated level where they do not."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from leakgauge.adversary.rates import hidden_rates, nearest_group, repeated_rates
from leakgauge.adversary.repeats import LEVEL
from leakgauge.client import LABELS, LEARNING_RATE, Recipe
from leakgauge.laws import Uniform
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Domain, Records

DOMAIN = Domain("table", (6,), 3)
CHANGE = Recipe(shares="change", local_steps=2, learning_rate=0.05)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def record() -> tuple[Tensor, Tensor]:
    return torch.randn(1, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([2])


def rounds(task: Task, count: int, seeds: list[int] | None = None, *, start: int = 0) -> Observation:
    """A plain client whose rates are drawn from these seeds, or afresh; the server's weights move between rounds."""
    x, y = record()
    params, several = dict(task.params), []
    for r in range(count):
        generator = torch.Generator().manual_seed(start + r if seeds is None else seeds[r])
        scales = 2 * torch.rand(task.recipe.local_steps, generator=generator)
        update = task.update(Records(x, y, DOMAIN), params, {"lrp.scale": scales})
        rate = {LEARNING_RATE: torch.tensor(task.recipe.learning_rate)} if LEARNING_RATE in task.nuisances else {}
        several.append(Round(update, params, {LABELS: y, **rate}))
        moved = torch.Generator().manual_seed(100 + r)
        params = {n: p + 0.05 * torch.randn(p.shape, generator=moved) for n, p in params.items()}
    return Observation(tuple(several), 1)


def test_rates_that_repeat_are_said() -> None:
    task = Task(network(), DOMAIN).protect("lrp()")
    several, factors = repeated_rates(task, rounds(task, 3, [5, 5, 5]), *record())
    assert [(one.what, one.first, one.second) for one in several] == [("rates", 0, 1), ("rates", 0, 2)]
    assert str(several[0]).startswith("the rates of rounds 1 and 2 repeat (p ")
    assert f"level {LEVEL}" in str(several[0])
    # float32 updates: the factor is a ratio of two sums over some 50 products
    assert float(factors.std() / factors.mean()) < 50 * torch.finfo(torch.float32).eps


def test_the_rounds_that_share_them_are_named() -> None:
    task = Task(network(), DOMAIN).protect("lrp()")
    (one,), _ = repeated_rates(task, rounds(task, 3, [5, 9, 5]), *record())
    assert (one.first, one.second) == (0, 2)


def test_several_local_steps_need_more_rounds() -> None:
    task = Task(network(), DOMAIN, CHANGE).protect("lrp()")
    several, _ = repeated_rates(task, rounds(task, 8, [5] * 8), *record())
    assert len(several) == 7


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("law", [Uniform(0.0, 2.0), Uniform(0.5, 1.5)])
def test_fresh_rates_repeat_at_the_stated_level(count: int, law: Uniform) -> None:
    """At a level of 0.05, which 2,000 trials resolve: the bound holds, and is not empty."""
    trials, level = 2000, 0.05
    generator = torch.Generator().manual_seed(0)
    draws = law.sample((trials, count), generator=generator)
    alarms = sum(nearest_group(row, law)[1] < level for row in draws.tolist())
    assert alarms <= stats.binom.ppf(1 - 1e-6, trials, level)
    assert alarms > 0


def test_fresh_rates_of_a_client_are_not_said_to_repeat() -> None:
    for recipe in (Recipe(), CHANGE):
        task = Task(network(), DOMAIN, recipe).protect("lrp()")
        assert not any(repeated_rates(task, rounds(task, 3, start=3 * t), *record())[0] for t in range(10))


def test_a_wrong_guess_does_not_make_fresh_rates_repeat() -> None:
    task = Task(network(), DOMAIN).protect("lrp()")
    x, y = record()
    assert not any(repeated_rates(task, rounds(task, 3, start=3 * t), 0 * x + 1, y)[0] for t in range(10))


@pytest.mark.parametrize(
    "defense", ["lrp() | clip(norm=0.01)", "lrp(spread=0.0)", "gaussian(std=0.1)", "lrp() | sign()"]
)
def test_where_lengths_say_nothing_of_rates_they_are_not_tested(defense: str) -> None:
    plain = Task(network(), DOMAIN).protect("lrp()")
    task = plain.protect(defense)
    observation = rounds(plain, 2, [5, 5])
    assert hidden_rates(task, observation) is None
    assert repeated_rates(task, observation, *record())[0] == []


def test_granted_rates_are_not_tested() -> None:
    task = Task(network(), DOMAIN).protect("lrp()")
    observation = rounds(task, 2, [5, 5]).given("lrp.scale", torch.ones(1))
    assert hidden_rates(task, observation) is None
