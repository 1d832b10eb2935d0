"""Batches as they are: batch norm in train mode, batches of 4 and 16, and the speed of the batch-norm path.

Weights of the priors were chosen on train records; everything here is scored on test records that nothing was tuned on.
Images are matched one to one with the records of their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import leakgauge as lg
from benchmarks.cases import case
from benchmarks.machine import prepare
from benchmarks.measure import compare
from benchmarks.networks import conv_net
from evidence import Context, Measurement, Number, at_least, below, check
from leakgauge.adversary import Adversary, Attack, adam, cosine, cosine_decay, l2
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.paths import Vmap
from leakgauge.attacks import adaptive, grad_inversion, inverting_gradients
from leakgauge.attacks.norms import EXACT, RUNNING
from leakgauge.client import BATCH_STATISTICS
from leakgauge.metrics import match, mean_interval, psnr, ssim
from leakgauge.priors import batch_norm, tv
from leakgauge.training import train
from leakgauge.types import Candidate
from leakgauge.updates import Sharing, stacked

BATCH, BATCHES, STEPS = 8, 6, 400
GRANTED = frozenset({"batch_statistics"})
MODES: dict[str, tuple[str, frozenset[str], float]] = {
    "exact, train mode": ("measured", GRANTED, EXACT),
    "infer": ("measured", frozenset(), RUNNING),
    "proxy": ("fixed", frozenset(), 0.0),
    "exact, eval mode": ("fixed", GRANTED, 0.0),
}
"""Name: how a candidate is normalised, what is granted, the weight of the batch-norm prior."""


def _norm_task(data: lg.data.Dataset) -> lg.Task:
    """The small batch-norm ConvNet after 60 steps of training, its client in train mode."""
    torch.manual_seed(0)
    task = lg.Task(conv_net(data.domain), data.domain, lg.Recipe(batch=BATCH, mode="train"))
    (*_, last) = train(task, data.sample(2000, seed=99, split="train"), steps=60, learning_rate=0.05, keep=())
    return task.at(last.state)


def _matched(inputs: Tensor, records: lg.Records, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The score of every image of every batch, ``[batches, B]``."""
    truth = records.inputs.view(len(inputs), -1, *records.inputs.shape[1:])
    found = match(inputs, truth).apply(inputs)
    return score(found.flatten(0, 1), truth.flatten(0, 1)).view(len(inputs), -1)


def _kept(context: Context, name: str, attack: Callable[[], Tensor]) -> Tensor:
    """The reconstruction of one arm; of an interrupted run, the one that was kept."""
    place = context.scratch / f"{name}.pt"
    if not place.exists():
        context.say(name)
        torch.save(attack(), place)
    inputs: Tensor = torch.load(place, weights_only=True)
    return inputs


def _attacked(attack: Attack, task: lg.Task, records: lg.Records, grants: frozenset[str] = frozenset()) -> Tensor:
    return attack(task, lg.observe(task, records, threat=lg.Threat(grants=grants))).inputs


def _mode(name: str) -> Adversary:
    norms, _, weight = MODES[name]
    prior = 1e-3 * tv() + weight * batch_norm() if weight else 1e-3 * tv()
    solver = adam(lr=0.1, steps=STEPS, sign="soft", schedule=cosine_decay(floor=0.01))
    return Adversary(cosine(), prior, solver, start="grey", norms=norms)  # type: ignore[arg-type]


def _modes(source: str, context: Context) -> Measurement:
    data = lg.data.load(source)
    task, records = _norm_task(data), data.sample(BATCH * BATCHES, seed=0, split="test")
    scores = {
        name: _matched(
            _kept(
                context,
                name,
                lambda name=name, grants=grants: (
                    _mode(name)(  # type: ignore[misc]
                        task, lg.observe(task, records, threat=lg.Threat(grants=grants))
                    ).inputs
                ),
            ),
            records,
            ssim,
        )
        for name, (_, grants, _) in MODES.items()
    }
    means = {name: mean_interval(score.mean(1)) for name, score in scores.items()}
    gains = {
        "exact over infer": mean_interval((scores["exact, train mode"] - scores["infer"]).mean(1)),
        "infer over proxy": mean_interval((scores["infer"] - scores["proxy"]).mean(1)),
    }
    return Measurement(
        {
            **{name: Number(one.mean, None, (one.low, one.high)) for name, one in means.items()},
            **{name: Number(one.mean, at_least(0.0), (one.low, one.high)) for name, one in gains.items()},
        },
        detail=f"mean SSIM of {BATCHES} batches of {BATCH} {source} test images, labels known, {STEPS} steps of one "
        "start, network after 60 training steps, intervals over batches",
        table=[
            {"mode": name, "mean SSIM": round(float(score.mean()), 3), "worst image": round(float(score.min()), 3)}
            for name, score in scores.items()
        ],
    )


