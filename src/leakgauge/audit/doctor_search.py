"""The doctor's search: from cheap invariants of one step to several steps, minibatches, orders and momentum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import Any, Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.audit.replay import Channels, Replayer, Setup, distance

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

MOST_STEPS = 24
MOST_ORDERS = 130
NEAR = 0.1
Scored = tuple[float, Setup]


@dataclass
class Search:
    """The search for a set-up that replays the evidence."""

    replayer: Replayer
    believed: Setup
    budget: int = 800
    blind: bool = False
    fits: list[Scored] = field(default_factory=list)
    ranked: list[Scored] = field(default_factory=list)

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

    def within(self, residual: float, setup: Setup) -> bool:
        return residual <= self.replayer.tolerance(setup)

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

    def _kept(self, fit: Scored) -> Scored:
        self.fits.append(fit)
        return fit

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
            c = _least_squares(basis, observed)
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
        if (
            not -1e-6 < smoothing < 1 or decay < -1e-6 or decay * abs(scale) > 0.5
        ):  # nobody halves the weights in a step
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

    @property
    def even(self) -> bool:
        """Whether all weights moved by nearly the same amount, as in the first step of Adam or of a sign method."""
        sizes = self.replayer.observed(self.believed).abs()
        moved = sizes[sizes > 0]
        return len(moved) > 10 and float(moved.std() / moved.mean()) < 0.2

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

    # --- several steps

    def _as_believed(self) -> Iterator[Scored]:
        """The believed steps and minibatches, with momentum, decay and smoothing fitted."""
        steps, minibatch = self.believed.local_steps, self.believed.minibatch
        if steps == 1:
            return
        for context in self._promising()[:2]:
            for momentum in dict.fromkeys((self.believed.momentum, 0.0, 0.9)):
                setup = replace(context, local_steps=steps, minibatch=minibatch, momentum=momentum)
                fit = self.fit_rate(replace(setup, learning_rate=_per_step(context, steps, momentum)))
                self.ranked.append(self._kept(fit))
                if fit[0] < 0.3 and not self.within(*fit):
                    fit = self._refined(fit[1])
                yield fit
                if self.within(*fit):
                    return

    def _several_steps(self) -> Iterator[Scored]:
        """Structures by their residual at a fitted learning rate; the best are refined."""
        ranked = self.ranked
        for context in self._promising():
            for steps, minibatch in self._structures():
                for momentum in dict.fromkeys((self.believed.momentum, 0.0, 0.9)):
                    if self.replayer.gradients > self.budget:
                        break
                    setup = replace(context, local_steps=steps, minibatch=minibatch, momentum=momentum)
                    fit = self.fit_rate(replace(setup, learning_rate=_per_step(context, steps, momentum)))
                    ranked.append(self._kept(fit))
                    if self.within(*fit):
                        yield fit
                        return
        ranked.sort(key=lambda fit: fit[0])
        for _, setup in [fit for fit in ranked if fit[0] < 0.5][:4]:
            refined = self._refined(setup)
            yield refined
            if self.within(*refined):
                return

    def _promising(self) -> list[Setup]:
        """The modes and normalisations whose single step points best along the change."""
        if self.even:
            return []
        down = (fit for fit in self.fits if fit[1].holds != "gradient" and fit[1].sign > 0)
        steps = sorted(down, key=lambda fit: fit[0])
        plain = [
            replace(s, smoothing=self.believed.smoothing, weight_decay=self.believed.weight_decay, order=None)
            for score, s in steps
            if score < min(0.8, steps[0][0] + 0.15)
        ]
        return list(dict.fromkeys(replace(s, local_steps=1, minibatch=None) for s in plain))[:3]

    def _structures(self) -> list[tuple[int, int | None]]:
        """Numbers of steps and minibatches, the likely ones first."""
        size, counted = self.replayer.batch, self.batches_counted()
        whole = [*range(2, 7), 8, 10, self.believed.local_steps]
        made: list[tuple[int, int | None]] = [(n, None) for n in dict.fromkeys(whole) if n > 1]
        for width in sorted((d for d in range(1, size) if size % d == 0), reverse=True)[:4]:
            slices = size // width
            numbers = (slices, 2 * slices, 3 * slices, self.believed.local_steps, *range(1, slices))
            made += [(n, width) for n in dict.fromkeys(numbers) if n <= MOST_STEPS]
        if counted:
            made = [(n, b) for n, b in made if n == counted] or [(min(counted, MOST_STEPS), None)]
        return list(dict.fromkeys(made))

    def batches_counted(self) -> int:
        """How many batches the batch norms of "after" saw since "before"; 0 where none says so."""
        before, after = self.replayer.evidence.before, self.replayer.evidence.after
        counts = [
            int(after[name]) - int(before[name])
            for name in before
            if name.endswith("num_batches_tracked") and name in after
        ]
        return max(counts, default=0)

    def fit_rate(self, setup: Setup, rounds: int = 3) -> Scored:
        """The learning rate by projection: a change is nearly linear in it."""
        observed = self.replayer.observed(setup)
        best: Scored = (math.inf, setup)
        for _ in range(rounds):
            ours = self.replayer.update(setup)
            best = min(best, (distance(ours, observed), setup), key=lambda fit: fit[0])
            scale = float(ours @ observed / ours.square().sum().clamp(min=1e-300))
            if not (math.isfinite(scale) and scale > 0) or abs(scale - 1) < 1e-7:
                break
            setup = replace(setup, learning_rate=setup.learning_rate * min(max(scale, 0.1), 10.0))
        if best[0] < NEAR and not self.within(*best):  # near enough for the last digits to matter
            best = self._newton(best[1], ("learning_rate",), rounds=4)
        return best

    def _refined(self, setup: Setup) -> Scored:
        """Gauss-Newton on ever more continuous settings, until one set explains the update."""
        best: Scored = (math.inf, setup)
        smooth = ("smoothing",) if self.replayer.smooths else ()
        for free in (("momentum",), ("weight_decay",), smooth, ("momentum", "weight_decay", *smooth)):
            if self.replayer.gradients > 2 * self.budget:
                break
            best = min(best, self._kept(self._newton(setup, ("learning_rate", *free))), key=lambda fit: fit[0])
            if self.within(*best):
                break
        return best

    def _newton(self, setup: Setup, free: tuple[str, ...], rounds: int = 8) -> Scored:
        observed = self.replayer.observed(setup)
        ours = self.replayer.update(setup)
        score = distance(ours, observed)
        for _ in range(rounds):
            columns = []
            for name in free:
                moved, width = _nudged(setup, name)
                columns.append((self.replayer.update(moved) - ours) / width)
            step = _least_squares(columns, observed - ours)
            before = score
            for shrink in (1.0, 0.3, 0.1):
                trial = _moved(setup, free, [shrink * s for s in step])
                made = self.replayer.update(trial)
                if distance(made, observed) < score:
                    setup, ours, score = trial, made, distance(made, observed)
                    break
            if score > 0.9 * before or (score > 0.5 * before and self.within(0.2 * score, setup)):
                break
        return score, setup

    # --- orders

    def _orders(self) -> Iterator[Scored]:
        """The order in which minibatches were used, for the believed structure and the nearest ones."""
        mine = (self.believed.local_steps, self.believed.minibatch)
        split = [fit[1] for fit in self.ranked if fit[1].minibatch is not None and fit[0] < 0.9]
        split.sort(key=lambda s: (s.local_steps, s.minibatch) != mine)  # stable: the others stay by residual
        seen: set[tuple[int, int | None]] = set()
        self.budget += self.replayer.gradients  # a purse of its own: the stages before may have spent theirs
        for setup in split:
            key = (setup.local_steps, setup.minibatch)
            if key in seen or len(seen) >= 3 or self.replayer.gradients > self.budget:
                continue
            seen.add(key)
            fit = self._kept(self._ordered(setup))
            yield fit
            if self.within(*fit):
                return

    def _ordered(self, setup: Setup) -> Scored:
        size, width = self.replayer.batch, setup.minibatch or self.replayer.batch
        orders = math.factorial(size) // math.factorial(width) ** (size // width)
        best = self.fit_rate(setup)
        tried = _splits(size, width) if orders <= MOST_ORDERS else [tuple(range(size))[::-1]]
        for order in tried:
            best = min(best, self.fit_rate(replace(setup, order=order)), key=lambda fit: fit[0])
            if self.within(*best):
                return best
        for _ in range(size if orders > MOST_ORDERS else 0):  # swaps, as long as they help
            start, order = best[0], best[1].order or tuple(range(size))
            for i, j in combinations(range(size), 2):
                if i // width == j // width or self.replayer.gradients > self.budget:
                    continue
                places = list(order)
                places[i], places[j] = places[j], places[i]
                best = min(best, self.fit_rate(replace(best[1], order=tuple(places))), key=lambda fit: fit[0])
            if self.within(*best) or best[0] >= start:
                break
        return best

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


def _splits(size: int, width: int) -> list[tuple[int, ...]]:
    """Every way to use the examples in consecutive minibatches; within one, the order does not matter."""
    orders = permutations(range(size))
    return [
        order
        for order in orders
        if all(list(order[i : i + width]) == sorted(order[i : i + width]) for i in range(0, size, width))
    ]


def _per_step(context: Setup, steps: int, momentum: float) -> float:
    """The learning rate of each of several steps that together go as far as one."""
    total = sum((1 - momentum ** (k + 1)) / (1 - momentum) for k in range(steps))
    return context.learning_rate / total


def _least_squares(columns: list[Tensor], target: Tensor) -> list[float]:
    a = torch.stack(columns, 1)
    size = a.norm(dim=0).clamp(min=1e-300)
    found = torch.linalg.lstsq(a / size, target.unsqueeze(1), driver="gelsd").solution.squeeze(1) / size
    return [float(v) for v in found]


_STEPS = {"learning_rate": 1e-4, "momentum": 1e-4, "weight_decay": 1e-5, "smoothing": 1e-4}


def _nudged(setup: Setup, name: str) -> tuple[Setup, float]:
    width = _STEPS[name]
    return _moved(setup, (name,), [width]), width


def _moved(setup: Setup, names: tuple[str, ...], steps: list[float]) -> Setup:
    changed: dict[str, Any] = {}
    for name, step in zip(names, steps, strict=True):
        value = getattr(setup, name)
        if name == "learning_rate":  # on the logarithm
            changed[name] = value * math.exp(min(max(step, -1.5), 1.5))
        else:
            changed[name] = min(max(value + step, 0.0), 0.995 if name != "weight_decay" else math.inf)
    return replace(setup, **changed)
