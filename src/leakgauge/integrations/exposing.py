"""The exposure check of a gate: own records that stand in one row of the outgoing update, from one forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leakgauge.task import Task
    from leakgauge.types import Records, Tree


def read_off(task: Task, update: Tree, records: Records, threshold: float) -> int:
    """How many of the client's own records come out of one unit of the first linear layer, at ``threshold`` or above.

    A unit before a ReLU that one record alone activates has that record in its row: ``∂ℓ/∂W_u / ∂ℓ/∂b_u = x``, at any
    size of the batch and whatever factor is on the update. A unit that is alone among all of the client's records is so
    in every batch of them. The row is read from what is about to leave, so that noise or pruning in it counts. 0 where
    no such layer is: the attacks that follow decide there. Scores are in the metric of the records' domain, as those of
    an inspection.
    """
    import torch

    from leakgauge.attacks.linear_layers import normalised_by
    from leakgauge.attacks.recovering import first_layer
    from leakgauge.inspect.scoring import Ruler
    from leakgauge.models import denormalised

    layer = first_layer(task)
    if layer is None:
        return 0
    weight, bias = (layer.parameter(name) for name in ("weight", "bias"))
    own = records.inputs.to(task.params[weight])
    with torch.no_grad():
        inputs = normalised_by(task, own).flatten(1)
        active = torch.nn.functional.linear(inputs, task.params[weight], task.params[bias]) > 0
        units = ((active.sum(0) == 1) & (update[bias] != 0)).nonzero().flatten()
        if not len(units):
            return 0
        owners = active[:, units].float().argmax(0)
        rows = (update[weight][units].double() / update[bias][units].double()[:, None]).view(-1, *task.domain.shape)
        scores = Ruler.of(records.domain).metric(denormalised(task.working, rows), own[owners].to(rows))
    return len(set(owners[scores >= threshold].tolist()))
