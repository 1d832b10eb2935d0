"""Preflight: what leaks by structure, before any attack and in under a second.

These are facts about the model and the recipe, and with records about their batches: a linear layer with a bias hands
out its input, the last layer hands out labels, shared batch-norm statistics hand out means, and more equations than
unknowns mean that counting protects nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import nn

from leakgauge.adversary.labels import last_layer
from leakgauge.attacks.exposure import exposure, refuse_records
from leakgauge.attacks.linear_layers import drawn_inputs, linear_layers
from leakgauge.attacks.recovering import first_layer, obstacle
from leakgauge.errors import DataError, ModelError
from leakgauge.losses import CrossEntropy
from leakgauge.task import Task, embeddings
from leakgauge.types import Records

Severity = Literal["exact", "high", "medium", "low"]
ORDER: tuple[Severity, ...] = ("exact", "high", "medium", "low")


@dataclass(frozen=True)
class Leak:
    """One structural finding. ``exact``: the input itself, by a formula; ``high``: much of it; ``medium``: some."""

    name: str
    severity: Severity
    sentence: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def preflight(task: Task, records: Records | None = None) -> list[Leak]:
    """Everything that the structure of a client gives away, worst first; with records, also which batches of them."""
    if not isinstance(task, Task):
        what = f"the first argument is a {type(task).__name__}"
        raise ModelError(what, where="preflight", remedy="give a Task and, if you like, Records")
    if records is not None:
        refuse_records(task, records, "preflight")
        if len(records) < task.recipe.batch:
            what = f"{len(records)} records do not fill a batch of {task.recipe.batch}"
            raise DataError(what, where="preflight", remedy="give whole batches, or none")
    checks = (_tokens, _first_linear, _wide_linear, _labels, _statistics, _equations)
    leaks = [leak for check in checks for leak in check(task)]
    leaks += [] if records is None else _exposed(task, records)
    return sorted(leaks, key=lambda leak: ORDER.index(leak.severity))


def _tokens(task: Task) -> Iterator[Leak]:
    """The rows of an embedding's gradient that are not zero, counted in the update of a drawn batch."""
    if task.domain.kind != "tokens":
        return
    inputs = drawn_inputs(task, task.recipe.batch)
    labels = torch.arange(len(inputs)) % task.domain.classes
    update = task.update(Records(inputs, labels, task.domain), nuisances=task.draw(len(inputs), (0,)))
    for name, layer in embeddings(task.working).items():
        rows = update.get(f"{name}.weight".lstrip("."))
        if rows is None:  # it is not trained
            continue
        named = (rows != 0).any(1).nonzero().flatten()
        right = len(set(named.tolist()) & set(inputs.unique().tolist()))
        yield Leak(
            "tokens",
            "exact",
            f"The rows of the gradient of the embedding {name!r} that are not zero are the tokens of the batch: of a "
            f"drawn batch of {len(inputs)} with {inputs.unique().numel()} different tokens, {len(named)} of "
            f"{layer.num_embeddings} rows were not zero and {right} of them name a token of it, in no order.",
        )


def _first_linear(task: Task) -> Iterator[Leak]:
    batch, layers = task.recipe.batch, linear_layers(task)
    uses = Counter(layer.name for layer in layers)
    for layer in layers:
        # a layer that is used again adds the gradient of its other inputs
        if not layer.raw or not layer.trained(task, "weight") or uses[layer.name] > 1:
            continue
        if not layer.trained(task, "bias"):
            yield Leak(
                "first linear layer",
                "exact" if batch == 1 else "high",
                f"The layer {layer.name!r} is linear on the raw record and has no bias: its gradient is a record times "
                "a factor, so "
                + ("the record is read off up to its brightness." if batch == 1 else "rows are mixtures of records."),
            )
        elif batch == 1:
            yield Leak(
                "first linear layer",
                "exact",
                f"The layer {layer.name!r} is linear on the raw record and has a bias: with a batch of 1, dividing a "
                "row of its gradient by the bias gradient gives the record exactly.",
            )
        else:
            yield Leak(
                "first linear layer",
                "high",
                f"The layer {layer.name!r} is linear on the raw record and has a bias: a unit that only one of the "
                f"{batch} examples activates gives that record exactly, and taking it out may free the next; of "
                "records that are given, preflight counts those that are exposed.",
            )


