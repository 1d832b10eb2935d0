"""What a pass of the model over candidates shows: the input of every layer, and the statistics of its norms.

Priors ask for it lazily (:attr:`leakgauge.types.Candidate.features`, ``statistics``). Candidates are mapped one by one,
so that a norm in train mode reduces within a problem, never over its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import batch_norm
from leakgauge.task import Task
from leakgauge.types import Candidate, Seen, Tree


def seen_of(
    task: Task, params: Tree, buffers: Tree, candidate: Candidate, *, believed: Tree | None = None, fixed: bool = False
) -> Seen:
    """Features ``[N, B, …]`` of every layer, and mean and variance ``[N, C]`` of what each batch norm gets.

    ``believed`` are the statistics ``[N, steps, C]`` that the adversary takes for those of the batch; of several steps,
    joined. With ``fixed`` the norms use those of the first step in this pass, as the adversary's client does.
    """
    layers = {name: module for name, module in task.working.named_modules() if name and not list(module.children())}
    drawn = dict(task.drawn(candidate.nuisances).buffers)
    if fixed and believed is not None:
        drawn |= {name: value[:, 0] for name, value in believed.items()}

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
    norms = {name: m for name, m in layers.items() if isinstance(m, _BatchNorm) and name in features}
    statistics = {name: batch_norm.moments(features[name], 1) for name in norms}
    if believed is not None:
        return Seen(features, statistics, batch_norm.pooled(believed, 1))
    return Seen(features, statistics, batch_norm.expected_in_eval(norms, features))


def noted_by(statistics: Mapping[str, tuple[Tensor, Tensor]], believed: Tree, features: Callable[[], Tree]) -> Seen:
    """The same from a pass that was made anyway, whose norms noted what they measured; features only if asked for."""
    return Seen(_Later(features), statistics, batch_norm.pooled(believed, 1))


class _Later(Mapping[str, Tensor]):
    """Named tensors that are computed when the first of them is asked for."""

    def __init__(self, compute: Callable[[], Tree]) -> None:
        self._compute = compute

    @cached_property
    def _tree(self) -> Tree:
        return self._compute()

    def __getitem__(self, name: str) -> Tensor:
        return self._tree[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)
