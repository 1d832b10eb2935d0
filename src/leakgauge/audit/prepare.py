"""From a spec to the things it names: model, weights, data, records. This imports the user's code."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import data, models
from leakgauge.client import Recipe
from leakgauge.errors import DataError
from leakgauge.losses import loss_named
from leakgauge.storage.states import read_state
from leakgauge.study.spec import Spec
from leakgauge.task import Task
from leakgauge.types import Domain, Records, Tree

FEWEST_REFERENCE = 200
MOST_TEST = 1000
"""Test records on which accuracy is measured."""


@dataclass(frozen=True)
class Prepared:
    """A task, the records that are reported, and those that are not.

    ``others`` stand in for the reported records in the null, place by place: with the same label where labels are
    granted. ``tuning`` chooses settings. ``reference`` is what anybody may know of such data: the guess without an
    update comes from it. ``train`` and ``test`` are for training and accuracy.
    """

    task: Task
    records: Records
    others: Records
    tuning: Records
    reference: Records
    train: Records
    test: Records
    labels_granted: bool

    @cached_property
    def content(self) -> str:
        """What the task computes, by content: its state, and its outputs and gradient on a seeded probe."""
        probe = self.reference[:2]
        update = self.task.update(probe)
        with torch.no_grad():
            outputs = self.task.working(probe.inputs.to(next(iter(self.task.params.values()))))
        return digest(
            {**self.task.params, **self.task.buffers, **{f"∇{n}": v for n, v in update.items()}, "h": outputs}
        )

    def manifest(self, salt: str = "") -> dict[str, Any]:
        """Which records were reported, and which chose settings, stood in the null or made the guess: by hash, all
        together and each, so that anybody can see that the reported ones are in no other role.

        With a ``salt`` that is kept nowhere that can still be seen, but nobody can confirm a guess at a record: only
        hashes of each are listed then, which agree within this manifest and with no other.
        """
        roles = {"reported": self.records, "tuning": self.tuning, "another": self.others, "reference": self.reference}
        each = {role: [digest({f"x{salt}": x})[:16] for x in records.inputs] for role, records in roles.items()}
        whole = {} if salt else {role: digest({"x": records.inputs}) for role, records in roles.items()}
        return {**whole, "records": each}

    def at(self, state: Tree) -> Prepared:
        """The same audit with the model in another state."""
        model = self.task.to().model  # a copy: the user's stays as it is
        model.load_state_dict(dict(state))
        return replace(self, task=replace(self.task, model=model))

    def guess(self) -> Tensor:
        """The best guess without an update, for every reported record: the mean of the reference records, of its own
        class where labels are granted."""
        inputs, labels = self.reference.inputs, self.reference.labels
        mean = inputs.mean(0)
        if not self.labels_granted:
            return mean.expand_as(self.records.inputs)
        means = {int(c): inputs[labels == c].mean(0) for c in labels.unique()}
        return torch.stack([means.get(int(c), mean) for c in self.records.labels])


def digest(tree: Tree) -> str:
    """The hash of named tensors: names, types, shapes, bytes."""
    hashed = hashlib.sha256()
    for name in sorted(tree):
        value = tree[name].detach().cpu().contiguous()
        hashed.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        hashed.update(value.flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def prepare(spec: Spec, folder: Path) -> Prepared:
    """Build everything the spec names; relative paths start at ``folder``."""
    found = data.load(_place(spec.task.data, folder))
    size = spec.task.recipe.batch
    needed = spec.task.records * size
    if len(found.test) < needed:
        raise DataError(
            f"{len(found.test)} records, {needed} are needed ({spec.task.records} updates of a batch of {size})",
            where="task.data",
            remedy="lower task.records or task.recipe.batch",
        )
    records = found.sample(needed, seed=spec.seed, split="test")
    tuned = spec.tuning.records * size if any(isinstance(a, list) for a in spec.adversaries.values()) else 0
    wanted = tuned + max(FEWEST_REFERENCE, 2 * needed)
    pool = _without(found.sample(min(wanted, len(found.train)), seed=spec.seed, split="train"), records)
    if len(pool) < tuned + size:
        raise DataError(
            f"{len(pool)} train records that are not among the reported, {tuned + size} are needed",
            where="task.data",
            remedy="give more train records: nulls and tuning must not use the reported ones",
        )
    tuning, reference = pool[:tuned], pool[tuned:]
    granted = spec.threat.labels == "known"
    task = Task(_model(spec, found.domain, folder), found.domain, _recipe(spec))
    test = found.sample(min(MOST_TEST, len(found.test)), seed=spec.seed, split="test")
    others = reference[_stand_ins(records.labels, reference.labels, granted)]
    return Prepared(task, records, others, tuning, reference, found.train, test, granted)


def _without(records: Records, taken: Records) -> Records:
    """The records that do not occur among the taken ones: data sets hold duplicates."""
    seen = {digest({"x": x}) for x in taken.inputs}
    return records[[i for i, x in enumerate(records.inputs) if digest({"x": x}) not in seen]]


def _stand_ins(labels: Tensor, reference: Tensor, granted: bool) -> list[int]:
    """For every reported record a place among the reference records: the next of its class where labels are granted
    and the class is there, else the next of all."""
    by_class: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(reference.tolist()):
        by_class[label].append(place)
    used: dict[int, int] = defaultdict(int)
    everyone = list(range(len(reference)))
    chosen = []
    for label in labels.tolist():
        key = label if granted and by_class[label] else -1
        pool = by_class[label] if key >= 0 else everyone
        chosen.append(pool[used[key] % len(pool)])
        used[key] += 1
    return chosen


def _place(name: str, folder: Path) -> str:
    return str(folder / name) if (folder / name).exists() else name


def _model(spec: Spec, domain: Domain, folder: Path) -> nn.Module:
    model = models.build(spec.task.model, domain, seed=spec.seed)
    if spec.task.weights:
        read_state(folder / spec.task.weights).into(model)
    if spec.task.normalise:
        model = models.normalised(model, spec.task.normalise.mean, spec.task.normalise.std)
    return model


def _recipe(spec: Spec) -> Recipe:
    given = spec.task.recipe
    shares = given.shares or ("change" if given.local_steps > 1 else "gradient")
    return Recipe(
        batch=given.batch,
        mode=given.mode,
        loss=loss_named(spec.task.loss),
        reduction=given.reduction,
        shares=shares,
        local_steps=given.local_steps,
        learning_rate=given.learning_rate,
        momentum=given.momentum,
        weight_decay=given.weight_decay,
        minibatch=given.minibatch,
    )


def batches(values: Tensor, size: int) -> Tensor:
    """``[n·B, …]`` as ``[n, B, …]``."""
    grouped: Tensor = values.unflatten(0, (-1, size))
    return grouped
