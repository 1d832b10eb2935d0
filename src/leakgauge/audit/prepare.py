"""From a spec to the things it names: model, weights, data, records. This imports the user's code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge import data, models
from leakgauge.audit.spec import Spec
from leakgauge.client import Recipe, loss_named
from leakgauge.errors import DataError
from leakgauge.files import read_state
from leakgauge.task import Task
from leakgauge.types import Domain, Records, Tree


@dataclass(frozen=True)
class Prepared:
    """A task, the records that are reported, and disjoint reference records for tuning and the prior-only null."""

    task: Task
    records: Records
    reference: Records
    manifest: dict[str, str]

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
    needed = spec.task.records * spec.task.recipe.batch
    if len(found.test) < needed:
        raise DataError(
            f"{len(found.test)} records, {needed} are needed ({spec.task.records} updates of a batch of "
            f"{spec.task.recipe.batch})",
            where="task.data",
            remedy="lower task.records or task.recipe.batch",
        )
    records = found.sample(needed, seed=spec.seed, split="test")
    reference = found.sample(min(200, len(found.train)), seed=spec.seed, split="train")
    task = Task(_model(spec, found.domain, folder), found.domain, _recipe(spec))
    return Prepared(task, records, reference, _manifest(records, reference))


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


def _manifest(records: Records, reference: Records) -> dict[str, str]:
    """Which records were reported and which were not: by hash, so that anybody can see that they are disjoint."""
    reported = [digest({"x": x}) for x in records.inputs]
    other = {digest({"x": x}) for x in reference.inputs}
    overlap = sum(h in other for h in reported)
    if overlap:
        raise DataError(
            f"{overlap} reported records are also reference records", where="task.data", remedy="remove the duplicates"
        )
    return {"reported": digest({"x": records.inputs}), "reference": digest({"x": reference.inputs})}


def batches(values: Tensor, size: int) -> Tensor:
    """``[n·B, …]`` as ``[n, B, …]``."""
    grouped: Tensor = values.unflatten(0, (-1, size))
    return grouped
