"""The doctor's search over several steps: their number, minibatches, momentum, and the order of the examples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations, product

from leakgauge.doctor.fit import Fitting, Scored
from leakgauge.doctor.replay import Setup

MOST_STEPS = 24
MOST_ORDERS = 130


@dataclass
class Steps(Fitting):
    """Structures of several steps, ranked by their residual at a fitted learning rate."""

    ranked: list[Scored] = field(default_factory=list)

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
        contexts, momenta = self._promising(), dict.fromkeys((self.believed.momentum, 0.0, 0.9))
        for (steps, minibatch), context, momentum in product(self._structures(), contexts, momenta):
            if self.replayer.gradients > self.budget:
                break
            setup = replace(context, local_steps=steps, minibatch=minibatch, momentum=momentum)
            fit = self.fit_rate(replace(setup, learning_rate=_per_step(context, steps, momentum)))
            self.ranked.append(self._kept(fit))
            if self.within(*fit):
                yield fit
                return
        self.ranked.sort(key=lambda fit: fit[0])
        for _, setup in [fit for fit in self.ranked if fit[0] < 0.5][:4]:
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

    @property
    def even(self) -> bool:
        """Whether all weights moved by nearly the same amount, as in the first step of Adam or of a sign method."""
        sizes = self.replayer.observed(self.believed).abs()
        moved = sizes[sizes > 0]
        return len(moved) > 10 and float(moved.std() / moved.mean()) < 0.2

    def _structures(self) -> list[tuple[int, int | None]]:
        """Numbers of steps and minibatches, the likely ones first."""
        size, counted = self.replayer.batch, self.batches_counted()
        widths = sorted((d for d in range(1, size) if size % d == 0), reverse=True)[:4]
        made: list[tuple[int, int | None]] = [(2, None), (3, None)]
        made += [(size // width, width) for width in widths]  # one pass over the batch
        made += [(n, None) for n in (self.believed.local_steps, 4, 5, 6, 8, 10) if n > 1]
        for width in widths:
            slices = size // width
            made += [(n, width) for n in (2 * slices, 3 * slices, self.believed.local_steps, *range(1, slices))]
        made = [(n, b) for n, b in made if n <= MOST_STEPS]
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
