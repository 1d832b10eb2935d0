"""Captured updates: their sign, what noise leaves of them, and rounds that share their noise."""

from __future__ import annotations

import copy
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, check, exactly
from leakgauge.adversary import Adversary, cosine, signed_adam
from leakgauge.adversary.repeats import LEVEL, repeats
from leakgauge.inspect import Finding, captured, folder_of, inspect
from leakgauge.metrics import ssim
from leakgauge.priors import tv
from leakgauge.storage.states import metadata_of, read_state
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 14, 14), 10)
ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
State = dict[str, Tensor]


@dataclass(frozen=True)
class Network:
    """A small convolutional classifier of halved Fashion-MNIST images."""

    activation: str
    bias: bool = True
    trained: bool = False

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        bend = ACTIVATIONS[self.activation]
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            bend(),
            nn.Conv2d(8, 8, 5, stride=2, padding=2),
            bend(),
            nn.Flatten(),
            nn.Linear(128, 10, bias=self.bias),
        )
        if self.trained:
            records = _records(512, seed, "train")
            optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(150):
                batch = slice(32 * (step % 16), 32 * (step % 16) + 32)
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(records.inputs[batch]), records.labels[batch]).backward()
                optimiser.step()
        return model

    def __str__(self) -> str:
        return f"{self.activation}, {'bias' if self.bias else 'no bias'}, {'trained' if self.trained else 'fresh'}"


def _records(count: int, seed: int, split: str = "test") -> Records:
    whole = lg.data.load("fashion_mnist_sample").sample(count, seed=seed, split=split)
    return Records(nn.functional.avg_pool2d(whole.inputs, 2), whole.labels, DOMAIN)


