"""The ledger says what noise is assumed to be, whether or not a bound is proven."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.audit.judge.ledger import ledger


@pytest.mark.parametrize(("rounds", "words"), [(1, "one round"), (3, "3 rounds")])
def test_fresh_noise_and_the_number_of_rounds_are_stated(rounds: int, words: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    records = (torch.rand(60, 1, 8, 8), torch.arange(60) % 4)
    study = lg.Study(model, records, defenses={"noisy": "gaussian(std=1.0)", "bare": "identity()"}, rounds=rounds)
    lines = {line.number: line.assumes for line in ledger(study, None, [])}
    assert "drawn afresh in every round" in lines["every number of noisy"]
    assert f"take part in {words}" in lines["every number of noisy"]
    assert "every number of bare" not in lines
