"""The ledger says what noise is assumed to be, whether or not a bound is proven, and what a learned prior draws."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.audit.judge.ledger import ledger
from leakgauge.audit.judge.values import Adversary, Checkpoint, Defense
from leakgauge.testing.catalogue import TINY_PRIOR


@pytest.mark.parametrize(("rounds", "words"), [(1, "one round"), (3, "3 rounds")])
def test_fresh_noise_and_the_number_of_rounds_are_stated(rounds: int, words: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    records = (torch.rand(60, 1, 8, 8), torch.arange(60) % 4)
    study = lg.Study(model, records, defenses={"noisy": "gaussian(std=1.0)", "bare": "identity()"}, rounds=rounds)
    lines = {line.number: line.assumes for line in ledger(study, None, [])}
    assert "every round draws new noise" in lines["every number of noisy"]
    assert f"take part in {words}" in lines["every number of noisy"]
    assert "every number of bare" not in lines


def test_a_learned_prior_is_measured_without_the_update() -> None:
    records = (torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2)
    adversaries = {"latent": f"gias(prior={TINY_PRIOR}, steps=1, restarts=1)", "plain": "dlg(steps=1)"}
    study = lg.Study("mlp(width=4, depth=1)", records, adversaries=adversaries, updates=6)

    def told(gains: tuple[float, ...]) -> str:
        scores = {"noise": {"psnr": (9.0,) * 6}, "real": {"psnr": tuple(9.0 + gain for gain in gains)}}
        both = tuple(Adversary(name=name, scores=scores) for name in adversaries)
        defense = Defense.model_construct(name="none", adversaries=both)
        checkpoint = Checkpoint.model_construct(step=0, defenses=(defense,))
        (line,) = [line for line in ledger(study, None, [checkpoint]) if "noise in place" in line.assumes]
        assert line.number == "latent against none"
        return line.assumes

    blind = told((0.1, -0.1, 0.2, -0.2, 0.0, 0.0))
    assert "9.0 dB with noise in place of the update, 9.0 dB with the update; the gain is within chance" in blind
    assert told((5.0, 6.0, 5.5, 5.2, 6.1, 5.9)).endswith("14.6 dB with the update")
