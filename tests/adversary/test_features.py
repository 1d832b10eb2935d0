"""What candidates show lazily: features of every layer and the statistics of batch norms, problem by problem."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.adversary import adam, adversary, l2
from leakgauge.adversary.features import seen_of
from leakgauge.errors import DataError
from leakgauge.types import Candidate, Domain, Prior, Records


def normed(mode: str = "train") -> lg.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4)).double()
    return lg.Task(model, Domain("image", (1, 8, 8), 4), lg.Recipe(batch=5, mode=mode))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_statistics_are_those_of_each_problems_own_batch(mode: str) -> None:
    task = normed(mode)
    inputs = torch.rand(3, 5, 1, 8, 8, dtype=torch.float64)
    seen = seen_of(task, task.params, task.buffers, Candidate(inputs, torch.zeros(3, 5, dtype=torch.long)))
    for n in range(3):
        before = task.model[0](inputs[n])  # type: ignore[index]
        torch.testing.assert_close(seen.features["1"][n], before)
        mean, variance = (moments[n] for moments in seen.statistics["1"])
        torch.testing.assert_close(mean, before.mean((0, 2, 3)))
        torch.testing.assert_close(variance, before.var((0, 2, 3), correction=0))


@dataclass(frozen=True)
class NearMean:
    """A prior on batch statistics: what a batch-norm prior is made of."""

    target: tuple[float, ...]
    weight: float = 1e3

    def __call__(self, candidate: Candidate) -> Tensor:
        mean, _ = candidate.statistics["1"]
        return -self.weight * (mean - torch.tensor(self.target, dtype=mean.dtype)).square().sum(1)


def test_a_prior_may_ask_for_statistics_inside_an_attack() -> None:
    task = normed()
    records = Records(torch.rand(5, 1, 8, 8, dtype=torch.float64), torch.arange(5) % 4, task.domain)
    wanted = task.model[0](records.inputs).mean((0, 2, 3)).detach()  # type: ignore[index]

    def gap(prior: Prior) -> float:
        attack = adversary(likelihood=l2(), prior=prior, solver=adam(lr=0.05, steps=60), start="zeros")
        found = attack(task, lg.observe(task, records))
        reached = seen_of(task, task.params, task.buffers, Candidate(found.inputs, found.labels)).statistics["1"][0]
        return float((reached[0] - wanted).abs().max())

    # a thousandth of a nat per thousandth of the mean: the prior outweighs the rest, so the mean is its target
    assert gap(NearMean(tuple(wanted.tolist()))) < 0.01 < gap(lg.priors.uniform())


def test_a_candidate_outside_an_attack_says_that_it_knows_no_model() -> None:
    with pytest.raises(DataError, match="inside an attack"):
        _ = Candidate(torch.zeros(1, 1, 1), torch.zeros(1, 1)).features
