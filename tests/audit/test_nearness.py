"""What a cell keeps for the test of one record by itself, against its definition; and who is a record's peer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.audit.judge.single import Nearness, single_p
from leakgauge.audit.nearness import nearness
from leakgauge.audit.plan import plan
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.study.roles import digest

SHAPE = (1, 4, 4)


def study(*, seed: int = 0, labels: str = "known", batch: int = 1, defense: str = "identity()") -> lg.Study:
    """Eight updates of random images in three classes."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(240, *SHAPE, generator=generator), torch.arange(240) % 3
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    return lg.Study(
        model,
        (x, y),
        defenses={"it": defense},
        adversaries={"reader": "analytic()"},
        leave_out=["adaptive"],
        recipe=lg.Recipe(batch=batch),
        threat=lg.Threat(labels=labels),  # type: ignore[arg-type]
        updates=8,
        seed=seed,
    )


def table(of: lg.Study, inputs: Tensor) -> Tensor:
    """The definition, one pair at a time."""
    batch, pool, groups = of.task.recipe.batch, of.peers.inputs.double().flatten(1), of.peer_groups
    updates = inputs.double().flatten(1).unflatten(0, (-1, batch))
    rows = torch.zeros(len(updates), len(pool), dtype=torch.float64)
    for u, own in enumerate(updates):
        others = torch.cat([updates[v] for v in range(len(updates)) if v != u]).mean(0)
        for p, x in enumerate(pool):
            away = x - pool[groups == groups[p]].mean(0)
            rows[u, p] = max(float((r - others) @ away / away.norm()) for r in own)
    return rows


@pytest.mark.parametrize("labels", ["known", "inferred"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_cell_keeps_what_the_definition_says(labels: str, batch: int) -> None:
    of = study(labels=labels, batch=batch)
    inputs = torch.rand(8 * batch, *SHAPE, generator=torch.Generator().manual_seed(1))
    told, rows = nearness(of, inputs, 0), table(of, inputs)
    rounding = 1e-6 * float(rows.abs().max())
    own = [float(rows[i // batch, i]) for i in range(8 * batch)]
    assert told["own"] == pytest.approx(own, abs=rounding)
    peers = [[p for p in range(len(of.peers)) if of.peer_groups[p] == of.peer_groups[i]] for i in range(8 * batch)]
    ranks = [sum(float(rows[i // batch, p]) >= own[i] - rounding for p in peers[i]) for i in range(8 * batch)]
    assert told["rank"] == ranks
    assert told["count"] == sum(map(len, peers))
    assert told["square"] == pytest.approx(
        sum(float(rows[i // batch, p]) ** 2 for i in range(8 * batch) for p in peers[i])
    )
    near = {(i // batch, p) for i in range(8 * batch) for p in peers[i] if float(rows[i // batch, p]) >= max(own)}
    assert {(u, p) for u, p, _ in told["tail"]} == near


def test_a_recovered_record_is_nearer_than_every_peer_and_little_else_is_kept() -> None:
    of = study()
    told = nearness(of, of.records.inputs, 0)
    assert told["rank"] == [1] * 8
    assert len(told["tail"]) <= 8  # many would give the reconstruction away
    p = single_p([Nearness.of([told])], of.peer_groups.numpy())
    assert p < 2 / int((of.peer_groups == of.peer_groups[0]).sum())


def test_the_same_picture_for_every_update_is_near_to_nobody() -> None:
    of = study()
    same = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(1)).expand(8, *SHAPE)
    told = nearness(of, same, 0)
    assert single_p([Nearness.of([told])], of.peer_groups.numpy()) > 0.05


def test_tables_are_compared_in_the_spread_of_their_columns() -> None:
    """A column in another unit changes nothing."""
    domain = lg.Domain(
        "table", (2,), 2, features=(lg.types.Feature("a", spread=2.0), lg.types.Feature("b", spread=0.1))
    )
    rows = torch.tensor([[2.0, 0.1], [4.0, torch.nan]])
    assert lg.metrics.vectors(rows, domain).tolist() == [[1.0, pytest.approx(1.0)], [2.0, 0.0]]


@pytest.mark.parametrize("labels", ["known", "inferred"])
def test_peers_are_the_reported_records_and_others_mixed_alike(labels: str) -> None:
    of = study(labels=labels)
    reported, pool = of.records, of.peers
    assert torch.equal(pool.inputs[:8], reported.inputs)
    taken = {digest({"x": x}) for some in (reported, of.tuning) for x in some.inputs}
    assert not taken & {digest({"x": x}) for x in pool.inputs[8:]}
    times = pool.labels.bincount(minlength=3) / reported.labels.bincount(minlength=3)
    assert (times > 10).all()
    if labels == "inferred":
        assert (times == times[0]).all()
    assert (of.peer_groups.unique().numel() == 1) == (labels == "inferred")


def test_p_values_of_a_drowned_client_are_uniform(tmp_path: Path) -> None:
    """The law of exchangeability on real attacks, tiny; evidence: false alarms."""
    p = []
    for seed in range(40):
        of = study(seed=seed, labels=("known", "inferred")[seed % 2], defense="gaussian(std=100.0)")
        (defense,) = of.defenses.values()
        (cell,) = plan(of).of(defense=defense, arm="real")
        told, _ = Work(of, Store(tmp_path)).run(cell)
        p.append(single_p([Nearness.of([told["nearness"]])], of.peer_groups.numpy(), draws=999))
    assert stats.kstest(np.array(p), "uniform").pvalue > 1e-3
