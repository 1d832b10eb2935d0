"""Learned priors under noise: what a generator is worth beside total variation, the class mean, and no update at all.

The prior is trained on train records; total variation and patches are weighted on test records that are not reported.
The generator's weight is not tuned: it is 1, for a density is in nats.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, at_most, check, exactly
from leakgauge.adversary import Adversary, adam, attack, cosine_decay
from leakgauge.adversary.nulls import noise
from leakgauge.attacks import bayes
from leakgauge.metrics import mean_interval, psnr
from leakgauge.priors import Learned, Patches, tv
from leakgauge.training.prior import train_patches, train_vae
from leakgauge.types import Prior

RECORDS, TUNING, PUBLIC, SIGMA = 20, 4, 20_000, 1.0
TV_WEIGHTS, PATCH_WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0), (10.0, 30.0, 100.0, 300.0, 1000.0)
RATES = (0.02, 0.1)


@dataclass(frozen=True)
class _Setting:
    """A noisy client, its reported updates, updates to tune on, and public records."""

    task: lg.Task
    reported: lg.Records
    observed: Sequence[lg.Observation]
    tuning: lg.Records
    tuned_on: Sequence[lg.Observation]
    public: lg.Records


def _setting(*, normalised: bool = True) -> _Setting:
    """As in the Bayes paper inputs are normalised; without it gradients are shorter beside the same noise."""
    data = lg.data.load("fashion_mnist")
    model = lg.models.build("bayes_cnn", data.domain, seed=0)
    model = lg.models.normalised(model, *data.moments()) if normalised else model
    task = lg.Task(model, data.domain).protect(f"gaussian(std={SIGMA})")
    drawn = data.sample(RECORDS + TUNING, seed=7, split="test")
    reported, tuning = drawn[:RECORDS], drawn[RECORDS:]
    public = data.sample(PUBLIC, seed=0, split="train")
    seen, other = (lg.observe(task, some, seed=seed) for seed, some in enumerate((reported, tuning)))
    return _Setting(task, reported, seen, tuning, other, public)


def _scores(setting: _Setting, inputs: Tensor) -> Tensor:
    return psnr(inputs.detach().flatten(0, 1), setting.reported.inputs)


def _tuned(setting: _Setting, prior: Prior, weights: Sequence[float], steps: int) -> tuple[Adversary, Tensor]:
    """The best weight and rate on the tuning records, by their true PSNR, and the scores of the reported ones."""
    tries = [_adversary(weight * prior, rate, steps) for weight in weights for rate in RATES]  # type: ignore[operator]
    rated = [
        float(psnr(one.inputs.detach().flatten(0, 1), setting.tuning.inputs).mean())
        for one in attack(tries, setting.task, setting.tuned_on)
    ]
    best = tries[rated.index(max(rated))]
    return best, _scores(setting, best(setting.task, setting.observed).inputs)


def _adversary(prior: Prior, rate: float, steps: int) -> Adversary:
    return bayes(prior=prior, solver=adam(lr=rate, steps=steps, schedule=cosine_decay()))


def _class_mean(setting: _Setting) -> Tensor:
    """The mean public picture of each reported record's class: labels are known to the adversary."""
    means = torch.stack(
        [setting.public.inputs[setting.public.labels == c].mean(0) for c in range(setting.task.domain.classes)]
    )
    return psnr(means[setting.reported.labels], setting.reported.inputs)


def _number(values: Tensor, bar: object = None) -> Number:
    interval = mean_interval(values)
    return Number(interval.mean, bar, (interval.low, interval.high))  # type: ignore[arg-type]


