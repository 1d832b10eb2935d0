"""A prior over a few records, and starts at them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import leakgauge as lg
from leakgauge.adversary import Adversary, adam, density
from leakgauge.errors import DomainError
from leakgauge.priors import Finite, tv
from leakgauge.testing import small_records, small_task
from leakgauge.types import Candidate


def test_it_is_the_mixture() -> None:
    atoms = np.random.default_rng(0).random((3, 1, 2, 2)).astype(np.float32)
    x = torch.rand(5, 1, 1, 2, 2, dtype=torch.float64)
    found = Finite(atoms, 0.3)(Candidate(x, torch.zeros(5, 1)))
    parts = [
        torch.distributions.Normal(torch.as_tensor(a).double(), 0.3).log_prob(x[:, 0]).flatten(1).sum(1) for a in atoms
    ]
    assert torch.allclose(found, torch.logsumexp(torch.stack(parts), 0) - np.log(3))


def test_restarts_begin_at_the_records_and_the_best_wins() -> None:
    records = small_records(4)
    task = small_task().protect("clip(norm=1.0) | gaussian(std=0.001)")
    prior = Finite(records.inputs.numpy(), 0.05)
    adversary = Adversary(density(), prior, adam(lr=0.01, steps=2), start="prior", restarts=4)
    # one label for all: the records differ in x alone
    same = lg.Records(records.inputs, torch.zeros_like(records.labels), records.domain)
    made = adversary(task, lg.observe(task, same))
    assert torch.cdist(made.inputs[:, 0].flatten(1).float(), records.inputs.flatten(1).float()).argmin(1).tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_what_has_no_start_is_refused() -> None:
    task = small_task()
    seen = lg.observe(task, small_records(1))
    with pytest.raises(DomainError, match=r"tv\(\) names no starts"):
        Adversary(prior=tv(), solver=adam(steps=1), start="prior")(task, seen)
    wrong = Finite(np.zeros((1, 1, 2, 2), dtype=np.float32), 0.1)
    with pytest.raises(DomainError, match="starts at records of shape"):
        Adversary(prior=wrong, solver=adam(steps=1), start="prior")(task, seen)
    with pytest.raises(DomainError, match="a positive std"):
        Finite(np.zeros((1, 2), dtype=np.float32), 0.0)