@check("batch_norm_modes_mnist", rows="batch-norm", cost="minutes")
def batch_norm_modes_mnist(context: Context) -> Measurement:
    """MNIST: private statistics as a target, running ones as a target, running and private ones in eval mode."""
    return _modes("mnist", context)


@check("batch_norm_modes_fashion", rows="batch-norm", cost="minutes")
def batch_norm_modes_fashion(context: Context) -> Measurement:
    """Fashion-MNIST: private statistics as a target, running ones as a target, both in eval mode."""
    return _modes("fashion_mnist", context)


@check("batch_norm_paths", rows="batch-norm", cost="fast")
def batch_norm_paths() -> Measurement:
    """The slope of four batches at once, each with statistics of its own, against a loop over them, in float32."""
    torch.manual_seed(0)
    domain = lg.Domain("image", (1, 28, 28), 10)
    task = lg.Task(conv_net(domain), domain, lg.Recipe(batch=BATCH, mode="train"))
    inputs, labels = torch.rand(8, BATCH, 1, 28, 28), torch.randint(10, (8, BATCH))
    batches = [lg.Records(inputs[n], labels[n], domain) for n in range(4)]
    sent = [lg.observe(task, one, threat=lg.Threat(grants=GRANTED))[0].rounds[0] for one in batches]
    observed = stacked([one.observed for one in sent])
    statistics = stacked([one.granted[BATCH_STATISTICS] for one in sent])  # type: ignore[misc]
    gaps = {}
    for norms in ("measured", "fixed"):
        own = {BATCH_STATISTICS: dict(statistics)} if norms == "fixed" else {}
        live = inputs[4:].clone().requires_grad_()
        plain = []
        for n in range(4):
            alone = {BATCH_STATISTICS: {name: value[n] for name, value in statistics.items()}} if own else {}
            update = task.client(task.params, live[n], labels[n], alone)  # type: ignore[arg-type]
            value = sum((update[name] - observed[name][n]).square().sum() for name in update)
            plain.append(-torch.autograd.grad(value, live)[0][n])  # type: ignore[arg-type]
        for path in (Ghost.of(task, task.params, task.buffers), Vmap(task, task.params, task.buffers)):
            batch = path.updates(Candidate(live, labels[:4], own), Sharing((1, 1, 1, 1)))
            (slope,) = torch.autograd.grad(l2()(batch, observed, {}, task.protection).sum(), live)
            gap = max(float((slope[n] - plain[n]).norm() / plain[n].norm()) for n in range(4))
            gaps[f"{path.name}, {norms}"] = Number(gap, below(1e-5))
    return Measurement(gaps, detail="largest relative difference of the slope of one problem")


@check("grad_inversion", rows="grad-inversion", cost="minutes")
def grad_inversion_batches(context: Context) -> Measurement:
    """GradInversion on the batch-norm ConvNet, Fashion-MNIST: mean SSIM, one seed and four, beside ``adaptive()``."""
    data = lg.data.load("fashion_mnist")
    task, records = _norm_task(data), data.sample(BATCH * 3, seed=1, split="test")
    attacks = {
        "four seeds": grad_inversion(steps=STEPS),
        "one seed": grad_inversion(steps=STEPS, seeds=1, meetings=0),
        "adaptive()": adaptive(steps=STEPS),
    }
    rows, values = [], {}
    for name, attack in attacks.items():
        inputs = _kept(context, name, partial(_attacked, attack, task, records))
        scores = _matched(inputs, records, ssim)
        one = mean_interval(scores.flatten())
        values[name] = Number(one.mean, None, (one.low, one.high))
        rows.append({"attack": name, "worst image": round(float(scores.min()), 3)})
    return Measurement(values, table=rows, detail=f"mean SSIM of 3 batches of {BATCH} test images, labels known")