@check("learned_prior", rows="learned-prior", cost="long")
def learned_prior(context: Context) -> Measurement:
    """Fashion-MNIST, Bayes CNN, Gaussian noise σ = 1, labels known: a search of codes, tuned TV, class mean, null."""
    setting = _setting()
    with tempfile.TemporaryDirectory() as folder:
        context.say("training the prior")
        trained = train_vae(setting.public, epochs=6)
        file = Path(folder) / "prior.safetensors"
        file.write_bytes(trained.content)
        prior = Learned(str(file))
        search = _adversary(prior, 0.1, 150)  # from the middle of the prior; further starts fit more noise
        context.say("searching codes")
        latent = _scores(setting, search(setting.task, setting.observed).inputs)
        context.say("noise in place of the update")
        blind = noise(setting.observed, seed=1)
        null = _scores(setting, search(setting.task, blind).inputs)
        overlap = prior.trained_on(setting.reported.inputs)
    context.say("tuning total variation")
    best, smooth = _tuned(setting, tv(kind="quadratic", reduce="sum"), TV_WEIGHTS, 200)
    mean = _class_mean(setting)
    return Measurement(
        {
            "search of codes": _number(latent),
            "tuned total variation": _number(smooth),
            "class mean": _number(mean),
            "gain over total variation": _number(latent - smooth, at_least(2)),
            "gain over the class mean": _number(latent - mean, above(0)),
            "noise in place of the update, over the class mean": _number(null - mean, at_most(0)),
            "reported records that the prior knows": Number(overlap, exactly(0)),
            "unseen records": Number(len(latent), at_least(20)),
        },
        detail=f"mean PSNR in dB; the decoder draws unseen records at {trained.score:.1f} dB; "
        f"total variation chosen on {TUNING} other records: {best!r}",
    )


@check("learned_prior_raw", rows="learned-prior", cost="long")
def learned_prior_raw(context: Context) -> Measurement:
    """The same without normalised inputs, measured only: from the middle of the prior, more starts, more steps."""
    setting = _setting(normalised=False)
    with tempfile.TemporaryDirectory() as folder:
        context.say("training the prior")
        file = Path(folder) / "prior.safetensors"
        file.write_bytes(train_vae(setting.public, epochs=6).content)
        prior = Learned(str(file))
        searches = {
            "search of codes": _adversary(prior, 0.1, 150),
            "search of codes, four starts": replace(_adversary(prior, 0.1, 150), restarts=4),
            "search of codes, smaller steps": _adversary(prior, 0.03, 400),
        }
        scores = dict[str, Tensor]()
        for name, search in searches.items():
            context.say(name)
            scores[name] = _scores(setting, search(setting.task, setting.observed).inputs)
    context.say("tuning total variation")
    best, smooth = _tuned(setting, tv(kind="quadratic", reduce="sum"), TV_WEIGHTS, 200)
    mean, first = _class_mean(setting), scores["search of codes"]
    return Measurement(
        {
            **{name: _number(values) for name, values in scores.items()},
            "tuned total variation": _number(smooth),
            "class mean": _number(mean),
            "gain over total variation": _number(first - smooth),
            "gain over the class mean": _number(first - mean),
        },
        detail=f"mean PSNR in dB of {RECORDS} records, inputs in [0, 1]; total variation chosen on {TUNING} others: "
        f"{best!r}",
    )


@check("learned_density", rows="learned-density", cost="long")
def learned_density(context: Context) -> Measurement:
    """The same client: a Gaussian mixture of patches against total variation, both tuned alike."""
    setting = _setting()
    with tempfile.TemporaryDirectory() as folder:
        context.say("fitting patches")
        file = Path(folder) / "patches.safetensors"
        file.write_bytes(train_patches(setting.public).content)
        context.say("tuning patches")
        patched, ours = _tuned(setting, Patches(str(file)), PATCH_WEIGHTS, 200)
        context.say("tuning total variation")
        best, smooth = _tuned(setting, tv(kind="quadratic", reduce="sum"), TV_WEIGHTS, 200)
        chosen = repr(patched).replace(str(file), "patches.safetensors")
    return Measurement(
        {
            "patches": _number(ours),
            "tuned total variation": _number(smooth),
            "gain over total variation": _number(ours - smooth),
        },
        detail=f"mean PSNR in dB of {RECORDS} records, measured only; chosen on {TUNING} others: {chosen}; {best!r}",
    )
