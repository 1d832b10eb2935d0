"""What comes back beside an update: running statistics of batch norms; and batches that are taken apart exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from leakgauge.adversary import Adversary, cosine, signed_adam
from leakgauge.adversary.statistics import of_round
from leakgauge.attacks import Standard
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.inspect import Capture, captured, inspect
from leakgauge.inspect.client import Client
from leakgauge.inspect.readings import readings
from leakgauge.inspect.running import LEAKED
from leakgauge.storage.states import metadata_of, read_state
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)


def normed() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))


def private(dtype: torch.dtype = torch.float32) -> Records:
    generator = torch.Generator().manual_seed(5)
    return Records(torch.rand(4, 1, 6, 6, generator=generator, dtype=dtype), torch.tensor([2, 0, 1, 3]), DOMAIN)


def sent(folder: Path, model: nn.Module, records: Records, *, turned: bool = False, **facts: object) -> Capture:
    """One step of plain PyTorch in train mode, as two files of weights."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    nn.functional.cross_entropy(model.train()(records.inputs), records.labels).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    pair = [before, model.state_dict()]
    for name, state in zip("ab", reversed(pair) if turned else pair, strict=True):
        save_file(dict(state), folder / f"{name}.safetensors", metadata_of("state", **facts) if name == "b" else None)
    return captured(read_state(folder / "a.safetensors"), read_state(folder / "b.safetensors"), model)


def of_batch(records: Records) -> tuple[Tensor, Tensor]:
    features = normed()[0](records.inputs).detach()  # type: ignore[index]
    return features.mean((0, 2, 3)), features.var((0, 2, 3), correction=0)


@pytest.mark.parametrize("turned", [False, True])
def test_statistics_of_the_batch_are_read_off_what_came_back(turned: bool, tmp_path: Path) -> None:
    records, model = private(), normed()
    capture = sent(tmp_path, model, records, turned=turned)
    task = Client(model, DOMAIN, batch=4, mode="train").task(capture)
    reading = readings(task, capture, 4, records.labels)[-1 if turned else 0]
    assert reading.turned == turned
    statistics = of_round(task, reading.observation.rounds[0])
    assert statistics is not None
    mean, variance = of_batch(records)
    # a difference of float32 numbers of size one, divided by a momentum of 0.1
    torch.testing.assert_close(statistics["1.mean"][0], mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(statistics["1.variance"][0], variance, atol=1e-5, rtol=0)
    attack = Standard().fixed(task, [reading.observation])
    assert isinstance(attack, Adaptive)
    assert "batch_norm()" in repr(attack.against(task).adversary)


def test_statistics_that_did_not_move_are_not_those_of_the_batch(tmp_path: Path) -> None:
    model = normed()
    model[1].momentum = 0.0  # type: ignore[index]
    capture = sent(tmp_path, model, private())
    assert not capture.sent
    assert not Client(model, DOMAIN, batch=4, mode="train").task(capture).recipe.shares_buffers


def test_a_finding_says_that_statistics_came_back(tmp_path: Path) -> None:
    records, model = private(), normed()
    capture = sent(tmp_path, model, records, sign=1)
    attack = Adversary(cosine(), solver=signed_adam(lr=0.1, steps=2))
    for mode, leaks in (("train", True), ("eval", False)):
        (finding,) = inspect(model, DOMAIN, [capture], batch=4, mode=mode, attacks=[attack], draws=3)
        assert (LEAKED in finding.notes) == leaks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_captured_batch_is_taken_apart(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 4)).to(dtype)
    records = private(dtype)
    capture = sent(tmp_path, model, records, sign=1)
    task = Client(model, DOMAIN, batch=4).task(capture)
    (reading,) = readings(task, capture, 4, None)
    assert isinstance(Standard().fixed(task, [reading.observation]), Adaptive)
    attack = Adaptive(steps=5)  # of what is not certified, and of noise
    (finding,) = inspect(model, DOMAIN, [capture], batch=4, known=records, attacks=[attack], draws=3)
    assert min(finding.psnr) > 60
