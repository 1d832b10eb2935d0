"""Attacks against the numbers of their papers, on records that no setting was tuned on."""

from __future__ import annotations

import torch

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, check, exactly, numbers
from leakgauge.adversary.labels import LabelReader, Rule
from leakgauge.attacks import analytic, dlg, idlg, inverting_gradients
from leakgauge.metrics import clopper_pearson, mean_interval, psnr

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def _lenet_task() -> tuple[lg.Task, lg.Records]:
    sample = lg.data.load("fashion_mnist_sample")
    return lg.Task(lg.models.build("dlg_lenet", sample.domain), sample.domain), sample.sample(20, seed=0, split="test")


def _leakage(attack: lg.adversary.Adversary, context: Context) -> Measurement:
    task, records = _lenet_task()
    seen = lg.observe(task, records, threat=lg.Threat(labels="inferred"))
    made = attack(task, seen)
    scores = psnr(made.inputs[:, 0], records.inputs)
    above = int((scores > 50).sum())
    right = float((made.labels[:, 0] == records.labels).double().mean())
    low, high = clopper_pearson(above, len(records))
    return Measurement(
        {"share above 50 dB": Number(above / len(records), at_least(0.95), (low, high))},
        detail=f"{above} of {len(records)} Fashion-MNIST test images above 50 dB (worst {float(scores.min()):.1f}, "
        f"median {float(scores.median()):.1f}), labels right {right:.0%}, {made.evaluations} evaluations, {attack!r}",
        table=[
            {"image": i, "PSNR dB": round(float(s), 1), "ended": e}
            for i, (s, e) in enumerate(zip(scores, made.status, strict=True))
        ],
    )


@check("dlg", rows="dlg-idlg", cost="minutes")
def deep_leakage(context: Context) -> Measurement:
    """DLG, labels optimised jointly: the share of 20 Fashion-MNIST images recovered above 50 dB."""
    return _leakage(dlg(), context)


@check("idlg", rows="dlg-idlg", cost="minutes")
def improved_deep_leakage(context: Context) -> Measurement:
    """iDLG, labels read off the last layer: the share of 20 Fashion-MNIST images recovered above 50 dB."""
    return _leakage(idlg(), context)


@check("inferred_labels", rows="dlg-idlg", cost="fast")
def inferred_labels() -> Measurement:
    """Labels of 100 Fashion-MNIST images from single gradients of the sigmoid LeNet, by both rules."""
    task, _ = _lenet_task()
    records = lg.data.load("fashion_mnist_sample").sample(100, seed=1, split="test")
    seen = lg.observe(task, records, threat=lg.Threat(labels="inferred"))
    shares, bounds = {}, {}
    reader = LabelReader.of(task, seen[0].rounds[0])
    rules: tuple[Rule, ...] = ("bias", "rows")
    for rule in rules:
        found = torch.cat([reader.counts(o.rounds[0], 1, rule).labels for o in seen])
        right = int((found == records.labels).sum())
        shares[rule], bounds[rule] = right / 100, clopper_pearson(right, 100)
    return Measurement(numbers(shares, bounds, exactly(1.0)), detail="share of labels right")


@check("inverting_gradients", rows="inverting-gradients", cost="long")
def inverting(context: Context) -> Measurement:
    """Inverting gradients on the untrained ConvBig: mean PSNR of 20 CIFAR-10 images at 300 and 1,000 iterations."""
    cifar = lg.data.load("cifar10")
    model = lg.models.normalised(lg.models.build("convbig", cifar.domain), CIFAR_MEAN, CIFAR_STD)
    task, records = lg.Task(model, cifar.domain), cifar.sample(20, seed=0, split="test")
    seen = lg.observe(task, records)
    values, bounds, rows = {}, {}, []
    for steps in (300, 1000):
        kept = context.scratch / f"{steps}.pt"
        if kept.exists():
            inputs = torch.load(kept, weights_only=True)
        else:
            context.say(f"{steps} iterations")
            inputs = inverting_gradients(steps=steps, tv_weight=4e-4)(task, seen).inputs
            torch.save(inputs, kept)
        scores = psnr(inputs[:, 0], records.inputs)
        found = mean_interval(scores)
        values[f"{steps} iterations"], bounds[f"{steps} iterations"] = found.mean, (found.low, found.high)
        rows += [{"iterations": steps, "worst": round(float(scores.min()), 1), "best": round(float(scores.max()), 1)}]
    return Measurement(
        numbers(values, bounds, {"300 iterations": at_least(25), "1000 iterations": at_least(28)}),
        table=rows,
        detail="mean PSNR in dB, label known, one start, TV 4e-4",
    )


def _inverted(how: str, bar: float) -> Measurement:
    cifar = lg.data.load("cifar10")
    task, records = lg.Task(lg.models.build("mlp", cifar.domain), cifar.domain), cifar.sample(20, seed=0, split="test")
    made = analytic(how=how)(task, lg.observe(task, records))
    scores = psnr(made.inputs[:, 0], records.inputs)
    return Measurement(
        {"worst image": Number(float(scores.min()), at_least(bar))},
        detail=f"worst of 20 CIFAR-10 images in dB (best {float(scores.max()):.1f}); update in float32",
    )


@check("analytic_single_row", rows="analytic", cost="fast")
def analytic_single_row() -> Measurement:
    """dW/db of the row with the largest bias gradient on the 5x500 ReLU MLP."""
    return _inverted("row", 150)


@check("analytic_least_squares", rows="analytic", cost="fast")
def analytic_least_squares() -> Measurement:
    """dW/db by least squares over all rows, accumulated in float64."""
    return _inverted("all", 170)
