"""The exposure check: what it predicts from a forward pass is what peeling takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.attacks import Watch, recover
from leakgauge.attacks.exposure import peelable
from leakgauge.errors import DataError, ModelError
from leakgauge.preflight import preflight

DOMAIN = lg.Domain("image", (1, 6, 6), 5)


def batch(count: int, seed: int) -> lg.Records:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, *DOMAIN.shape, generator=generator, dtype=torch.float64)
    return lg.Records(inputs, torch.arange(count) % 5, DOMAIN)


def client(width: int, count: int, seed: int) -> lg.Task:
    model = lg.models.build(f"mlp(width={width}, depth=1)", DOMAIN, seed=seed).double()
    return lg.Task(model, DOMAIN, lg.Recipe(batch=count))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_batch_is_peeled_by_hand(dtype: torch.dtype) -> None:
    before = torch.tensor([[0.1, 2, 0, -1], [-3, 1, 1, 1], [0, -0.0, 1, 1], [-1, -1, 1, 1]], dtype=dtype)
    exposed = peelable(before)
    assert exposed.exposed == (True, True, False, False)
    assert exposed.passes == (1, 2, 0, 0)
    assert exposed.share == 0.5
    assert str(exposed) == "2 of 4 records can be read off the update by peeling"


@pytest.mark.parametrize("units", [1, 7, 8, 130])
def test_it_agrees_with_counting(units: int) -> None:
    """The slow way: as long as some unit has one record, that record goes."""
    before = torch.randn(40, units, generator=torch.Generator().manual_seed(units)) - 1.5
    active, left = before > 0, torch.ones(40, dtype=torch.bool)
    while True:
        alone = (active & left.unsqueeze(1)).sum(0) == 1
        found = left & active[:, alone].any(1)
        if not bool(found.any()):
            break
        left &= ~found
    assert peelable(before).exposed == tuple((~left).tolist())
    assert peelable(before[:0]).passes == ()


@pytest.mark.parametrize("seed", range(6))
def test_it_predicts_what_peeling_takes(seed: int) -> None:
    """Narrow networks, so that some batches come back in part."""
    task, records = client(24 + 8 * seed, 8, seed), batch(8, seed)
    recovery = recover(task, lg.observe(task, records)[0], methods="peeling")
    assert abs(sum(lg.exposure(task, records).exposed) - len(recovery)) <= 1


def test_equal_records_count_as_one() -> None:
    """No unit has one of two equal records alone, and yet its quotient is that record."""
    task, records = client(64, 8, 3), batch(4, 3)
    twice = lg.Records(records.inputs.repeat(2, 1, 1, 1), records.labels.repeat(2), DOMAIN)
    recovery = recover(task, lg.observe(task, twice)[0], methods="peeling")
    assert sum(lg.exposure(task, twice).exposed) == len(recovery) == 8
    assert lg.exposure(task, twice).passes == 2 * lg.exposure(task, records).passes


def test_watching_a_training_step_sees_the_same_and_leaves_the_model_alone() -> None:
    task, records = client(48, 8, 0), batch(8, 0)
    with Watch(task) as watch:
        with pytest.raises(DataError, match="has not run yet"):
            _ = watch.exposure
        nn.functional.cross_entropy(task.model(records.inputs), records.labels).backward()
        assert watch.exposure == lg.exposure(task, records)
    assert not any(module._forward_hooks for module in task.model.modules())


def test_preflight_counts_the_records_of_a_spec() -> None:
    task, records = client(64, 4, 0), batch(8, 1)
    leak = next(leak for leak in preflight(task, records) if leak.name == "exact recovery")
    assert leak.severity == "exact"
    assert "8 of 8 can be read off updates of batches of 4 exactly" in leak.sentence
    noisy = task.protect("gaussian(std=0.1)")
    assert "exact recovery" not in [leak.name for leak in preflight(noisy, records)]
    assert "exact recovery" not in [leak.name for leak in preflight(task)]


def test_bad_arguments() -> None:
    task = lg.Task(lg.models.build("logistic", DOMAIN), DOMAIN, lg.Recipe(batch=2))
    with pytest.raises(ModelError, match="peeling has no hold; run preflight"):
        lg.exposure(task, batch(2, 0))
    with pytest.raises(DataError, match="the records are a Tensor"):
        lg.exposure(client(8, 2, 0), batch(2, 0).inputs)  # type: ignore[arg-type]
    other = lg.Records(torch.rand(2, 1, 5, 5), torch.tensor([0, 1]), lg.Domain("image", (1, 5, 5), 5))
    with pytest.raises(DataError, match=r"the shape \(1, 5, 5\), the task's \(1, 6, 6\)"):
        lg.exposure(client(8, 2, 0), other)
