"""The exposure check of a gate: what stands in single rows of an outgoing update."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.integrations.exchange import Exchange
from leakgauge.integrations.exposing import read_off
from leakgauge.integrations.judging import Judge
from leakgauge.models import normalised
from leakgauge.types import Domain, Records

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


def test_a_gate_withholds_what_it_cannot_score(caplog: pytest.LogCaptureFixture) -> None:
    domain = Domain("table", (6,), 3)
    rows = Records(torch.rand(1, 6), torch.tensor([1]), domain)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    both = Exchange(before, {name: value + value.dtype.type(0.1) for name, value in before.items()})
    assert Judge(lambda: model, lambda _: rows).withholds(both, None, 1, logging.getLogger("leakgauge"))
    assert "of table records exact recovery alone can be judged" in caplog.text
