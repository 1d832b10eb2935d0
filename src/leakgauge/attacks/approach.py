"""What ``adaptive()`` does about every nuisance of a task: the adversary's treatments, and what it adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.adversary import Adversary
from leakgauge.adversary.treatments import Case
from leakgauge.attacks.adapting import hint_of, last_decoded
from leakgauge.attacks.believed import beliefs
from leakgauge.attacks.precode import NOISE, Latent, has_bottleneck
from leakgauge.defenses.update.chain import is_noise
from leakgauge.task import Task
from leakgauge.types import Knowledge, Treatment


@dataclass(frozen=True)
class Approach:
    """How ``adaptive()`` attacks a task under a threat: where it begins, and what it does about every nuisance."""

    adversary: Adversary
    treatments: tuple[Treatment, ...]
    exact: bool = False
    simulated: tuple[str, ...] = ()
    """What it made of every part that has only a ``release``, a sentence each."""
    recovery: str = ""
    """What exact recovery does about a batch, or why it does not apply; empty where the network gives it no hold."""

    def __str__(self) -> str:
        begins = "a linear layer is read off exactly" if self.exact else repr(self.adversary)
        lines = (f"  {line}" for line in (*self.simulated, *self.treatments))
        return "\n".join([*filter(None, [self.recovery]), begins, *lines])


def of_scales(task: Task) -> list[Treatment]:
    """The nuisances of parts that only scale the update, where nothing else acts on it."""
    parts = task.protection.chain.labelled
    if not all(hint_of(part).scales for part in parts.values()):
        return []
    addresses = [f"{label}.{nuisance.name}" for label, part in parts.items() for nuisance in part.nuisances]
    return [Treatment(a, "cancelled", "hidden; cancelled, since directions alone are matched") for a in addresses]


def of_bottleneck(task: Task, latent: Latent, *, exact: bool) -> list[Treatment]:
    """The noise of a variational bottleneck, where it is not simply searched for."""
    if not has_bottleneck(task):
        return []
    if exact:
        return [Treatment(NOISE, "read off", "hidden; recovered from the bottleneck's own gradients")]
    if latent == "before":
        return [Treatment(NOISE, "cancelled", "hidden; only layers before the bottleneck are matched")]
    return []


def of_encodings(task: Task, knows: Mapping[str, Knowledge]) -> list[Treatment]:
    """The nuisances of the input part that is undone, by the decoder that it registers."""
    undone = last_decoded(task.protection)
    return [] if undone is None else list(undone.decoder.treat(undone.part, undone.label, knows))


def of_belief(task: Task, listed: Sequence[Treatment]) -> list[Treatment]:
    """What has no density is taken for what is near to it and has one."""
    chain = task.protection.chain
    assumed = beliefs(task.protection.update, [t.address for t in listed if t.how == "granted"])
    if not assumed or not any(is_noise(part) for part in chain.parts):
        return []
    sentence = f"hidden; where that leaves no density, {assumed[0]!r} is assumed"
    addresses = {nuisance.name for nuisance in chain.nuisances}
    return [Treatment(t.address, "assumed", sentence) for t in listed if t.how == "assumed" and t.address in addresses]


def of_ratio(adversary: Adversary, task: Task, knows: Mapping[str, Knowledge]) -> list[Treatment]:
    """The rates of a client whose first linear layer is read off."""
    sentence = "hidden; cancelled in the ratio of weight and bias"
    return [Treatment(address, "cancelled", sentence) for address in Case(adversary, task, knows).rates]


__all__ = ["Approach", "of_belief", "of_bottleneck", "of_encodings", "of_ratio", "of_scales"]
