"""Weight changes after several local steps, and the same records over several rounds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, below, check, numbers
from evidence.reproduced import numbers_of, reproduced
from leakgauge.adversary import nulls
from leakgauge.attacks import adaptive
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import match, mean_interval, psnr
from leakgauge.observation import Observation
from leakgauge.papers.lrp.local_steps import ARMS
from leakgauge.papers.lrp.local_steps import TABLES as LOCAL_STEPS


def _stored(context: Context, name: str, compute: Callable[[], Any]) -> Any:
    path = context.scratch / f"{name}.json"
    if not path.exists():
        path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


def _quietly(attack: Callable[..., lg.Reconstruction], *arguments: Any) -> lg.Reconstruction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        return attack(*arguments)


# --- several steps


@check("several_steps", rows="several-steps", cost="long")
def several_steps(context: Context) -> Measurement:
    """Sigmoid LeNet, batch 1, five local steps, 10 bundled images: rates known, perturbed and fitted, or assumed."""
    outcome = reproduced(LOCAL_STEPS, "lrp/local-steps", context)
    bars = {"known rates": at_least(40.0), "LRP, rates fitted": at_least(40.0)}
    bars["fitted above the nominal rate"] = at_least(10.0)
    return Measurement(
        {name: replace(number, bar=bars.get(name)) for name, number in numbers_of(outcome).items()},
        detail="mean PSNR in dB of 10 Fashion-MNIST test images, E = 5, rate 0.1, perturbed by U(0, 2) in every step; "
        "labels known, L-BFGS, one start, at most 600 evaluations; float32. Fitted: the rate of every step is an "
        "unknown under its law, and so is one scale of the whole change",
        table=[
            {"image": i, **{arm: round(float(outcome.samples[arm][i]), 1) for arm in ARMS}}
            for i in range(len(outcome.samples["known rates"]))
        ],
    )


@check("several_batches", rows="several-steps", cost="minutes")
def several_batches(context: Context) -> Measurement:
    """Bayes CNN, 4 images in 2 batches, two passes of which the order is known or hidden; the null; the surrogate."""
    return _several_batches(context, groups=3, steps=300)


def _several_batches(context: Context, *, groups: int, steps: int) -> Measurement:
    sample = lg.data.load("fashion_mnist_sample")
    records = sample.sample(4 * groups, seed=2, split="test")
    recipe = lg.Recipe(batch=4, minibatch=2, local_steps=4, shares="change", learning_rate=0.01, shuffle=True)
    task = lg.Task(lg.models.build("bayes_cnn", sample.domain), sample.domain, recipe)
    granted = lg.observe(task, records, seed=1, threat=lg.Threat(grants=frozenset({"recipe.order"})))
    hidden = [one.given("recipe.order", None) for one in granted]
    arms = {
        "order known": (adaptive(steps), granted),
        "order hidden": (adaptive(steps), hidden),
        "surrogate": (adaptive(steps, unroll=0), hidden),
        "null": (adaptive(steps), nulls.noise(granted, seed=2)),
    }

    def scored(attack: Any, seen: list[Observation]) -> list[float]:
        inputs = _quietly(attack, task, seen).inputs
        batches = [records[4 * i : 4 * (i + 1)] for i in range(groups)]
        return [s for one, own in zip(inputs, batches, strict=True) for s in _in_any_order(one, own)]

    scores = {}
    for name, (attack, seen) in arms.items():
        scores[name] = torch.tensor(_stored(context, name.replace(" ", "-"), lambda a=attack, o=seen: scored(a, o)))
        context.say(f"{name}: {[round(s, 1) for s in scores[name].tolist()]}")
    means = {name: mean_interval(values) for name, values in scores.items()}
    return Measurement(
        numbers({n: m.mean for n, m in means.items()}, {n: (m.low, m.high) for n, m in means.items()}),
        detail=f"mean PSNR in dB of {4 * groups} images, each of {groups} clients with 4 in 2 batches, E = 2 passes, "
        f"labels known, adaptive(steps={steps}); matched one to one; no bar: as it is",
    )


def _in_any_order(inputs: Tensor, records: lg.Records) -> list[float]:
    """PSNR with records and reconstructions matched one to one."""
    matching = match(inputs.unsqueeze(0), records.inputs.unsqueeze(0))
    scores: list[float] = psnr(matching.apply(inputs.unsqueeze(0))[0], records.inputs).tolist()
    return scores


# --- several rounds

ROUNDS = (1, 3, 10, 30, 100)


@check("several_rounds", rows="several-rounds", cost="minutes")
def several_rounds(context: Context) -> Measurement:
    """The 13,700-parameter CNN under Gaussian noise that hides a single update: PSNR by the rounds observed."""
    return _several_rounds(context, images=8, steps=300, std=0.1)


def _several_rounds(context: Context, *, images: int, steps: int, std: float) -> Measurement:
    sample = lg.data.load("fashion_mnist_sample")
    records = sample.sample(images, seed=0, split="test")
    task = lg.Task(lg.models.build("cnn_13700", sample.domain), sample.domain).protect(f"gaussian(std={std})")
    everything = lg.observe(task, records, seed=1, rounds=max(ROUNDS))

    def scored(rounds: int, null: bool = False) -> list[float]:
        seen = [replace(one, rounds=one.rounds[:rounds]) for one in everything]
        seen = nulls.noise(seen, seed=3) if null else seen
        scores: list[float] = psnr(_quietly(adaptive(steps), task, seen).inputs[:, 0], records.inputs).tolist()
        return scores

    figures: dict[str, Number] = {}
    for count in ROUNDS:
        interval = mean_interval(torch.tensor(_stored(context, f"rounds-{count}", lambda c=count: scored(c))))
        name = f"{count} round{'s' if count > 1 else ''}"
        bar = below(14.0) if count == 1 else None
        figures[name] = Number(interval.mean, bar, (interval.low, interval.high))
        context.say(f"{name}: {interval}")
    null = mean_interval(torch.tensor(_stored(context, "null", lambda: scored(1, null=True))))
    figures["null"] = Number(null.mean, None, (null.low, null.high))
    gain = float(figures["100 rounds"].value) - float(figures["1 round"].value)
    return Measurement(
        {**figures, "100 rounds above one": Number(gain, at_least(3.0))},
        detail=f"mean PSNR in dB of {images} Fashion-MNIST test images, gaussian(std={std}), new noise in every round, "
        f"labels known, adaptive(steps={steps})",
    )