def _exposed(task: Task, records: Records) -> Iterator[Leak]:
    """What peeling would take from updates of these very records, from one forward pass."""
    batch, layer = task.recipe.batch, first_layer(task)
    if batch == 1 or layer is None or obstacle(task) is not None:
        return
    exposures = [exposure(task, some, layer=layer) for some in records.batches(batch)]
    count, total = sum(sum(one.exposed) for one in exposures), batch * len(exposures)
    left = len(records) - total
    whole = sum(all(one.exposed) for one in exposures)
    if count:
        yield Leak(
            "exact recovery",
            "exact",
            f"Of the records given, {count} of {total} can be read off updates of batches of {batch} exactly, "
            f"by peeling {layer.name!r}; of {whole} of {len(exposures)} batches, every record."
            + (f" The last {left} do not fill a batch, and were not looked at." if left else ""),
        )


def _wide_linear(task: Task) -> Iterator[Leak]:
    batch, last = task.recipe.batch, task.domain.classes
    for layer in linear_layers(task):
        width = min(layer.module.in_features, layer.module.out_features)
        if layer.raw or not layer.trained(task, "weight") or layer.module.out_features == last:
            continue
        if batch == 1 and layer.trained(task, "bias"):
            yield Leak(
                "inner linear layer",
                "high",
                f"With a batch of 1 the gradient of {layer.name!r} gives its {layer.module.in_features} inputs "
                "exactly, every feature the network computed before it.",
            )
        elif batch < width:
            yield Leak(
                "batch smaller than a layer",
                "medium",
                f"The batch of {batch} is smaller than the width {width} of {layer.name!r}: its gradient has "
                f"rank {batch} at most, and its rows span the features of the examples.",
            )


def _labels(task: Task) -> Iterator[Leak]:
    try:
        _, bias = last_layer(task.params, task.domain.classes)
    except ModelError:
        return
    batch, through = task.recipe.batch, "bias" if bias is not None else "rows of its weight"
    if not isinstance(task.recipe.loss, CrossEntropy):
        return
    if batch == 1:
        sentence = f"The {through} of the last layer's gradient has its one negative entry at the label: it is known."
        yield Leak("labels", "high", sentence)
    else:
        sentence = (
            f"The {through} of the last gradient shows the labels of the batch of {batch} and roughly their counts."
        )
        yield Leak("labels", "medium", sentence)


def _statistics(task: Task) -> Iterator[Leak]:
    norms = [
        name
        for name, module in task.model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    if norms and task.recipe.mode == "train":
        shared = task.recipe.shares_buffers
        how = (
            "their running means and variances are shared with the update, and"
            if shared
            else ("if their running means and variances are shared with the update, they")
        )
        yield Leak(
            "batch-norm statistics",
            "high" if shared and task.recipe.total_steps == 1 else "medium",
            f"{len(norms)} batch norms train: {how} give the means and variances of this batch in every channel "
            f"(first: {norms[0]!r}).",
        )


def _equations(task: Task) -> Iterator[Leak]:
    equations = sum(p.numel() for p in task.params.values())
    unknowns = task.recipe.batch * task.domain.size
    ratio = equations / max(unknowns, 1)
    counted = f"The update has {equations:,} numbers, the batch {unknowns:,} unknowns ({ratio:.1f} per unknown)"
    if ratio >= 1:
        sentence = f"{counted}: counting does not protect the records."
        yield Leak("more equations than unknowns", "medium" if ratio >= 2 else "low", sentence)
