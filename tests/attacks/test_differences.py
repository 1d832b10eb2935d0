"""A client that re-seeds its generator every round: differences of its rounds give its record away."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks import adaptive
from leakgauge.attacks.differences import cancelled, differences, repeated
from leakgauge.client import LABELS, Recipe
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import psnr
from leakgauge.models import normalised
from leakgauge.observation import Observation, Round, observe
from leakgauge.task import Task
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 8, 8), 4)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4))


def smooth() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(96, 24), nn.Tanh(), nn.Linear(24, 4)
    )


def observed(
    model: nn.Module, x: Tensor, y: Tensor, *, same: bool, std: float = 1.0, known: bool = False
) -> Observation:
    """Two rounds of a plain client between which the server's weights move."""
    model, rounds = copy.deepcopy(model), []
    for r in range(2):
        generator = torch.Generator().manual_seed(7 if same else r)
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        noisy = {
            n: p.grad + std * torch.randn(p.shape, generator=generator)
            for n, p in model.named_parameters()
            if p.grad is not None
        }
        weights = {n: p.detach().clone() for n, p in model.named_parameters()}
        rounds.append(Round(noisy, weights, {LABELS: y} if known else {}))
        torch.optim.SGD(model.parameters(), lr=0.3).step()
    return Observation(tuple(rounds), len(x))


def record(seed: int = 0, count: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 8, 8, generator=generator), torch.arange(count) + 2


def test_adaptive_cancels_repeated_noise_and_says_so() -> None:
    x, y = record()
    task = Task(linear(), DOMAIN).protect("gaussian(std=1.0)")
    with pytest.warns(AssumptionWarning, match="noise repeats: cancelled by differences"):
        guess = adaptive(steps=2)(task, [observed(linear(), x, y, same=True)])
    assert float(psnr(guess.inputs[0], x)) > 60
    assert guess.labels.tolist() == [[2]]


def test_it_needs_no_first_linear_layer() -> None:
    x, y = record()
    task = Task(smooth(), DOMAIN).protect("gaussian(std=1.0)")
    observation = observed(smooth(), x, y, same=True, known=True)
    guess = cancelled(task, observation, repeated(task, observation))
    assert guess is not None
    assert float(psnr(guess.inputs[0].clamp(0, 1), x)) > 40


def test_fresh_noise_is_left_to_the_adversary_of_the_noise() -> None:
    x, y = record()
    task = Task(linear(), DOMAIN).protect("gaussian(std=1.0)")
    fresh, same = (observed(linear(), x, y, same=one, known=True) for one in (False, True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        alone = adaptive(steps=2)(task, [fresh])
    with pytest.warns(AssumptionWarning, match="noise repeats"):
        both = adaptive(steps=2)(task, [fresh, same])
    torch.testing.assert_close(both.inputs[0], alone.inputs[0], rtol=1e-4, atol=1e-4)
    assert float(psnr(both.inputs[1], x)) > 60


def test_the_same_noise_at_the_same_weights_counts_once() -> None:
    x, y = record()
    task = Task(linear(), DOMAIN).protect("gaussian(std=0.01)")
    (one,) = observe(task, Records(x, y, DOMAIN))
    twice = Observation((one.rounds[0], one.rounds[0]), 1)
    assert differences(task, twice, repeated(task, twice)) is None
    with pytest.warns(AssumptionWarning, match="rounds that share it count once"):
        guess = adaptive(steps=3)(task, [twice])
    torch.testing.assert_close(guess.inputs, adaptive(steps=3)(task, [one]).inputs, rtol=1e-4, atol=1e-4)


def test_a_change_and_a_normalisation_are_undone() -> None:
    x, y = record()
    model = normalised(linear(), [0.3], [0.5])
    task = Task(model, DOMAIN, Recipe(shares="change", learning_rate=0.2)).protect("gaussian(std=1.0)")
    gradients = observed(model, x, y, same=True)
    rounds = tuple(Round({n: -v for n, v in r.observed.items()}, r.params) for r in gradients.rounds)
    guess = cancelled(task, Observation(rounds, 1), repeated(task, Observation(rounds, 1)))
    assert guess is not None
    assert float(psnr(guess.inputs[0], x)) > 60


def test_clipping_does_not_matter_to_a_first_linear_layer() -> None:
    x, y = record()
    task = Task(linear(), DOMAIN).protect("clip(norm=0.1) | gaussian(std=1.0)")
    scaled, clipped = observed(linear(), x, y, same=True, std=0.0), []
    noise = {n: torch.randn_like(v) for n, v in scaled.rounds[0].observed.items()}
    for one in scaled.rounds:
        length = torch.cat([v.flatten() for v in one.observed.values()]).norm()
        clipped.append(Round({n: 0.1 * v / length + noise[n] for n, v in one.observed.items()}, one.params))
    observation = Observation(tuple(clipped), 1)
    guess = cancelled(task, observation, repeated(task, observation))
    assert guess is not None
    assert float(psnr(guess.inputs[0].clamp(0, 1), x)) > 60


def test_what_differences_cannot_cancel() -> None:
    x, y = record()
    steps = Recipe(shares="change", local_steps=3)
    for task in (
        Task(smooth(), DOMAIN).protect("clip(norm=1.0) | gaussian(std=1.0)"),
        Task(linear(), DOMAIN, steps).protect("gaussian(std=1.0)"),
    ):
        observation = observed(task.model, x, y, same=True)
        which = repeated(task, observation)
        assert which
        assert cancelled(task, observation, which) is None
