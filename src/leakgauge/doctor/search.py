"""The doctor's search: from cheap invariants of one step to several steps, minibatches, orders and momentum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import torch
from scipy.optimize import linear_sum_assignment

from leakgauge.doctor.fit import Scored, least_squares
from leakgauge.doctor.replay import Channels, Setup, distance
from leakgauge.doctor.steps import Steps

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


@dataclass
class Search(Steps):
    """The search for a set-up that replays the evidence; ``blind`` where the evidence shows no change at all."""

    blind: bool = False

    def run(self) -> tuple[Setup, float]:
        """The set-up that replays with the fewest changes, else the nearest one, and its residual."""
        believed, r = self.believed, self.replayer
        if not float(r.observed(believed).norm()) or r.tolerance(believed) > 0.1:
            self.blind = True
            return believed, r.residual(believed)
        first = self._residual(believed)
        if self.within(first, believed):
            return believed, first
        self.fits.append((first, believed))
        for stage in (self._one_step, self._renamed, self._as_believed, self._several_steps, self._orders):
            good = [(score, setup) for score, setup in stage() if self.within(score, setup)]
            if good:
                return self._simplest(good)
        score, setup = min(self.fits, key=lambda fit: fit[0])
        return setup, score

    def _simplest(self, good: list[Scored]) -> tuple[Setup, float]:
        snapped = [self.snap(setup) for _, setup in sorted(good, key=lambda fit: fit[0])[:6]]
        score, setup = min(snapped, key=lambda fit: (len(fit[1].differs(self.believed)), fit[0]))
        return setup, score

    def _residual(self, setup: Setup) -> float:
        return self.replayer.residual(setup)

    # --- one step

    def contexts(self, setup: Setup) -> list[Setup]:
        """The modes and normalisations in which the model runs, the believed ones first."""
        channels = self.replayer.evidence.records.domain.shape[0]
        norms = [self.believed.normalise, None, *COMMON.get(channels, ())]
        modes: list[Literal["train", "eval"]] = ["train", "eval"]
        modes.sort(key=lambda mode: mode != self.believed.mode)
        if not self.replayer.mode_matters:
            modes = modes[:1]
        made = [replace(setup, mode=mode, normalise=norm) for norm in dict.fromkeys(norms) for mode in modes]
        return [one for one in made if self.replayer.working(one) is not None]

    def readings(self) -> Iterator[Setup]:
        """What the file "after" may hold, and under which names."""
        for holds in dict.fromkeys((self.believed.holds, "weights", "gradient")):
            base = replace(self.believed, holds=holds, sign=1, local_steps=1, minibatch=None, order=None)
            yield base
            if holds == "weights":
                yield replace(base, swapped=True)
                names = self._nearest_names()
                if names:
                    yield replace(base, names=names, renamed="after")

    def _one_step(self) -> Iterator[Scored]:
        for reading in self.readings():
            for setup in self.contexts(reading):
                yield self._kept(self.one_step(setup))

    def one_step(self, setup: Setup) -> Scored:
        """The least-squares fit of scale, label smoothing and weight decay of a single step."""
        r = self.replayer
        observed, gradient = r.observed(setup), r.gradient(setup)
        if not float(observed.norm()):
            return math.inf, setup
        uniform = r.gradient(setup, "uniform") if r.smooths else None
        theta = torch.cat([p.flatten() for p in r.theta(setup).values()]) if setup.holds == "weights" else None
        best: Scored = (math.inf, setup)
        for smooth, decay in ((False, False), (True, False), (False, True), (True, True)):
            if (smooth and uniform is None) or (decay and theta is None):
                continue
            basis = [gradient, *[b for b, used in ((uniform, smooth), (theta, decay)) if used and b is not None]]
            c = least_squares(basis, observed)
            score = distance(torch.stack([a * b for a, b in zip(c, basis, strict=True)]).sum(0), observed)
            made = self._step(setup, c[0], c[1] if smooth else 0.0, c[-1] if decay else 0.0)
            if made is not None and score < best[0]:
                best = (score, made)
            if made is not None and self.within(score, made):
                break
        return best

    def _step(self, setup: Setup, gradient: float, uniform: float, theta: float) -> Setup | None:
        """Coefficients as settings; None where no client has them."""
        scale = gradient + uniform
        if not scale or not math.isfinite(scale):
            return None
        smoothing, decay = uniform / scale, theta / scale
        if not -1e-6 < smoothing < 1 or not -1e-6 < decay < 0.5 / abs(scale):  # nobody halves the weights in a step
            return None
        smoothing, decay = max(smoothing, 0.0), max(decay, 0.0)
        size = abs(scale)
        plain = replace(setup, smoothing=smoothing, weight_decay=decay, momentum=self.believed.momentum)
        if setup.holds != "weights":
            for factor, reduction in ((1.0, "mean"), (float(self.replayer.batch), "sum")):
                if abs(size / factor - 1) < 1e-3:
                    sign = 1 if scale > 0 else -1
                    return replace(plain, holds="gradient", reduction=reduction, sign=sign, weight_decay=0.0)  # type: ignore[arg-type]
            plain = replace(plain, holds="change")
        many = self.replayer.batch if self.believed.reduction == "sum" else 1
        return replace(
            plain,
            reduction=self.believed.reduction,
            learning_rate=size / many,
            weight_decay=decay * many,
            sign=-1 if scale > 0 else 1,
        )

    # --- names

    def _nearest_names(self) -> tuple[tuple[str, str], ...]:
        """Which tensor of "after" is nearest to which of "before", among equal shapes; () if each is its own."""
        evidence, found = self.replayer.evidence, []
        for group in self._groups():
            cost = torch.stack(
                [
                    torch.stack([(evidence.after[b].double() - evidence.before[a].double()).norm() for b in group])
                    for a in group
                ]
            )
            rows, columns = linear_sum_assignment(cost.numpy())
            found += [(group[i], group[j]) for i, j in zip(rows, columns, strict=True) if i != j]
        return tuple(found)

    def _groups(self) -> list[list[str]]:
        """Parameters of equal shapes."""
        by: dict[torch.Size, list[str]] = {}
        for name in self.replayer.names:
            by.setdefault(self.replayer.evidence.before[name].shape, []).append(name)
        return [group for group in by.values() if len(group) > 1]

    def _renamed(self) -> Iterator[Scored]:
        """Two parameters of equal shape under each other's name, in both files or in an update."""
        pairs = [pair for group in self._groups() for pair in combinations(group, 2)][:40]
        base = replace(self.believed, sign=1, local_steps=1, minibatch=None, order=None)
        for a, b in pairs:
            for renamed in ("both", "after"):
                setup = replace(base, names=((a, b), (b, a)), renamed=renamed)
                if renamed == "after" and setup.holds == "weights":
                    continue
                yield self._kept(self.one_step(setup))

    # --- from fitted numbers to those that people write

    def snap(self, setup: Setup) -> Scored:
        """The believed or a round value wherever that replays as well."""
        size = setup.minibatch or self.replayer.batch
        if setup.holds != "gradient" and setup.learning_rate:
            other = "sum" if setup.reduction == "mean" else "mean"
            factor = 1 / size if other == "sum" else float(size)
            turned = replace(
                setup,
                reduction=other,  # type: ignore[arg-type]
                learning_rate=setup.learning_rate * factor,
                weight_decay=setup.weight_decay / factor,
            )
            for one in (setup, turned):
                if abs(one.learning_rate / self.believed.learning_rate - 1) < 2e-3:
                    setup = one
                    break
        for name in ("smoothing", "weight_decay", "momentum", "learning_rate", "order"):
            for value in self._rounder(setup, name):
                trial = replace(setup, **{name: value})
                if trial != setup and self.within(self._residual(trial), trial):
                    setup = trial
                    break
        return self._residual(setup), setup

    def _rounder(self, setup: Setup, name: str) -> list[Any]:
        value, given = getattr(setup, name), getattr(self.believed, name)
        if name == "order":
            return [None]
        rounded = [float(f"{value:.{digits}g}") for digits in (1, 2, 3)] if value else []
        valid = [v for v in rounded if v > 0 and (name not in ("momentum", "smoothing") or v < 1)]
        return [given, *([0.0] if name != "learning_rate" else []), *valid]
