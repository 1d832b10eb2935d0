"""A first linear layer whose gradient is not that of the record alone: no ratio is taken for the record."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.attacks.analytic import inverts
from leakgauge.errors import ModelError
from leakgauge.preflight import preflight
from leakgauge.testing.red_team import victims

DOMAIN = lg.Domain("image", (1, 6, 6), 4)


def client(model: nn.Module) -> lg.Task:
    return lg.Task(model, DOMAIN)


def seeded(model: type[nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        if model is victims.Twice:
            return victims.Twice(36, 4)
        dense = nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.Tanh(), nn.Linear(20, 4))
        return victims.Rescaled(dense) if model is victims.Rescaled else dense


@pytest.mark.parametrize("model", [victims.Twice, victims.Rescaled])
def test_adaptive_searches_where_the_ratio_is_something_else(model: type[nn.Module]) -> None:
    task = client(seeded(model))
    records = lg.Records(torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(2)), torch.arange(2), DOMAIN)
    found = lg.attacks.adaptive(steps=150)(task, lg.observe(task, records)).inputs[:, 0]
    # the ratio is a mixture of the record and what the layer made of it, or the record turned: 10 dB and less
    assert float(lg.metrics.psnr(found, records.inputs).min()) > 15


@pytest.mark.parametrize("model", [victims.Twice, victims.Rescaled])
def test_the_analytic_attack_refuses_in_a_sentence(model: type[nn.Module]) -> None:
    task = client(seeded(model))
    records = lg.Records(torch.rand(1, 1, 6, 6), torch.tensor([1]), DOMAIN)
    with pytest.raises(ModelError, match="is not that of the raw input alone"):
        lg.attacks.analytic()(task, lg.observe(task, records))


def test_a_layer_that_is_used_twice_is_not_called_exact() -> None:
    def exact(model: nn.Module) -> list[str]:
        return [leak.name for leak in preflight(client(model)) if leak.severity == "exact"]

    assert "first linear layer" not in exact(seeded(victims.Twice))
    assert "first linear layer" in exact(seeded(nn.Sequential))


def test_plain_and_normalised_networks_are_still_read_off() -> None:
    plain = seeded(nn.Sequential)
    assert inverts(client(plain))
    assert inverts(client(lg.models.normalised(plain, [0.3], [0.4])))
    assert inverts(client(plain.double()))
