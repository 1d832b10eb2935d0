"""The doctor's first look: does a single step explain the update, in some mode, normalisation and reading?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch

from leakgauge.doctor.case import Case, Fit
from leakgauge.doctor.fit import least_squares
from leakgauge.doctor.names import equal_pairs, nearest_names
from leakgauge.doctor.replay import distance, flat
from leakgauge.doctor.setup import Channels, Setup

COMMON: dict[int, tuple[Channels, ...]] = {
    1: (
        ((0.5,), (0.5,)),
        ((0.1307,), (0.3081,)),
        ((0.286,), (0.353,)),
        ((0.2860,), (0.3205,)),
        ((0.0,), (1 / 255,)),
    ),
    3: (
        ((0.5,) * 3, (0.5,) * 3),
        ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
        ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
        ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ((0.0,) * 3, (1 / 255,) * 3),
    ),
}
"""Normalisations in use, by channels: halves, MNIST, Fashion-MNIST, CIFAR, ImageNet, pixels in 0..255."""


def single_steps(case: Case) -> Iterator[Fit]:
    """One step, in every reading of the files and every context in which the model runs."""
    for reading in _readings(case):
        for setup in contexts(case, reading):
            yield case.note(fit_one_step(case, setup))


def exchanged_names(case: Case) -> Iterator[Fit]:
    """One step, with two parameters of equal shape under each other's name, in both files or in an update."""
    base = replace(case.believed, sign=1, local_steps=1, minibatch=None, order=None)
    for a, b in equal_pairs(case.replayer)[:40]:
        for renamed in ("both", "after"):
            setup = replace(base, names=((a, b), (b, a)), renamed=renamed)
            if renamed == "after" and setup.holds == "weights":
                continue
            yield case.note(fit_one_step(case, setup))


def contexts(case: Case, setup: Setup) -> list[Setup]:
    """The modes and normalisations in which the model runs, the believed ones first."""
    channels = case.replayer.evidence.records.domain.shape[0]
    norms = [case.believed.normalise, None, *COMMON.get(channels, ())]
    modes: list[Literal["train", "eval"]] = ["train", "eval"]
    modes.sort(key=lambda mode: mode != case.believed.mode)
    if not case.replayer.mode_matters:
        modes = modes[:1]
    every = [replace(setup, mode=mode, normalise=norm) for norm in dict.fromkeys(norms) for mode in modes]
    return [one for one in every if case.replayer.working(one) is not None]


def _readings(case: Case) -> Iterator[Setup]:
    """What the file "after" may hold, and under which names."""
    for holds in dict.fromkeys((case.believed.holds, "weights", "gradient")):
        base = replace(case.believed, holds=holds, sign=1, local_steps=1, minibatch=None, order=None)
        yield base
        if holds == "weights":
            yield replace(base, swapped=True)
            names = nearest_names(case.replayer)
            if names:
                yield replace(base, names=names, renamed="after")


def fit_one_step(case: Case, setup: Setup) -> Fit:
    """The least-squares fit of scale, label smoothing and weight decay of a single step."""
    replayer = case.replayer
    observed, gradient = replayer.observed(setup), replayer.gradient(setup)
    best = Fit(math.inf, setup)
    if not float(observed.norm()):
        return best
    uniform = replayer.gradient(setup, "uniform") if replayer.smooths else None
    theta = flat(replayer.theta(setup)) if setup.holds == "weights" else None
    for smooth, decay in ((False, False), (True, False), (False, True), (True, True)):
        if (smooth and uniform is None) or (decay and theta is None):
            continue
        basis = [gradient, *[b for b, used in ((uniform, smooth), (theta, decay)) if used and b is not None]]
        c = least_squares(basis, observed)
        score = distance(torch.stack([a * b for a, b in zip(c, basis, strict=True)]).sum(0), observed)
        step = _as_settings(case, setup, c[0], c[1] if smooth else 0.0, c[-1] if decay else 0.0)
        if step is not None and score < best.residual:
            best = Fit(score, step)
        if step is not None and case.explains(Fit(score, step)):
            break
    return best


def _as_settings(case: Case, setup: Setup, gradient: float, uniform: float, theta: float) -> Setup | None:
    """Coefficients as settings; None where no client has them."""
    scale, batch, believed = gradient + uniform, case.replayer.batch, case.believed
    if not scale or not math.isfinite(scale):
        return None
    smoothing, decay = uniform / scale, theta / scale
    if not -1e-6 < smoothing < 1 or not -1e-6 < decay < 0.5 / abs(scale):  # nobody halves the weights in a step
        return None
    smoothing, decay = max(smoothing, 0.0), max(decay, 0.0)
    size = abs(scale)
    plain = replace(setup, smoothing=smoothing, weight_decay=decay, momentum=believed.momentum)
    if setup.holds != "weights":
        for factor, reduction in ((1.0, "mean"), (float(batch), "sum")):
            if abs(size / factor - 1) < 1e-3:
                sign = 1 if scale > 0 else -1
                return replace(plain, holds="gradient", reduction=reduction, sign=sign, weight_decay=0.0)  # type: ignore[arg-type]
        plain = replace(plain, holds="change")
    many = batch if believed.reduction == "sum" else 1
    return replace(
        plain,
        reduction=believed.reduction,
        learning_rate=size / many,
        weight_decay=decay * many,
        sign=-1 if scale > 0 else 1,
    )
