"""Defenses at the update stage, each against the generic attack and the one that is built against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

import leakgauge as lg
from evidence import Bar, Context, Measurement, Number, above, at_least, at_most, check, numbers
from leakgauge.attacks import adaptive, drop_layer, inverting_gradients
from leakgauge.defenses import of_stage
from leakgauge.metrics import clopper_pearson, mean_interval, psnr
from leakgauge.testing import (
    gradient_matches_finite_differences,
    neutral_is_identity,
    probabilities_sum_to_one,
    sampler_agrees_with_density,
    small_records,
    small_task,
    task_is_untouched,
    texts_of,
    with_density,
)

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
LAYERS = {"linear1": "5184→2000", "linear2": "2000→1000"}
TV = 4e-4


def _convbig(images: int) -> tuple[lg.Task, lg.Records]:
    cifar = lg.data.load("cifar10")
    model = lg.models.normalised(lg.models.build("convbig", cifar.domain), CIFAR_MEAN, CIFAR_STD)
    return lg.Task(model, cifar.domain), cifar.sample(images, seed=0, split="test")


def _scores(context: Context, records: lg.Records, runs: Mapping[str, Callable[[], Tensor]]) -> dict[str, Tensor]:
    """PSNR of every record under each attack; finished attacks survive an interruption."""
    found = {}
    for name, run in runs.items():
        kept = context.scratch / f"{name}.pt"
        if not kept.exists():
            context.say(name)
            torch.save(run(), kept)
        found[name] = psnr(torch.load(kept, weights_only=True)[:, 0], records.inputs)
    return found


def _mean_image(data: lg.data.Dataset, records: lg.Records) -> float:
    """Mean PSNR of the best guess without an update: the mean of 500 train images."""
    guess = data.sample(500, seed=2, split="train").inputs.mean(0)
    return float(psnr(guess.expand_as(records.inputs), records.inputs).mean())


def _rows(scores: Mapping[str, Tensor]) -> list[dict[str, object]]:
    images = len(next(iter(scores.values())))
    return [{"image": i, **{name: round(float(s[i]), 1) for name, s in scores.items()}} for i in range(images)]


def _soteria(
    context: Context, layer: str, weights: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, tuple[float, float]], list[dict[str, object]]]:
    """Mean PSNR of 10 images: undefended, and under Soteria by the generic attack and both adaptive ones."""
    task, records = _convbig(10)
    defended = task.protect(f"soteria(layer='{layer}', p=0.8)")
    generic = inverting_gradients(steps=1000, tv_weight=TV)
    seen = lg.observe(defended, records)
    scores = _scores(
        context,
        records,
        {
            "undefended": lambda: generic(task, lg.observe(task, records)).inputs,
            "generic": lambda: generic(defended, seen).inputs,
            "drop the layer": lambda: (
                drop_layer(layer=layer, steps=1000, tv_weight=weights["weight"])(defended, seen).inputs
            ),
            "surviving columns": lambda: (
                drop_layer(layer=layer, leave="columns", steps=1000, tv_weight=weights["columns"])(
                    defended, seen
                ).inputs
            ),
        },
    )
    found = {name: mean_interval(s) for name, s in scores.items()}
    return {n: f.mean for n, f in found.items()}, {n: (f.low, f.high) for n, f in found.items()}, _rows(scores)


def _gaps(mean: Mapping[str, float], below: Mapping[str, Bar]) -> dict[str, Number]:
    """How far both adaptive attacks are below the undefended figure, and above the generic attack."""
    attacks = ("drop the layer", "surviving columns")
    return {
        f"{name}, below undefended": Number(mean["undefended"] - mean[name], below.get(name)) for name in attacks
    } | {f"{name}, above generic": Number(mean[name] - mean["generic"], at_least(9)) for name in attacks}


DETAIL = (
    "mean PSNR in dB of 10 CIFAR-10 test images, untrained ConvBig, p = 0.8, label known, one start, TV 4e-4, "
    "1,000 iterations"
)


KEPT = "undefended and generic keep TV 4e-4; a larger weight may raise the undefended figure, too"
TUNED = f"TV 4e-3 without the layer and 2e-3 with its columns, after a search on 2 train images; {KEPT}"
TUNED_SECOND = f"TV 2e-3 for both adaptive attacks, after a search on 3 train images; {KEPT}"


@check("soteria_first_linear", rows="soteria", cost="long")
def soteria_first_linear(context: Context) -> Measurement:
    """Soteria on the layer 5184→2000: dropping it, or matching its surviving columns, against the generic attack."""
    mean, interval, rows = _soteria(context, "linear1", {"weight": 4e-3, "columns": 2e-3})
    gaps = _gaps(mean, {"drop the layer": at_most(7), "surviving columns": at_most(4)})
    return Measurement(numbers(mean, interval) | gaps, detail=f"{DETAIL}; {TUNED}", table=rows)


@check("soteria_second_linear", rows="soteria", cost="long")
def soteria_second_linear(context: Context) -> Measurement:
    """Soteria on the layer 2000→1000: dropping it, or matching its surviving columns, against the generic attack."""
    mean, interval, rows = _soteria(context, "linear2", {"weight": 2e-3, "columns": 2e-3})
    gaps = _gaps(mean, {"drop the layer": at_most(1.5)})
    return Measurement(numbers(mean, interval) | gaps, detail=f"{DETAIL}; {TUNED_SECOND}", table=rows)


@check("soteria_null", rows="soteria", cost="minutes")
def soteria_null(context: Context) -> Measurement:
    """The null of both: the best guess without an update, the mean of 500 train images, for the same 10 images."""
    _, records = _convbig(10)
    null = _mean_image(lg.data.load("cifar10"), records)
    return Measurement({"mean image": Number(null)}, detail="mean PSNR in dB; no bar")


FRACTIONS = (0.5, 0.9, 0.99, 0.999)
BARS = {0.5: -0.5, 0.9: 6.0, 0.99: 6.0, 0.999: 2.0}
WEIGHTS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
STARTS = 5
Attack = Callable[..., lg.adversary.Reconstruction]
CAP = 35.0


def _pruned(context: Context, task: lg.Task, others: lg.Records, records: lg.Records, p: float) -> dict[str, Tensor]:
    """PSNR, capped, of the records under generic and adaptive attack, each with the weight that suits the others."""
    task = task.protect(f"prune(p={p})")

    def generic(weight: float, starts: int) -> Attack:
        return inverting_gradients(steps=300, tv_weight=weight, restarts=starts)

    def built(weight: float, starts: int) -> Attack:
        return adaptive(steps=300, tv_weight=weight, restarts=max(1, starts - 1))  # its second half is one start's work

    def run(make: Callable[[float, int], Attack]) -> Tensor:
        tried = [make(w, 1)(task, lg.observe(task, others)).inputs[:, 0] for w in WEIGHTS]
        means = [float(psnr(inputs, others.inputs).clamp(max=CAP).mean()) for inputs in tried]
        weight = WEIGHTS[means.index(max(means))]
        context.say(f"p = {p}: weight {weight:g} of {[round(m, 1) for m in means]}")
        return make(weight, STARTS)(task, lg.observe(task, records)).inputs

    runs = {f"{name} {p}": partial(run, make) for name, make in {"generic": generic, "adaptive": built}.items()}
    return {name: scores.clamp(max=CAP) for name, scores in _scores(context, records, runs).items()}


@check("magnitude_pruning", rows="magnitude-pruning", cost="long")
def magnitude_pruning(context: Context) -> Measurement:
    """Magnitude pruning, Bayes CNN, MNIST: the adaptive adversary against the generic one, p from 0.5 to 0.999."""
    mnist = lg.data.load("mnist")
    model = lg.models.normalised(lg.models.build("bayes_cnn", mnist.domain), (0.1307,), (0.3081,))
    others, records = mnist.sample(8, seed=6, split="train"), mnist.sample(12, seed=7, split="test")
    scores: dict[str, Tensor] = {}
    for p in FRACTIONS:
        scores |= _pruned(context, lg.Task(model, mnist.domain), others, records, p)
    found = {name: mean_interval(s) for name, s in scores.items()}
    gain = {p: found[f"adaptive {p}"].mean - found[f"generic {p}"].mean for p in FRACTIONS}
    return Measurement(
        numbers({n: f.mean for n, f in found.items()}, {n: (f.low, f.high) for n, f in found.items()})
        | {"null: mean image": Number(_mean_image(mnist, records))}
        | {f"gain at {p}": Number(gain[p], at_least(bar)) for p, bar in BARS.items()},
        detail=f"mean PSNR in dB, capped at 35, of {len(records)} MNIST test images, untrained Bayes CNN, label known, "
        f"300 iterations, {STARTS} starts chosen by log posterior (adaptive: {STARTS - 1}, then 300 iterations by "
        f"distance), TV weight chosen on {len(others)} train images for each attack and p",
        table=_rows(scores),
    )


SPARSE = ("topk(keep=0.01)", "sign()", "quantise(levels=1)", "quantise(levels=4)")


@check("bandwidth", rows="bandwidth", cost="minutes")
def bandwidth(context: Context) -> Measurement:
    """Top-k, signs and stochastic quantisation: the adaptive adversary against the generic one, and a mean image."""
    mnist = lg.data.load("mnist")
    model = lg.models.normalised(lg.models.build("bayes_cnn", mnist.domain), (0.1307,), (0.3081,))
    task, records = lg.Task(model, mnist.domain), mnist.sample(5, seed=1, split="test")
    null = _mean_image(mnist, records)
    scores: dict[str, Tensor] = {}
    for text in SPARSE:
        defended = task.protect(text)
        seen = lg.observe(defended, records)
        runs = {
            f"{text} generic": partial(_inputs, inverting_gradients(steps=300, tv_weight=1e-3), defended, seen),
            f"{text} adaptive": partial(_inputs, adaptive(steps=300), defended, seen),
        }
        scores |= {name: s.clamp(max=CAP) for name, s in _scores(context, records, runs).items()}
    found = {name: mean_interval(s) for name, s in scores.items()}
    gain = {text: found[f"{text} adaptive"].mean - found[f"{text} generic"].mean for text in SPARSE}
    return Measurement(
        numbers({n: f.mean for n, f in found.items()}, {n: (f.low, f.high) for n, f in found.items()})
        | {"mean image": Number(null)}
        | {f"{text} gain": Number(dB, above(0)) for text, dB in gain.items()},
        detail="mean PSNR in dB, capped at 35, of 5 MNIST test images, untrained Bayes CNN, label known, one start, "
        "300 iterations; the mean of 500 train images is the null",
        table=_rows(scores),
    )


def _inputs(made: Attack, task: lg.Task, seen: list[lg.Observation]) -> Tensor:
    return made(task, seen).inputs


@check("update_stage_laws", rows="update-stage-laws", cost="minutes")
def update_stage_laws(context: Context) -> Measurement:
    """Every update-stage part and chain with a density through the laws; models untouched; neutral settings."""
    fits, sums = [], []
    for part, grant in with_density():
        context.say(repr(part))
        entries = 2_000 if "clip" in repr(part) else 10_000
        fits.append(sampler_agrees_with_density(part, grant=grant, draws=400, entries=entries))
        sums.append(probabilities_sum_to_one(part, grant=grant, entries=500))
        gradient_matches_finite_differences(part, grant=grant)
    neutral = [name for name, made in of_stage("update").items() if neutral_is_identity(made)]
    untouched = 0
    for part in map(lg.parse, texts_of("update")):
        shown = repr(part).replace("'first'", "'middle'")
        task = small_task(batch=2).protect(shown)
        task_is_untouched(task, lambda task=task: adaptive(steps=2)(task, lg.observe(task, small_records(2))))  # type: ignore[misc]
        untouched += 1
    return Measurement(
        {
            "least p-value": Number(min(fits), above(1e-6)),
            "largest gap of a sum": Number(max(sums), at_most(1e-4)),
            "neutral": Number(len(neutral), at_least(1)),
            "models": Number(untouched, at_least(1)),
        },
        detail=f"{len(fits)} parts and chains with a density pass sampler, sums and slopes; "
        f"{', '.join(sorted(neutral))} have a neutral setting that is the identity; {untouched} releases and attacks "
        "left the user's model, buffers, gradients, flags and hooks alone",
    )


@check("soteria_layer_found", rows="soteria", cost="minutes")
def soteria_layer_found(context: Context) -> Measurement:
    """The defended layer, unknown, from the least residual of 100 iterations: both layers, 10 images each."""
    task, records = _convbig(10)
    attack, rows, right = drop_layer(), [], {}
    for layer, shape in LAYERS.items():
        context.say(layer)
        seen = lg.observe(task.protect(f"soteria(layer='{layer}', p=0.8)"), records)
        residuals = {name: attack.residual(name, task, seen) for name in ("linear1", "linear2", "linear3")}
        found = torch.stack(list(residuals.values())).argmin(0)
        right[shape] = int((found == list(residuals).index(layer)).sum())
        for i in range(len(records)):
            rows.append({"defended": shape, "image": i, **{n: f"{float(r[i]):.1e}" for n, r in residuals.items()}})
    bounds = {shape: clopper_pearson(count, 10) for shape, count in right.items()}
    return Measurement(
        numbers({shape: count / 10 for shape, count in right.items()}, bounds, at_least(0.9)),
        detail="share of 10 CIFAR-10 test images whose defended layer, when dropped, leaves the least residual 1 − cos",
        table=rows,
    )
