"""Preflight: what leaks by structure, before any attack and in under a second.

These are facts about the model and the recipe, not about data: a linear layer with a bias hands out its input, the
last layer hands out labels, shared batch-norm statistics hand out means, and more equations than unknowns mean that
counting protects nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from leakgauge.adversary.labels import last_layer
from leakgauge.errors import ModelError
from leakgauge.losses import CrossEntropy
from leakgauge.models.normalise import Normalise
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


def preflight(task: Task) -> list[Leak]:
    """Everything that the structure of a client gives away, worst first."""
    checks = (_tokens, _first_linear, _wide_linear, _labels, _statistics, _equations)
    leaks = [leak for check in checks for leak in check(task)]
    return sorted(leaks, key=lambda leak: ORDER.index(leak.severity))


@dataclass(frozen=True)
class _Layer:
    """A linear layer in the order of the forward pass; ``raw`` where it sees the record itself."""

    name: str
    module: nn.Linear
    raw: bool


def _linears(task: Task) -> list[_Layer]:
    """The linear layers as one forward pass meets them."""
    first = next(iter(task.params.values()))
    probe = _drawn(task, 2).to(first.device)
    layers: list[_Layer] = []
    hooks = []
    stated = probe
    for hook in task.working._forward_pre_hooks.values():  # our normalisation: known, so it hides nothing
        if isinstance(hook, Normalise):
            (stated,) = hook(task.working, (stated,))
    for name, module in task.working.named_modules():
        if isinstance(module, nn.Linear):

            def note(layer: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                inputs = args[0].detach().flatten(1)
                raw = inputs.shape == stated.flatten(1).shape and bool(torch.equal(inputs, stated.flatten(1)))
                layers.append(_Layer(name, layer, raw))  # type: ignore[arg-type]

            hooks.append(module.register_forward_pre_hook(note))
    try:
        with torch.no_grad():
            task.working(probe)
    finally:
        for handle in hooks:
            handle.remove()
    return layers


def _drawn(task: Task, number: int) -> Tensor:
    """Inputs without any record: random numbers, or random tokens that every embedding knows."""
    generator = torch.Generator().manual_seed(0)
    shape = (number, *task.domain.shape)
    if task.domain.kind != "tokens":
        return torch.rand(shape, generator=generator).to(next(iter(task.params.values())).dtype)
    rows = [layer.num_embeddings for layer in embeddings(task.working).values()]
    return torch.randint(min(rows, default=1), shape, generator=generator)


def _tokens(task: Task) -> Iterator[Leak]:
    """The rows of an embedding's gradient that are not zero, counted in the update of a drawn batch."""
    if task.domain.kind != "tokens":
        return
    inputs = _drawn(task, task.recipe.batch)
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


def _trained(task: Task, layer: _Layer, what: str) -> bool:
    return f"{layer.name}.{what}" in task.params if layer.name else what in task.params


def _first_linear(task: Task) -> Iterator[Leak]:
    batch = task.recipe.batch
    for layer in _linears(task):
        if not layer.raw or not _trained(task, layer, "weight"):
            continue
        if not _trained(task, layer, "bias"):
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
                f"{batch} examples activates gives that record exactly.",
            )


def _wide_linear(task: Task) -> Iterator[Leak]:
    batch, last = task.recipe.batch, task.domain.classes
    for layer in _linears(task):
        width = min(layer.module.in_features, layer.module.out_features)
        if layer.raw or not _trained(task, layer, "weight") or layer.module.out_features == last:
            continue
        if batch == 1 and _trained(task, layer, "bias"):
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
        yield Leak(
            "batch-norm statistics",
            "medium",
            f"{len(norms)} batch norms train: if their running means and variances are shared with the update, they "
            f"give the means and variances of this batch in every channel (first: {norms[0]!r}).",
        )


def _equations(task: Task) -> Iterator[Leak]:
    equations = sum(p.numel() for p in task.params.values())
    unknowns = task.recipe.batch * task.domain.size
    ratio = equations / max(unknowns, 1)
    counted = f"The update has {equations:,} numbers, the batch {unknowns:,} unknowns ({ratio:.1f} per unknown)"
    if ratio >= 1:
        sentence = f"{counted}: counting does not protect the records."
        yield Leak("more equations than unknowns", "medium" if ratio >= 2 else "low", sentence)