def _plain_net(name: str, domain: lg.Domain) -> nn.Module:
    if name == "Bayes CNN":
        return lg.models.build("bayes_cnn", domain, seed=0)
    torch.manual_seed(0)
    return conv_net(domain, norm=False)


def _of_labels(data: lg.data.Dataset, labels: Tensor, seed: int) -> lg.Records:
    """Train records with these labels, one for each."""
    pool = data.sample(20 * len(labels), seed=seed, split="train")
    left = {c: (pool.labels == c).nonzero().flatten().tolist() for c in range(data.domain.classes)}
    return pool[torch.tensor([left[int(label)].pop() for label in labels])]


def _inverted(batch: int, steps: int, bars: dict[str, float], context: Context) -> Measurement:
    """Inverting gradients on fresh networks; the null attacks the updates of other records with the same labels."""
    data, count = lg.data.load("fashion_mnist"), 5
    turns = data.sample(20 * count, seed=0, split="test")  # every class once in ten, twice in twenty
    stride = 10 if batch <= 10 else 20
    records = turns[torch.cat([torch.arange(batch) + stride * i for i in range(count)])]
    arms = {"": records, "null": _of_labels(data, records.labels, seed=7)}
    values, rows = {}, []
    for name in ("Bayes CNN", "plain ConvNet"):
        task = lg.Task(_plain_net(name, data.domain), data.domain, lg.Recipe(batch=batch))
        attack = inverting_gradients(steps=steps, tv_weight=1e-3)
        for arm, some in arms.items():
            label = " ".join(filter(None, [name, arm]))
            short = attack if not arm else inverting_gradients(steps=min(steps, 300), tv_weight=1e-3)
            inputs = _kept(context, label, partial(_attacked, short, task, some))
            scores = _matched(inputs, records, psnr)
            one = mean_interval(scores.mean(1))
            bar = at_least(bars[name]) if name in bars and not arm else None
            values[label] = Number(one.mean, bar, (one.low, one.high))
            rows.append(
                {"arm": label, "worst image": round(float(scores.min()), 1), "best": round(float(scores.max()), 1)}
            )
    return Measurement(
        values,
        table=rows,
        detail=f"mean PSNR in dB of {count} batches of {batch} Fashion-MNIST test images, {steps} iterations, one "
        "start, labels known, fresh networks, intervals over batches; the null is scored against records whose update "
        "it never saw (at most 300 iterations)",
    )


@check("batch_of_4", rows="batches", cost="minutes")
def batch_of_4(context: Context) -> Measurement:
    """Batches of 4 with unique labels: mean PSNR on the Bayes CNN and a plain ConvNet."""
    return _inverted(4, 1200, {"Bayes CNN": 18.0, "plain ConvNet": 23.0}, context)


@check("batch_of_16", rows="batches", cost="minutes")
def batch_of_16(context: Context) -> Measurement:
    """Batches of 16, every class once or twice: mean PSNR, and that of reconstructions of other records' updates."""
    return _inverted(16, 300, {}, context)


@check("speed_batch_norm", rows="speed-batches", cost="minutes")
def speed_batch_norm(context: Context) -> Measurement:
    """Batches of 8 through batch norm in train mode, with a batch-norm prior: how many times longer the loop takes."""
    return _speed("norm_convnet", "batches", context)


@check("speed_generator", rows="speed-batches", cost="minutes")
def speed_generator(context: Context) -> Measurement:
    """Codes of a generator in place of pixels, Bayes CNN: how many times longer the loop takes."""
    return _speed("generator", "records", context)


def _speed(name: str, what: str, context: Context) -> Measurement:
    malloc = prepare("tuned")
    comparison = compare(case(name), 5, say=context.say)
    ratio = comparison.ratio()
    return Measurement(
        {"times the loop": Number(ratio.median, at_least(1.5), (ratio.low, ratio.high))},
        detail=f"{comparison.case.problems} {what} at once on one thread, allocator {malloc}, processor time, 5 "
        f"turns; objectives agree to {max(comparison.gap):.0e}; load average up to {max(comparison.loads):.1f}",
    )
