"""What a pass of the model over candidates shows: the input of every layer, and the statistics of its norms.

Priors ask for it lazily (:attr:`leakgauge.types.Candidate.features`, ``statistics``). Candidates are mapped one by one,
so that a norm in train mode reduces within a problem, never over its neighbours.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.task import Task
from leakgauge.types import Candidate, Seen, Tree


def seen_of(task: Task, params: Tree, buffers: Tree, candidate: Candidate) -> Seen:
    """Features ``[N, B, …]`` of every layer, and mean and variance ``[N, C]`` of what each batch norm gets."""
    layers = {name: module for name, module in task.working.named_modules() if name and not list(module.children())}
    drawn = dict(task.drawn(candidate.nuisances).buffers)

    def one(inputs: Tensor, own: dict[str, Tensor]) -> dict[str, Tensor]:
        features: dict[str, Tensor] = {}

        def keep(name: str, module: nn.Module) -> None:
            hooks.append(module.register_forward_pre_hook(lambda _, args: features.update({name: args[0]})))

        hooks: list[object] = []
        for name, module in layers.items():
            keep(name, module)
        try:
            functional_call(task.working, ({**params}, {**buffers, **own}), (inputs,))
        finally:
            for hook in hooks:
                hook.remove()  # type: ignore[attr-defined]
        return features

    features: dict[str, Tensor] = vmap(one)(candidate.inputs, drawn)
    norms = [name for name, module in layers.items() if isinstance(module, _BatchNorm) and name in features]
    return Seen(features, {name: _moments(features[name]) for name in norms})


def _moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance per channel of ``[N, B, C, …]``."""
    places = [1, *range(3, inputs.dim())]
    return inputs.mean(places), inputs.var(places, correction=0)
