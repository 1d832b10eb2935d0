"""The law of order: less protection never looks safer.

Where a defense is the weaker one with something on top that needs nothing but what was sent (noise, pruning, rounding),
an adversary can put that on top himself and then attack as before. So whatever the adversaries find under the stronger
defense they find under the weaker one: those cells are attacks on it, too, on the same records. They are counted where
they find a leak that the weaker defense's own adversaries miss. That costs no work, and no false alarm that the
stronger defense does not already have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from leakgauge.adversary.simulation.simulate import is_silent
from leakgauge.audit.judge.arms import Arms
from leakgauge.audit.judge.verdict import Verdict
from leakgauge.audit.judge.words import WORDS, at_least
from leakgauge.defenses import Identity, Protection, UpdatePart, parts_of
from leakgauge.defenses.update import Chain
from leakgauge.defenses.update.promises import GaussianNoise
from leakgauge.errors import LeakgaugeError
from leakgauge.intervals import mean_interval

BORROWED = "{} after {}"
CONFIDENCE = 0.99
T = TypeVar("T")


def weakens(weaker: Protection, stronger: Protection) -> bool:
    """Whether anybody can make what ``stronger`` lets out of what ``weaker`` does, with chance and nothing else.

    So it is if the chain of the stronger goes on where that of the weaker ends, with parts that promise
    ``post_processing``, or have only a ``release`` that never asks the client; if the last part of the weaker is
    Gaussian noise and the stronger has more of it there; or if the stronger, being deterministic, absorbs the weaker:
    pruning more after pruning less.
    """
    if any(repr(getattr(weaker, stage)) != repr(getattr(stronger, stage)) for stage in ("input", "model", "training")):
        return False
    less, more = (_parts(how) for how in (weaker, stronger))
    if [*map(repr, less)] == [*map(repr, more)] or len(less) > len(more):
        return False
    shared = len(less)
    ends_alike = not less or repr(less[-1]) == repr(more[shared - 1]) or _noisier(less[-1], more[shared - 1])
    if ends_alike and [*map(repr, less[:-1])] == [*map(repr, more[: shared - 1 if less else 0])]:
        return all(_processes(part) for part in more[shared:])
    return all(_processes(part) for part in more) and _absorbs(less, more)


def _parts(how: Protection) -> list[UpdatePart]:
    return [part for part in parts_of(how.update) if not isinstance(part, Identity)]


def _processes(part: UpdatePart) -> bool:
    return not part.per_example and (part.post_processing or (is_silent(part) and _needs_no_client(part)))


def _needs_no_client(part: UpdatePart) -> bool:
    """Whether a part that promises nothing releases an update without its client: then anybody can."""
    try:
        for update in _updates():
            part.release(update, None, generator=Generator().manual_seed(0))
    except Exception:  # somebody's code may raise anything; in doubt it is no post-processing
        return False
    return True


def _updates() -> Iterator[dict[str, Tensor]]:
    """A few updates of a layer."""
    for seed in range(3):
        generator = Generator().manual_seed(seed)
        yield {"a.weight": torch.randn(12, 8, generator=generator), "a.bias": torch.randn(12, generator=generator)}


def _noisier(less: UpdatePart, more: UpdatePart) -> bool:
    """``N(0, b²)`` is ``N(0, a²)`` with more on top, if ``b > a``."""
    laws = less.noise_law, more.noise_law
    return all(isinstance(law, GaussianNoise) for law in laws) and laws[0].size < laws[1].size  # type: ignore[union-attr]


def _absorbs(less: Sequence[UpdatePart], more: Sequence[UpdatePart]) -> bool:
    """``more(less(u)) = more(u)`` of deterministic chains, on a few updates."""
    weak, strong = Chain(tuple(less)), Chain(tuple(more))

    def release(chain: Chain, update: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
        return chain.release(update, None, generator=Generator().manual_seed(seed)).observed

    try:
        for update in _updates():
            once = release(weak, update, 0)
            outcomes = [release(strong, update, 1), release(strong, update, 2), release(strong, once, 1)]
            if not _equal([once, release(weak, update, 3)]) or not _equal(outcomes):
                return False
    except (LeakgaugeError, AttributeError):  # a part that needs its client is no post-processing
        return False
    return True


def _equal(trees: Sequence[Mapping[str, Tensor]]) -> bool:
    return all(torch.allclose(one[name], other[name]) for one, other in pairwise(trees) for name in one)


@dataclass(frozen=True)
class Stronger:
    """A stronger defense that was attacked, too: its name, its scores and its verdict."""

    name: str
    expression: str
    arms: Arms
    verdict: Verdict

    @property
    def leaks(self) -> bool:
        return (WORDS[self.verdict.word].finding or 0) > 0

    def exceeds(self, arms: Arms, metric: str, word: Verdict | None = None) -> bool:
        """Whether its leak is worse than what is known of a weaker one: by its verdict, or by the score of updates."""
        if not self.leaks:
            return False
        if word is not None and not at_least(word.word, self.verdict.word):
            return True
        here, there = (a.by_update(a.best("real", metric)) for a in (arms, self.arms))
        low = mean_interval(np.asarray(there - here), CONFIDENCE).low if len(here) > 1 else 0.0
        return bool(low > 0)


def borrowed(arms: Arms, stronger: Sequence[Stronger]) -> Arms:
    """The scores of a defense with those of stronger ones as further adversaries, named :data:`BORROWED`."""
    scores = {arm: dict(by) for arm, by in arms.scores.items()}
    cross, nearness = dict(arms.cross), dict(arms.nearness)
    labels, unmodelled = dict(arms.labels), dict(arms.unmodelled)
    for one in stronger:
        for arm, by in one.arms.scores.items():
            scores[arm] |= _renamed(by, one.name)
        cross |= _renamed(one.arms.cross, one.name)
        nearness |= _renamed(one.arms.nearness, one.name)
        labels |= _renamed(one.arms.labels, one.name)
        unmodelled |= _renamed(one.arms.unmodelled, one.name)
    return replace(arms, scores=scores, cross=cross, nearness=nearness, labels=labels, unmodelled=unmodelled)


def _renamed(by: Mapping[str, T], stronger: str) -> dict[str, T]:
    return {BORROWED.format(name, stronger): value for name, value in by.items()}


def at_least_as_bad(verdict: Verdict, stronger: Sequence[Stronger]) -> Verdict:
    """A verdict that is no milder than that of any stronger defense."""
    for one in stronger:
        if not at_least(verdict.word, one.verdict.word):
            why = f"as under {one.name}, which anybody can add to what was sent: {one.verdict.why}"
            verdict = replace(verdict, word=one.verdict.word, why=why)
    return verdict
