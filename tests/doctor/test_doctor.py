"""The doctor names injected faults; the clients here are plain PyTorch loops, none of our client code."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from leakgauge.doctor.diagnosis import Diagnosis, Evidence, Setup, diagnose, examine
from leakgauge.errors import DataError, ModelError
from leakgauge.storage.states import FileError
from leakgauge.study.spec import of
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 6, 6), 4)
LABELS = torch.tensor([0, 1, 2, 1])
HALF = ((0.5,), (0.5,))
MNIST = ((0.1307,), (0.3081,))
State = dict[str, Tensor]


def net(norm: bool = False, drop: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3) if norm else nn.Identity(),
        nn.Tanh(),
        nn.Conv2d(3, 3, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(3, 3, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Dropout(0.5) if drop else nn.Identity(),
        nn.Linear(108, 4),
    )


@dataclass
class Client:
    """A plain training loop."""

    train: bool = False
    reduction: str = "mean"
    smoothing: float = 0.0
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    steps: int = 1
    minibatch: int = 4
    order: list[int] = field(default_factory=lambda: [0, 1, 2, 3])
    shift: tuple[float, float] | None = None
    adam: bool = False

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[State, State]:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.train(self.train)
        if self.shift:
            x = (x - self.shift[0]) / self.shift[1]
        x, y = x[self.order], y[self.order]
        optimiser: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=self.rate, momentum=self.momentum, weight_decay=self.decay
        )
        if self.adam:
            optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss = nn.CrossEntropyLoss(reduction=self.reduction, label_smoothing=self.smoothing)
        for step in range(self.steps):
            start = step * self.minibatch % len(x)
            optimiser.zero_grad()
            loss(model(x[start : start + self.minibatch]), y[start : start + self.minibatch]).backward()
            optimiser.step()
        return before, {name: value.clone() for name, value in model.state_dict().items()}


def batch() -> Records:
    return Records(torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(0)), LABELS, DOMAIN)


def diagnosed(
    client: Client,
    believed: Setup | None = None,
    change: Callable[[State, State], tuple[State, State]] | None = None,
    records: Records | None = None,
    kind: Any = None,
    budget: int = 800,
    **options: bool,
) -> Diagnosis:
    before, after = client(net(**options), batch().inputs, LABELS)
    if change is not None:
        before, after = change(before, after)
    return diagnose(net(**options), Evidence(before, after, records or batch(), kind), believed, budget=budget)


def exchanged(state: State, *pairs: tuple[str, str]) -> State:
    return {**state, **{a: state[b] for a, b in pairs}, **{b: state[a] for a, b in pairs}}


def test_a_true_set_up_replays() -> None:
    found = diagnosed(Client())
    assert (found.status, found.differs) == ("replays", ())
    assert found.residual < found.tolerance
    assert "Our client replays yours" in found.sentence


TWICE = Setup(local_steps=2)
ONES = Setup(local_steps=4, minibatch=1)
PAIR = ("3.weight", "5.weight")
FAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "train mode": ({"client": Client(train=True), "norm": True}, ("mode",), 'mode = "train"'),
    "eval mode": ({"client": Client(), "norm": True, "believed": Setup(mode="train")}, ("mode",), 'mode = "eval"'),
    "reduction": ({"client": Client(reduction="sum")}, ("reduction",), 'reduction = "mean", learning_rate = 0.4'),
    "smoothing": ({"client": Client(smoothing=0.1)}, ("smoothing",), "smoothing = 0.1"),
    "learning rate": ({"client": Client(rate=0.03)}, ("learning_rate",), "learning_rate = 0.03"),
    "momentum": ({"client": Client(momentum=0.9, steps=2), "believed": TWICE}, ("momentum",), "momentum = 0.9"),
    "weight decay": ({"client": Client(decay=5e-3)}, ("weight_decay",), "weight_decay = 0.005"),
    "decay of two steps": (
        {"client": Client(decay=0.02, steps=2), "believed": TWICE},
        ("weight_decay",),
        "weight_decay = 0.02",
    ),
    "local steps": ({"client": Client(steps=3)}, ("local_steps",), "local_steps = 3"),
    "minibatch": ({"client": Client(steps=2, minibatch=2), "believed": TWICE}, ("minibatch",), "minibatch = 2"),
    "order": (
        {"client": Client(steps=4, minibatch=1, order=[2, 0, 3, 1]), "believed": ONES},
        ("order",),
        "order = [2, 0, 3, 1]",
    ),
    "no normalisation here": ({"client": Client(shift=(0.5, 0.5))}, ("normalise",), "mean = [0.5]"),
    "no normalisation there": ({"client": Client(), "believed": Setup(normalise=HALF)}, ("normalise",), "none"),
    "other constants": (
        {"client": Client(shift=(0.1307, 0.3081)), "believed": Setup(normalise=HALF)},
        ("normalise",),
        "mean = [0.1307], std = [0.3081]",
    ),
    "sign": (
        {"client": Client(), "change": lambda b, a: (b, {n: b[n] - a[n] for n in b}), "kind": "change"}
        | {"believed": Setup(holds="change")},
        ("sign",),
        "points the other way",
    ),
    "swapped files": ({"client": Client(), "change": lambda b, a: (a, b)}, ("swapped",), "are swapped"),
    "a gradient, not weights": (
        {"client": Client(rate=1.0), "change": lambda b, a: (b, {n: b[n] - a[n] for n in b})},
        ("holds",),
        "holds a gradient",
    ),
    "a change, not weights": (
        {"client": Client(), "change": lambda b, a: (b, {n: a[n] - b[n] for n in b})},
        ("holds",),
        "holds a change of weights",
    ),
    "names of the update": (
        {"client": Client(), "change": lambda b, a: (b, exchanged(a, PAIR))},
        ("names",),
        "3.weight <-> 5.weight",
    ),
    "names of both": (
        {"client": Client(), "change": lambda b, a: (exchanged(b, PAIR), exchanged(a, PAIR))},
        ("names",),
        "in both files: 3.weight <-> 5.weight",
    ),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("order", "minibatch"))) for name in FAULTS]
)
def test_each_fault_is_named(fault: str) -> None:
    given, differs, said = FAULTS[fault]
    found = diagnosed(**given)
    assert (found.status, found.differs) == ("replays otherwise", differs)
    assert said in found.sentence


def test_what_one_step_cannot_tell() -> None:
    found = diagnosed(Client(momentum=0.9))
    assert found.status == "replays"
    assert any("momentum" in each[0] for each in found.indistinguishable)
    assert (
        'reduction = "mean", learning_rate = 0.1',
        'reduction = "sum", learning_rate = 0.025',
    ) in found.indistinguishable


def test_tiny_steps_cannot_be_counted() -> None:
    found = diagnosed(Client(rate=1e-3, steps=2), Setup(learning_rate=2e-3))
    assert found.status != "does not replay"
    assert any("local_steps = 2" in text for each in found.indistinguishable for text in each)
    assert any("local_steps = 3" in text for each in found.indistinguishable for text in each)


def test_a_batch_of_one_has_one_reduction() -> None:
    model, x = net(), batch()[:1]
    before, after = Client(order=[0], minibatch=1)(model, x.inputs, x.labels)
    found = diagnose(net(), Evidence(before, after, x))
    assert found.status == "replays"
    assert not any("reduction" in text for each in found.indistinguishable for text in each)


def test_several_faults_at_once() -> None:
    found = diagnosed(Client(train=True, smoothing=0.1, rate=0.05, decay=0.01, shift=(0.5, 0.5)), norm=True)
    assert set(found.differs) == {"mode", "smoothing", "learning_rate", "weight_decay", "normalise"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"client": Client(adam=True)}, "Adam"),
        ({"client": Client(), "records": batch()[[3, 2, 1, 0]], "change": lambda b, a: (b, b)}, "Nothing changed"),
        ({"client": Client(rate=1e-8)}, "rounding"),
    ],
)
def test_what_does_not_replay(given: dict[str, Any], said: str) -> None:
    found = diagnosed(**given)
    assert found.status == "does not replay"
    assert said in found.sentence


@pytest.mark.slow
def test_another_batch_does_not_replay() -> None:
    other = Records(torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(9)), LABELS.flip(0), DOMAIN)
    start = time.process_time()
    found = diagnosed(Client(), records=other)
    assert found.status == "does not replay"
    assert time.process_time() - start < 20


def test_dropout_is_a_hint() -> None:
    found = diagnosed(Client(train=True), drop=True, budget=100)
    assert found.status == "does not replay"
    assert "dropout" in found.sentence


def test_the_models_stay_as_they_were() -> None:
    model = net(norm=True).train()
    before, after = Client(train=True)(net(norm=True), batch().inputs, LABELS)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    diagnose(model, Evidence(before, after, batch()))
    assert model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_files_that_do_not_fit() -> None:
    before, after = Client()(net(), batch().inputs, LABELS)
    del after["0.weight"]
    with pytest.raises(FileError, match=r"after: '0\.weight' is missing"):
        diagnose(net(), Evidence(before, after, batch()))
    with pytest.raises(FileError, match="before"):
        diagnose(net(), Evidence(after, before, batch()))


def test_from_a_spec(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    model.add_module("linear", nn.Linear(784, 10))
    x, y = torch.rand(2, 1, 28, 28), torch.tensor([3, 7])
    before, after = Client(order=[0, 1], minibatch=2, rate=0.2)(model, x, y)
    save_file(before, tmp_path / "b.safetensors")
    save_file(after, tmp_path / "a.safetensors")
    np.savez(tmp_path / "x.npz", inputs=x.numpy(), labels=y.numpy())
    replay = {"before": "b.safetensors", "after": "a.safetensors", "batch": "x.npz"}
    raw: dict[str, Any] = {"task": {"model": "logistic", "replay": replay, "recipe": {"learning_rate": 0.2}}}
    assert examine(of(raw), tmp_path).status == "replays"
    raw["task"]["recipe"] = {"learning_rate": 0.1}
    found = examine(of(raw), tmp_path)
    assert (found.status, found.differs) == ("replays otherwise", ("reduction",))
    with pytest.raises(DataError, match=r"no \[task\.replay\]"):
        examine(of({"task": {"model": "logistic"}}), tmp_path)

    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x)

    with pytest.raises(ModelError, match="doctor: the model draws random numbers in its forward pass"):
        examine(of(raw), tmp_path, model=Drawing())