def _gradient(model: nn.Module, private: Records) -> State:
    model.zero_grad()
    nn.functional.cross_entropy(model(private.inputs), private.labels).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _inspected(model: nn.Module, sent: State, **options: Any) -> Finding:
    """One gradient of unstated sign, through files."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "a.safetensors", Path(folder) / "g.safetensors"
        save_file({name: value.clone() for name, value in model.state_dict().items()}, before)
        save_file(sent, after)
        capture = captured(read_state(before), read_state(after), model, kind="gradient")
    (finding,) = inspect(model, DOMAIN, [capture], **options)
    return finding


def _attack(steps: int) -> Adversary:
    return Adversary(cosine(), prior=1e-3 * tv(), solver=signed_adam(lr=0.1, steps=steps))


def _cases() -> Iterator[tuple[Network, int, int]]:
    for activation in ACTIVATIONS:
        for bias in (True, False):
            for trained in (False, True):
                for batch in range(1, 10):
                    for victim in range(5):
                        yield Network(activation, bias, trained), batch, victim


def _sign(network: Network, batch: int, victim: int) -> str:
    """``right``, ``wrong`` or ``both shown``; every other victim sends the opposite of its gradient."""
    model = network.build(200 + victim)  # of 100 and on, some chose when a sign is decided
    opposite = victim % 2 == 1
    sent = _gradient(model, _records(batch, 700 + 10 * batch + victim))
    sent = {name: -value if opposite else value for name, value in sent.items()}
    finding = _inspected(model, sent, batch=batch, attacks=[_attack(100)], draws=3)
    if finding.other is not None:
        return "both shown"
    return "right" if finding.turned == opposite else "wrong"


@check("captured_signs", rows="captured-updates", cost="long")
def captured_signs(context: Context) -> Measurement:
    """Gradients of unstated sign: batch 1 to 9, with and without a last bias, ReLU, SiLU, tanh, fresh and trained."""
    answers: dict[str, Counter[str]] = {}
    for number, (network, batch, victim) in enumerate(_cases()):
        path = context.scratch / f"sign-{number}.json"
        if not path.exists():
            path.write_text(json.dumps(_sign(network, batch, victim)))
        answers.setdefault(str(network), Counter())[json.loads(path.read_text())] += 1
        if number % 45 == 44:
            context.say(f"{number + 1}, {network}: {dict(answers[str(network)])}")
    total = sum(answers.values(), Counter[str]())
    decided = total["right"] + total["wrong"]
    return Measurement(
        {
            "captures": Number(total.total(), exactly(540)),
            "share with the right sign, or with both shown": Number(1 - total["wrong"] / total.total(), at_least(0.99)),
            "share of decided signs that are right": Number(total["right"] / max(1, decided), at_least(0.99)),
            "shown both": Number(total["both shown"]),
            "wrong": Number(total["wrong"]),
        },
        detail="halved Fashion-MNIST, a network of two convolutions, 5 victims each, two of them with the sign turned; "
        "100 steps of signed Adam, 3 draws of noise",
        table=[
            {"network": name, **{word: counts[word] for word in ("right", "both shown", "wrong")}}
            for name, counts in answers.items()
        ],
    )


@check("captured_noise", rows="captured-updates", cost="minutes")
def captured_noise(context: Context) -> Measurement:
    """Gaussian noise on captured gradients: is a reconstruction of SSIM above 0.6 ever called no better than noise?"""
    table = []
    for activation in ACTIVATIONS:
        for victim in range(4):
            model, private = Network(activation).build(200 + victim), _records(1, 900 + victim)
            clear = _gradient(model, private)
            entries = sum(value.numel() for value in clear.values())
            length = sum(float(value.square().sum()) for value in clear.values()) ** 0.5
            for ratio in (0.3, 1.0, 3.0, 10.0):
                generator = torch.Generator().manual_seed(victim)
                std = ratio * length / entries**0.5
                sent = {n: v + std * torch.randn(v.shape, generator=generator) for n, v in clear.items()}
                finding = _inspected(model, sent, labels=private.labels, attacks=[_attack(300)], draws=5)
                score = float(ssim(finding.inputs, private.inputs)[0])
                table.append(
                    {
                        "network": activation,
                        "image": victim,
                        "noise by gradient": ratio,
                        "SSIM": round(score, 3),
                        "explained": round(finding.explained, 4),
                        "beyond noise": finding.above_noise,
                    }
                )
            context.say(str(table[-4:]))
    visible = [row for row in table if float(str(row["SSIM"])) > 0.6]
    return Measurement(
        {
            "reconstructions of SSIM above 0.6": Number(len(visible), at_least(8)),
            "called no better than noise": Number(sum(not row["beyond noise"] for row in visible), exactly(0)),
        },
        detail="the norm of the noise is 0.3 to 10 times that of the gradient; label known, sign not stated",
        table=table,
    )


@check("repeated_noise", rows="repeated-noise", cost="minutes")
def repeated_noise(context: Context) -> Measurement:
    """Two captured rounds with the same noise of standard deviation 1: said, and is the record recovered?"""
    table, scores = [], []
    for name in ("linear", "tanh"):
        for victim in range(3):
            model = _linear(victim) if name == "linear" else Network("tanh").build(300 + victim)
            private = _records(1, 950 + victim)
            options = {"known": private, "attacks": [_attack(30)], "draws": 3}
            if name == "tanh":
                options["labels"] = private.labels
            findings = _two_rounds(model, private, options)
            scores.append(max((finding.psnr[0] for finding in findings[2:]), default=0.0))
            table.append(
                {
                    "network": name,
                    "image": victim,
                    "one round (dB)": round(max(finding.psnr[0] for finding in findings[:2]), 1),
                    "difference (dB)": round(scores[-1], 1),
                }
            )
            context.say(str(table[-1]))
    fresh = sum(bool(repeats(_updates(trial, same=False), batch=1)) for trial in range(200))
    again = sum(bool(repeats(_updates(trial, same=True), batch=1)) for trial in range(200))
    return Measurement(
        {
            "least PSNR of the record from the difference": Number(min(scores), above(40)),
            "fresh noise said to repeat, of 200 trials": Number(fresh, exactly(0)),
            "repeated noise said, of 200 trials": Number(again, exactly(200)),
            "stated level": Number(LEVEL),
        },
        detail="noise of standard deviation 1 on gradients, one step of learning rate 0.1 between the rounds; the test "
        "does not know the law of the noise",
        table=table,
    )


def _linear(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 10))


def _noisy(gradient: State, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {n: v + torch.randn(v.shape, generator=generator) for n, v in gradient.items()}


def _two_rounds(model: nn.Module, private: Records, options: dict[str, Any]) -> list[Finding]:
    model = copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as folder:
        for number in (1, 2):
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            save_file(weights, Path(folder) / f"r{number}.safetensors")
            sent = _noisy(_gradient(model, private), 11)
            facts = metadata_of("gradient", round=number, client=1, sign=1)
            save_file(sent, Path(folder) / f"u{number}.safetensors", facts)
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        return inspect(model, DOMAIN, folder_of(Path(folder), model), **options)


def _updates(trial: int, *, same: bool) -> list[State]:
    """Two rounds of one of three clients."""
    model = (_linear, Network("relu").build, Network("silu", bias=False).build)[trial % 3](trial)
    private, updates = _records(1, trial), []
    for number in (1, 2):
        updates.append(_noisy(_gradient(model, private), 2 * trial + (0 if same else number)))
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return updates
