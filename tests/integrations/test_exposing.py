"""The exposure check of a gate: what stands in single rows of an outgoing update."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.errors import ExpressionError
from leakgauge.integrations.exchange import Exchange
from leakgauge.integrations.exposing import read_off
from leakgauge.integrations.judging import Judge
from leakgauge.models import normalised
from leakgauge.types import Domain, Feature, Records

DOMAIN = Domain("image", (1, 6, 6), 4)
COUNT = 20


def made(bias: float = -1.5) -> tuple[lg.Task, Records]:
    """A network few of whose units a record activates, and more records than an attack assumes in a batch."""
    torch.manual_seed(0)
    linear = nn.Linear(36, 64)
    nn.init.normal_(linear.weight)
    nn.init.constant_(linear.bias, 4 * bias)
    model = normalised(nn.Sequential(nn.Flatten(), linear, nn.ReLU(), nn.Linear(64, 4)), [0.4], [0.3])
    records = Records(torch.rand(COUNT, 1, 6, 6), torch.arange(COUNT) % 4, DOMAIN)
    return lg.Task(model, DOMAIN, lg.Recipe(batch=COUNT)), records


def lone(task: lg.Task, records: Records) -> int:
    """By hand: the records that are alone in some unit."""
    model = nn.Sequential(*list(task.model.children())[:2])
    active = model((records.inputs - 0.4) / 0.3) > 0
    return len(set(active[:, active.sum(0) == 1].float().argmax(0).tolist()))


def sent(task: lg.Task, records: Records) -> dict[str, Tensor]:
    return {name: -0.1 * value for name, value in task.update(records).items()}


def test_every_record_that_is_alone_in_a_unit_is_found_in_a_batch_of_any_size() -> None:
    task, records = made()
    assert 3 <= lone(task, records) < COUNT
    assert read_off(task, sent(task, records), records, 60.0) == lone(task, records)


def test_what_is_no_longer_in_the_row_does_not_count() -> None:
    task, records = made()
    generator = torch.Generator().manual_seed(1)
    noised = {
        name: value + torch.empty_like(value).normal_(generator=generator)
        for name, value in sent(task, records).items()
    }
    assert read_off(task, noised, records, 14.0) == 0


def test_where_nobody_is_alone_or_no_layer_is_open_nothing_is_said() -> None:
    task, records = made(bias=40.0)
    assert read_off(task, sent(task, records), records, 14.0) == 0
    smooth = lg.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 4)), DOMAIN)
    assert read_off(smooth, sent(smooth, records), records, 14.0) == 0


TABLE = Domain("table", (6,), 3, tuple(Feature(f"column {i}", spread=0.3) for i in range(6)))


def client_of_rows(std: float = 0.0) -> tuple[nn.Module, Records, Exchange]:
    """One step on one row of a table, plain PyTorch; noise on what it sends."""
    torch.manual_seed(0)
    rows = Records(torch.rand(2, 6), torch.tensor([1, 2]), TABLE)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    nn.functional.cross_entropy(model(rows.inputs[:1]), rows.labels[:1]).backward()
    before = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}
    sent = {n: p.detach() - 0.1 * p.grad + std * torch.randn(p.shape) for n, p in model.named_parameters()}  # type: ignore[operator]
    return model, rows, Exchange(before, {name: value.numpy() for name, value in sent.items()})


def test_a_gate_judges_rows_of_a_table_by_the_share_of_their_features(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("leakgauge")
    model, rows, leaking = client_of_rows()
    assert Judge(lambda: model, lambda _: rows).withholds(leaking, None, 1, log)
    assert "recovers a record at share of features 1" in caplog.text
    model, rows, noised = client_of_rows(std=1.0)
    assert not Judge(lambda: model, lambda _: rows, budget=100_000).withholds(noised, None, 1, log)


def test_a_gate_with_a_threshold_that_no_record_reaches_lets_nothing_pass(caplog: pytest.LogCaptureFixture) -> None:
    model, rows, noised = client_of_rows(std=1.0)
    gate = Judge(lambda: model, lambda _: rows, threshold=14.0, budget=100_000)
    assert gate.withholds(noised, None, 1, logging.getLogger("leakgauge"))
    assert "no record can reach share of features 14" in caplog.text


def test_a_defense_that_cannot_be_read_is_refused_when_the_gate_is_made() -> None:
    model, rows, _ = client_of_rows()
    with pytest.raises(ExpressionError, match="unknown name 'gausian'"):
        Judge(lambda: model, lambda _: rows, defense="gausian(std=1.0)")


def test_rows_that_stand_in_single_units_are_found() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(6, 64)
    nn.init.normal_(linear.weight)
    nn.init.constant_(linear.bias, -1.5)
    rows = Records(torch.rand(10, 6), torch.arange(10) % 3, TABLE)
    task = lg.Task(nn.Sequential(linear, nn.ReLU(), nn.Linear(64, 3)), TABLE, lg.Recipe(batch=10))
    active = linear(rows.inputs) > 0
    alone = len(set(active[:, active.sum(0) == 1].float().argmax(0).tolist()))
    assert 2 <= read_off(task, sent(task, rows), rows, 0.75) == alone
