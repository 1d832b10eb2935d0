"""Probes of Opacus on a linear model: whether seeds decide the noise, and what its accountant counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from leakgauge.claims.probes import Numbers, probe

RECORDS, BATCH = 40, 4


def _private(multiplier: float, poisson: bool) -> tuple[Any, Any, Any, Any]:
    from opacus import PrivacyEngine

    model = nn.Linear(6, 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.randn(RECORDS, 6), torch.zeros(RECORDS).long()), batch_size=BATCH)
    engine = PrivacyEngine(accountant="rdp")
    return engine, *engine.make_private(
        module=model, optimizer=optimiser, data_loader=loader, noise_multiplier=multiplier, max_grad_norm=1.0,
        poisson_sampling=poisson,
    )  # fmt: skip


def _step(model: Any, optimiser: Any, inputs: Tensor) -> Tensor:
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(inputs), torch.zeros(len(inputs)).long()).backward()
    optimiser.step()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).detach().clone()


@probe("opacus")
def seeded_noise() -> tuple[bool, Numbers]:
    """Whether a program that seeds torch decides the noise (``secure_mode`` off)."""
    noise = []
    for _ in range(2):
        torch.manual_seed(5)
        _, model, optimiser, _ = _private(1.0, True)
        torch.manual_seed(7)
        noise.append(_step(model, optimiser, torch.zeros(BATCH, 6)))
    same = float((noise[0] == noise[1]).double().mean())
    return same == 1.0, {"equal entries": same}


@probe("opacus")
def sampling_counted() -> tuple[bool, Numbers]:
    """Whether its accountant counts on Poisson sampling although ``poisson_sampling=False``."""
    engine, model, optimiser, loader = _private(1.0, False)
    for inputs, _ in loader:
        _step(model, optimiser, inputs)
    epsilon = float(engine.get_epsilon(delta=1e-5))
    (_, rate, _), *_ = engine.accountant.history
    return rate < 1.0, {"rate": float(rate), "epsilon": epsilon}
