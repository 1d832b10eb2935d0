"""What the adversary observes in each arm of an audit."""

from __future__ import annotations

import torch

from leakgauge.audit.attacking import observed_in
from leakgauge.testing import small_records, small_task
from leakgauge.types import Threat, Tree


def _flat(tree: Tree) -> torch.Tensor:
    return torch.cat([value.flatten() for value in tree.values()])


def test_another_record_comes_with_noise_of_its_own() -> None:
    """With the same noise in both arms, their difference would be the exact difference of two gradients."""
    task, records = small_task().protect("gaussian(std=100.0)"), small_records(2)
    sent = {}
    for arm in ("real", "another"):
        (one,) = observed_in(arm, task, records[:1], records[1:], Threat(), seed=3, noise=4, rounds=1)  # type: ignore[arg-type]
        sent[arm] = _flat(one.rounds[0].observed)
    correlation = float(torch.corrcoef(torch.stack([sent["real"], sent["another"]]))[0, 1])
    assert abs(correlation) < 6 * len(sent["real"]) ** -0.5  # independent ones: 1/√P
