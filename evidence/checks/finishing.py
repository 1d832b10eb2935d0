"""Solvers that finish: Gauss-Newton, and the processor time until a given quality is reached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

import leakgauge as lg
from benchmarks.cases import Setting
from benchmarks.cases import case as benchmark
from benchmarks.machine import prepare
from benchmarks.peers import Peer
from evidence import Context, Measurement, Number, at_least, at_most, check
from evidence.checks.standard import Case, SetUp, timed
from leakgauge.adversary import Adversary, Attack, Reconstruction, adam, cosine_decay, gauss_newton, l2
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import Staged, stage_after
from leakgauge.metrics import clopper_pearson, psnr
from leakgauge.testing import attack_reaches_map

TIMED = {"bayes_cnn": 20, "convbig": 8, "resnet18": 2}
LADDER = (30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1000)
MIDDLE = slice(2, 6)
"""Of the weights of the prior that standard() tries: from a tenth to three times that of adaptive()."""
TURNS = 5
"""How often the loop and our attack on all are timed in turn, once it is known how many steps we need."""
ITERATIONS, STRETCH = 1000, 100
"""Of the loop; and how many of them each turn times: every iteration does the same work."""


@check("gauss_newton_linear", rows="gauss-newton", cost="fast")
def gauss_newton_linear() -> Measurement:
    """Five steps of Gauss-Newton on the linear client, float64: the distance from the closed-form MAP."""
    gap = attack_reaches_map(gauss_newton(steps=5), tolerance=1.0)
    return Measurement({"largest distance": Number(gap, at_most(1e-6))}, detail="Gaussian noise and prior, 3 records")


@check("gauss_newton_lenet", rows="gauss-newton", cost="long")
def gauss_newton_lenet(context: Context) -> Measurement:
    """Gauss-Newton alone on the sigmoid LeNet, 20 CIFAR-10 test images, batch 1, from grey, ten at once."""
    case = Case.of(SetUp("dlg_lenet", "cifar10"), reported=20)
    solver = gauss_newton(steps=40, inner=400, forcing=1e-3, box=False, target=1e-11)
    attack = Adversary(l2(relative=True), solver=solver, start="grey")
    scores, evaluations = [], 0
    for begin in (0, 10):
        path = context.scratch / f"{begin}.pt"
        if not path.exists():
            guess, seconds = timed(lambda first=begin: attack(case.task, case.private[first : first + 10]))  # type: ignore[misc]
            torch.save({"inputs": guess.inputs, "evaluations": guess.evaluations}, path)
            context.say(f"{seconds:.0f} s, {guess.evaluations} evaluations, {guess.status}")
        made = torch.load(path, weights_only=True)
        scores += psnr(made["inputs"].flatten(0, 1).clamp(0, 1), case.reported.inputs[begin : begin + 10]).tolist()
        evaluations += made["evaluations"]
    count = sum(score > 50 for score in scores)
    return Measurement(
        {"share above 50 dB": Number(count / 20, at_least(0.95), clopper_pearson(count, 20))},
        detail=f"{count} of 20 above 50 dB (worst {min(scores):.1f}, median {sorted(scores)[10]:.1f}), {attack!r}, "
        f"{evaluations} evaluations",
        table=[{"image": i, "PSNR dB": round(score, 1)} for i, score in enumerate(scores)],
    )


def _peer(setting: Setting, image: int, steps: int) -> Tensor:
    """Inverting gradients with its own settings, one image: signed Adam, decayed x.1 at 3/8, 5/8 and 7/8, TV 1e-4."""
    generator = torch.Generator().manual_seed(image)
    x = torch.randn(1, *setting.task.domain.shape, generator=generator).requires_grad_()
    optimiser = torch.optim.Adam([x], lr=0.1)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimiser, [steps * k // 8 for k in (3, 5, 7)], gamma=0.1)
    objective = Peer(setting, only_image=False).objective(image, x)
    for _ in range(steps):
        optimiser.zero_grad()
        setting.net.zero_grad()
        objective().backward()
        assert x.grad is not None
        x.grad.sign_()
        optimiser.step()
        decay.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach()


def _enough(case: Case, quality: float) -> tuple[int, Attack, float]:
    """The fewest steps of a ladder that reach a quality, with that attack and what it reached.

    Whether it has one stage or two, and the weight of its prior, is chosen on other images.
    """
    others, images = case.other[: len(case.private)], case.reference.inputs[: len(case.private)]
    for steps in LADDER:
        tried = _begun(Portfolio.of(case.task, case.private), steps, case.task, others)
        scores = [float(psnr(guess.inputs[:, 0].clamp(0, 1), images).mean()) for _, guess in tried]
        attack, _ = tried[scores.index(max(scores))]
        reached = float(case.scores(attack(case.task, case.private)).mean())
        if reached >= quality:
            break
    return steps, attack, reached


def _begun(
    portfolio: Portfolio, steps: int, task: lg.Task, observations: Sequence[lg.Observation]
) -> list[tuple[Staged, Reconstruction]]:
    """Every weight of the prior with so many steps, in one stage, and in two, the second with a quarter of it."""
    whole, half = (
        portfolio.weighed(adam(lr=0.1, steps=n, sign="soft", schedule=cosine_decay(floor=0.01)))[MIDDLE]
        for n in (steps, steps // 2)
    )
    smaller = adam(lr=0.05, steps=steps - steps // 2, sign="soft", schedule=cosine_decay(floor=0.01))
    ends = [replace(one, prior=0.25 * one.prior, solver=smaller) for one in half]
    first, second = (stage_after([None] * len(some), some, task, observations) for some in (whole, half))
    third = stage_after(second, ends, task, observations)
    one_stage = [(Staged((stage,)), guess) for stage, guess in zip(whole, first, strict=True)]
    return one_stage + [(Staged((one, end)), guess) for one, end, guess in zip(half, ends, third, strict=True)]


def _time_to_quality(model: str, images: int, context: Context) -> dict[str, Any]:
    path = context.scratch / f"{model}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    prepare("tuned")
    case = Case.of(SetUp(model, "cifar10"), reported=images)
    net = case.task.model.eval()
    setting = Setting(replace(benchmark(model), problems=images), net, case.task, case.private, case.reported.labels)
    guesses, spent = timed(lambda: torch.stack([_peer(setting, i, ITERATIONS) for i in range(images)]))
    quality = float(psnr(guesses[:, 0], case.reported.inputs).mean())
    context.say(f"{model}: the loop reaches {quality:.2f} dB in {spent:.0f} s")
    steps, attack, reached = _enough(case, quality)
    turns, ours = list[float](), 0.0
    for turn in range(TURNS if reached >= quality else 0):
        _, stretch = timed(lambda image=turn % images: _peer(setting, image, STRETCH))  # type: ignore[misc]
        _, ours = timed(lambda: attack(case.task, case.private))
        turns.append(images * stretch * ITERATIONS / STRETCH / ours)
    ratio = median(turns) if turns else 0.0
    row = {"network": model, "loop dB": round(quality, 2), "loop s": round(spent, 1), "our steps": steps}
    row |= {"our dB": round(reached, 2), "our s": round(ours, 2), "ratio": round(ratio, 1)}
    row |= {"our attack": repr(attack)}
    context.say(str(row))
    path.write_text(json.dumps(row))
    return row


@check("standard_time_to_quality", rows="standard-time", cost="long")
def time_to_quality(context: Context) -> Measurement:
    """Processor time until the mean PSNR that the one-image loop has after 1,000 iterations; untrained, no defense."""
    rows = [_time_to_quality(model, images, context) for model, images in TIMED.items()]
    return Measurement(
        {row["network"]: Number(row["ratio"], at_least(30)) for row in rows},
        detail="CIFAR-10 test images, both in one process on one thread under a tuned allocator, timed in turn "
        f"({STRETCH} iterations of the loop, then all of ours), the median ratio of {TURNS}; ours is Adam by cosine, "
        "in one stage or two, which and the weight of its prior chosen on other images, with the fewest steps of a "
        "ladder that reach the loop's quality",
        table=rows,
    )
