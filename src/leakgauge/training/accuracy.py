"""Utility: the share of records that a model classifies right."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from leakgauge.errors import DataError
from leakgauge.task import Task
from leakgauge.types import Records

ROWS = 500


@torch.no_grad()
def accuracy(task_or_model: Task | nn.Module, records: Records, *, seed: int = 0) -> float:
    """``mean 1[argmax_c h(x)_c = y]`` in eval mode, on the records as they are (no input stage).

    Noise of the model stage stays on, as its papers have it, and is drawn for ``seed``. The model is left alone.
    """
    if not len(records):
        raise DataError("there is no record to classify", where="accuracy", remedy="give at least one")
    model = copy.deepcopy(task_or_model.trained() if isinstance(task_or_model, Task) else task_or_model).eval()
    like = next(model.parameters())
    generator, right = torch.Generator().manual_seed(seed), 0
    for start in range(0, len(records), ROWS):
        few = records[start : start + ROWS]
        state: dict[str, Tensor] = {}
        if isinstance(task_or_model, Task):
            how = task_or_model.protection
            drawn = how.buffers(model, how.draw(model, len(few), 1, generator=generator))
            state = {name: value.to(like) for name, value in drawn.items()}
        outputs = torch.func.functional_call(model, state, (few.inputs.to(like),))
        scores = outputs[:, : records.domain.classes]
        right += int((scores.argmax(1).cpu() == few.labels).sum())
    return right / len(records)
