"""A part as a black box: run on known updates, with every source of chance that can be seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from leakgauge.client import LEARNING_RATE
from leakgauge.defenses import Chain, UpdatePart
from leakgauge.seeds import seed_of
from leakgauge.task import ClientContext, Task
from leakgauge.types import Context, Records, Tree

COUNT = 6
"""Known updates: their inputs are drawn, never read."""
SEEDS, FEWEST = 32, 8
"""Simulated releases of every known update, of a random part; and so many at least."""
BYTES = 2**30
"""What all these releases may take together."""


@dataclass(frozen=True)
class Known:
    """One update that the adversary computed itself, and the client's side of it."""

    update: Tree
    context: Context
    label: int


def known_updates(task: Task, count: int = COUNT, *, classes: Sequence[int] | None = None) -> list[Known]:
    """Updates of random inputs through the public client, before the update stage.

    A rate that the threat may hide is taken as one: only the adversary's own updates are scaled by it.
    """
    records = []
    for i in range(count):
        generator = torch.Generator().manual_seed(seed_of(5, i))
        inputs = _inputs(task, generator)
        labels = torch.randint(task.domain.classes, inputs.shape[:1], generator=generator)
        if classes is not None:
            labels = torch.full_like(labels, classes[i])
        records.append(Records(inputs, labels, task.domain))
    return [_known(task, batch, i) for i, batch in enumerate(records)]


def _inputs(task: Task, generator: torch.Generator) -> Tensor:
    """Random records that differ as much as real ones: images of any coarseness, contrast and brightness."""
    shape = (task.recipe.batch, *task.domain.shape)
    if task.domain.box is None:
        return torch.randn(shape, generator=generator)
    if len(shape) != 4:
        return torch.rand(shape, generator=generator)
    pictures = []
    for _ in range(shape[0]):
        coarse = int(torch.randint(2, 9, (), generator=generator))
        grid = torch.randn((1, shape[1], coarse, coarse), generator=generator)
        smooth = torch.nn.functional.interpolate(grid, size=shape[2:], mode="bilinear", align_corners=True)
        contrast, level = 3 * torch.rand(2, generator=generator)
        pictures.append(torch.sigmoid((1 + contrast) * smooth + level - 2)[0])
    return torch.stack(pictures)


def _known(task: Task, batch: Records, key: int) -> Known:
    drawn = task.draw(len(batch), (6, key))
    rate = {LEARNING_RATE: torch.tensor(1.0)} if LEARNING_RATE in task.nuisances else {}
    update = task.update(batch, None, {**drawn, **rate})
    return Known(update, ClientContext(task, batch, task.params, drawn), int(batch.labels[0]))


def flat(tree: Tree) -> Tensor:
    """All entries of a tree as one vector, in the order of the sorted names: a release may list them in any other."""
    return torch.cat([tree[name].reshape(-1) for name in sorted(tree)])


def shaped(vector: Tensor, like: Tree) -> dict[str, Tensor]:
    """The tree whose entries are those of a vector, with the names in the order of ``like``."""
    names = sorted(like)
    pieces = dict(zip(names, vector.split([like[name].numel() for name in names]), strict=True))
    return {name: pieces[name].reshape(value.shape) for name, value in like.items()}


class AskedError(Exception):
    """The part asked the client about its records, which a simulation of the update alone cannot answer."""


@dataclass(frozen=True)
class _Closed:
    """A context that answers nothing."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        raise AskedError(name)


class RefusedError(Exception):
    """A release that cannot be simulated, and why."""


@dataclass(frozen=True)
class Mechanism:
    """``release`` of a part as a function of (update, seed); ``before`` is what acts on updates before it."""

    part: UpdatePart
    before: tuple[UpdatePart, ...]
    known: tuple[Known, ...] = field(repr=False)

    def run(self, update: Tree, seed: int, context: Context | None = None) -> dict[str, Tensor]:
        """One release. Without a context, a part that asks for one raises :class:`AskedError`."""
        with seeded(seed):
            generator = torch.Generator().manual_seed(seed_of(7, seed))
            try:
                out = self.part.release(update, context or _Closed(), generator=generator)  # type: ignore[arg-type]
                observed = {name: out.observed[name] for name in update}
            except AskedError:
                raise
            except Exception as fault:  # somebody's code may raise anything
                raise RefusedError(f"it raises {type(fault).__name__}: {fault}") from fault
        for name, value in observed.items():
            if value.shape != update[name].shape:
                raise RefusedError(f"it changes the shape of {name!r} to {tuple(value.shape)}")
        return {name: value.to(update[name]) for name, value in observed.items()}

    @cached_property
    def inputs(self) -> list[dict[str, Tensor]]:
        """What the part gets of every known update."""
        chain = Chain(self.before)
        return [
            {n: v.detach() for n, v in chain.release(one.update, one.context, generator=_generator(i)).observed.items()}
            for i, one in enumerate(self.known)
        ]

    @cached_property
    def seeds(self) -> int:
        """How many releases of every known update a random part is judged by: fewer of a large network."""
        entries = sum(value.numel() for value in self.inputs[0].values())
        return min(SEEDS, BYTES // (8 * entries * len(self.known)) // 2 * 2)

    @cached_property
    def asks(self) -> bool:
        """Whether it needs more of the client than the update."""
        try:
            self.run(self.inputs[0], 0)
        except AskedError:
            return True
        return False

    def releases(self, seeds: Sequence[int], *, apart: int = 0) -> Tensor:
        """``[updates, seeds, entries]``; the seeds of one update and of the next differ by ``apart``."""
        with torch.no_grad():
            rows = [
                torch.stack([flat(self.run(u, seed + (i + 1) * apart, one.context)).double() for seed in seeds])
                for i, (u, one) in enumerate(zip(self.inputs, self.known, strict=True))
            ]
        return torch.stack(rows)

    @cached_property
    def spread_of_twins(self) -> Tensor:
        """``[entries]``: how far releases of one update under different seeds lie apart at most."""
        both = self.releases((1, 2, 3))
        return (both.amax(1) - both.amin(1)).amax(0)

    @cached_property
    def deterministic(self) -> bool:
        size = max(float(self.releases((1,)).abs().max()), 1e-30)
        return float(self.spread_of_twins.max()) <= 1e-6 * size

    @cached_property
    def repeatable(self) -> bool:
        """Whether the same seed gives the same release: all its chance comes from generators that can be seeded."""
        u, one = self.inputs[0], self.known[0]
        first, second = (flat(self.run(u, 4, one.context)) for _ in range(2))
        return bool(torch.equal(first, second))


def _generator(key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(8, key))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The global generators of torch, numpy and Python at a seed, and afterwards as they were."""
    python, state = random.getstate(), np.random.get_state()  # noqa: NPY002  (what user code may draw from)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(state)  # noqa: NPY002
