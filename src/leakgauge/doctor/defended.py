"""Our client under a defense: what it would have left in the user's file, drawn again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.defenses import Protection
from leakgauge.doctor.replay import RELATIVE, Replayer, flat
from leakgauge.doctor.setup import Setup
from leakgauge.errors import LeakgaugeError
from leakgauge.seeds import seed_of
from leakgauge.storage.states import FileError
from leakgauge.task import ClientContext, Task

MOST_ENTRIES = 100_000
"""Entries of an update that are compared; of a larger one, so many at random."""
NUDGE = 1e-5
"""The rounding of an update in float32, relative to its entries: it decides which of two ties a pruning keeps."""


@dataclass(frozen=True)
class Defended:
    """The user's client as ours under a protection's training and update stage.

    Any part can be examined: nothing is asked of it but ``release``. What a client drew is not known, so that one
    release proves nothing; many of them are the law that the user's update must follow.
    """

    replayer: Replayer
    protection: Protection
    moments: dict[tuple[Setup, bool], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)
    """What was simulated already: mean and spread of the releases of a set-up, of a silent client or a real one."""

    @cached_property
    def places(self) -> Tensor:
        """The entries that are compared."""
        total = sum(self.replayer.evidence.before[name].numel() for name in self.replayer.names)
        if total <= MOST_ENTRIES:
            return torch.arange(total)
        chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:MOST_ENTRIES]
        return chosen.sort().values

    @cached_property
    def tensors(self) -> Tensor:
        """The number of the tensor that each place belongs to."""
        sizes = torch.tensor([self.replayer.evidence.before[name].numel() for name in self.replayer.names])
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)[self.places]

    def observed(self, setup: Setup) -> Tensor:
        """What the user's client sent, at the places."""
        return self.replayer.observed(setup)[self.places]

    def rounding(self, setup: Setup) -> float:
        """How far an entry may be off by rounding alone."""
        observed = self.replayer.observed(setup)
        return self.replayer.tolerance(setup) * float(observed.square().mean().sqrt())

    def runs(self, setup: Setup) -> bool:
        """Whether there is such a client."""
        try:
            self._task(setup)
        except LeakgaugeError:
            return False
        return True

    def released(self, setup: Setup, draws: Iterable[int], *, silent: bool = False) -> Tensor:
        """What our client lets out under a set-up in each of the draws, ``[draws, places]``, as the file holds it.

        A ``silent`` client has an update of zeros before its defense.
        """
        task, replayer = self._task(setup), self.replayer
        theta = replayer.theta(setup)
        records = replayer.evidence.records
        batch = records[list(setup.order)] if setup.order is not None else records
        update, rows = None, []
        for draw in draws:
            drawn = task.draw(len(batch), (draw,))
            if update is None or drawn:  # the same for all draws, unless the training itself is random
                replayer.gradients += setup.local_steps
                sign = 0 if silent else setup.sign
                update = {name: sign * u for name, u in task.update(batch, theta, drawn).items()}
            generator = torch.Generator().manual_seed(seed_of(draw, 1))
            context = ClientContext(task, batch, theta, drawn)
            observed = task.protection.chain.release(_rounded(update, draw), context, generator=generator).observed
            rows.append(self._sent(setup, flat({name: observed[name] for name in replayer.names}))[self.places])
        return torch.stack(rows)

    def _task(self, setup: Setup) -> Task:
        model = self.replayer.working(setup)
        if model is None:
            raise FileError("the model does not run like this", where=setup.text("mode", "normalise"))
        recipe = self.replayer.recipe(setup)
        recipe = replace(recipe, shares="gradient" if setup.holds == "gradient" else setup.shares)
        late = Protection(training=self.protection.training, update=self.protection.update)
        return Task(model, self.replayer.evidence.records.domain, recipe, late)

    def _sent(self, setup: Setup, shared: Tensor) -> Tensor:
        """A released update as it stands in the user's file: a defended gradient may have become a step of SGD."""
        theta = flat(self.replayer.theta(setup))
        if setup.holds != "gradient" and setup.shares == "gradient":
            shared = -setup.learning_rate * (shared + setup.weight_decay * theta)
        if setup.holds == "weights":  # rounded as the weights are
            dtype = self.replayer.evidence.after[self.replayer.names[0]].dtype
            shared = (theta + shared).to(dtype).double() - theta
        return shared


def _rounded(update: dict[str, Tensor], draw: int) -> dict[str, Tensor]:
    """An update as another order of its sums would give it."""
    generator = torch.Generator().manual_seed(seed_of(draw, 2))
    return {
        name: u + NUDGE * u.square().mean().sqrt() * torch.randn(u.shape, generator=generator, dtype=u.dtype)
        for name, u in update.items()
    }


assert NUDGE < RELATIVE  # what is called rounding here is called rounding there, too
