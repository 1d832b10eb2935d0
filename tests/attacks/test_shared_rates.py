"""A client whose rates repeat: adaptive() says so, and its rounds share them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from leakgauge.adversary import Adversary, l2
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.solver import Lbfgs
from leakgauge.attacks import adaptive
from leakgauge.client import LABELS
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import psnr
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Domain, Records

TABLE = Domain("table", (6,), 2)
IMAGE = Domain("image", (1, 8, 8), 4)


def linear() -> nn.Module:
    """Two classes and no bias: the direction of an update is that of the record, and says nothing of its length."""
    torch.manual_seed(0)
    return nn.Linear(6, 2, bias=False)


def smooth() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(96, 24), nn.Tanh(), nn.Linear(24, 4)
    )


def rounds(task: Task, x: Tensor, y: Tensor, count: int, *, same: bool, std: float = 0.0) -> Observation:
    """A client with perturbed rates and noise, both seeded anew every round, or not; the weights move."""
    params, several = dict(task.params), []
    for r in range(count):
        generator = torch.Generator().manual_seed(7 if same else r)
        scale = 2 * torch.rand(1, generator=generator)
        update = task.update(Records(x, y, task.domain), params, {"lrp.scale": scale})
        noisy = {n: v + std * torch.randn(v.shape, generator=generator) for n, v in update.items()}
        several.append(Round(noisy, params, {LABELS: y}))
        moved = torch.Generator().manual_seed(50 + r)
        params = {n: p + 0.3 * torch.randn(p.shape, generator=moved) for n, p in params.items()}
    return Observation(tuple(several), len(x))


def test_rounds_that_share_a_rate_show_how_long_a_record_is() -> None:
    """Free rates leave the length of this record open; shared ones fix it by the ratio of the updates' lengths."""
    x, y = torch.randn(1, 6, generator=torch.Generator().manual_seed(3)), torch.tensor([1])
    task = Task(linear(), TABLE).protect("lrp()")
    observation = rounds(task, x, y, 4, same=True)
    adversary = Adversary(l2(relative=True), solver=Lbfgs(steps=60))
    begin = (0.3 * x).unsqueeze(0)
    free = adversary(task, [observation], begin=begin)
    shared = adversary(task, [observation], begin=begin, shared=Shared((0, 0, 0, 0), {"lrp.scale": torch.ones(1, 4)}))
    torch.testing.assert_close(shared.inputs[0], x, rtol=0.02, atol=0.02)
    assert float((free.inputs[0] - x).norm() / x.norm()) > 0.1


def test_adaptive_says_that_rates_repeat() -> None:
    x, y = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(3)), torch.tensor([1])
    task = Task(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 4)), IMAGE).protect("lrp()")
    with pytest.warns(AssumptionWarning, match=r"hidden rates repeat: the rates of rounds 1 and 2 repeat \(p"):
        guess = adaptive(steps=2)(task, [rounds(task, x, y, 2, same=True)])
    assert guess.status == ("exact",)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        adaptive(steps=2)(task, [rounds(task, x, y, 2, same=False)])


def test_noise_that_repeats_with_the_rates_is_cancelled() -> None:
    x, y = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(3)), torch.tensor([1])
    task = Task(smooth(), IMAGE).protect("lrp() | gaussian(std=1.0)")
    with pytest.warns(AssumptionWarning, match="cancelled by differences .* the rates of rounds 1 and 2 repeat"):
        guess = adaptive(steps=2)(task, [rounds(task, x, y, 2, same=True, std=1.0)])
    assert float(psnr(guess.inputs[0].clamp(0, 1), x)) > 40


@pytest.mark.slow
def test_sharing_does_not_harm_a_network() -> None:
    # an image that directions alone find to 60 dB, so that a repeat cannot be missed on any processor (p near 1e-11)
    x = nn.functional.interpolate(torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(7)), size=8)
    task, y = Task(smooth(), IMAGE).protect("lrp()"), torch.tensor([1])
    with pytest.warns(AssumptionWarning, match="hidden rates repeat"):
        shared = adaptive(steps=200)(task, [rounds(task, x, y, 5, same=True)])
    fresh = adaptive(steps=200)(task, [rounds(task, x, y, 5, same=False)])
    same, other = (float(psnr(one.inputs[0].clamp(0, 1), x)) for one in (shared, fresh))
    assert same > other - 1
