"""The training of Table 1: two clients whose labels do not overlap, all settings of a seed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge import data, models
from leakgauge.client import Recipe, update_of
from leakgauge.defenses import lrp
from leakgauge.fl.engine import batches
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Records
from leakgauge.updates import mapped

Setting = tuple[float, float, bool]
"""The rates of both clients, and whether they are perturbed."""
SEEDS = (1024, 1022, 1020)


def two_clients(train_set: Records, seed: int, shard: int = 100) -> list[Records]:
    """Four shards of each of the first two labels; one of each of the other eight."""
    generator = torch.Generator().manual_seed(seed)
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for label in range(10):
        (members,) = (train_set.labels == label).nonzero(as_tuple=True)
        few = members[: len(members) // shard * shard].view(-1, shard)
        chosen = few[torch.randperm(len(few), generator=generator)[: 4 if label < 2 else 1]]
        rows[0 if label < 2 else 1].append(chosen.flatten())
    return [train_set[torch.cat(own)] for own in rows]


def accuracies(
    model: str,
    settings: Sequence[Setting],
    *,
    name: str = "mnist",
    rounds: int = 100,
    steps: int = 50,
    size: int = 32,
    seeds: Sequence[int] = SEEDS,
    shard: int = 100,
) -> list[list[float]]:
    """Test accuracy by setting and seed: the one client function for all settings of a seed, which share records and
    batches."""
    dataset = data.load(name)
    recipe = Recipe(batch=steps * size, minibatch=size, local_steps=steps, shares="change")
    by_seed = []
    for seed in seeds:
        task = Task(models.build(model, dataset.domain, seed=seed), dataset.domain, recipe)
        params = _trained(task, two_clients(dataset.train, seed, shard), settings, rounds, seed)
        by_seed.append(_accuracy(task, params, dataset.test))
    return [list(scores) for scores in zip(*by_seed, strict=True)]


def _trained(
    task: Task, own: Sequence[Records], settings: Sequence[Setting], rounds: int, seed: int
) -> dict[str, Tensor]:
    """The weights of every setting ``[settings, …]`` after all rounds."""
    recipe, drawn = task.recipe, task.drawn({})

    def client(theta: dict[str, Tensor], x: Tensor, y: Tensor, rates: Tensor) -> dict[str, Tensor]:
        return update_of(task.working, theta, task.buffers, x, y, recipe, type(drawn)(rates, drawn.buffers))

    params = {n: p.expand(len(settings), *p.shape) for n, p in task.params.items()}
    for number in range(rounds):
        changes = []
        for k in (0, 1):
            rows = batches(len(own[k]), recipe.examples, recipe.local_steps, (seed, number, k)).flatten()
            rates = torch.stack([_rates(setting, k, recipe.local_steps, (seed, number, k)) for setting in settings])
            inputs, labels = own[k].inputs[rows], own[k].labels[rows]
            changes.append(_of_each(task, client)(params, inputs, labels, rates))
        params = mapped(lambda p, a, b: p + (a + b) / 2, params, *changes)
    return params


Client = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor], dict[str, Tensor]]


def _of_each(task: Task, client: Client) -> Client:
    """The updates of a client at the weights and rates of every setting: at once, or one after another where
    convolutions with weights of their own would take twice as long at once."""
    if not any(isinstance(layer, nn.Conv2d) for layer in task.model.modules()):
        at_once: Client = vmap(client, in_dims=(0, None, None, 0))
        return at_once

    def in_turn(params: dict[str, Tensor], x: Tensor, y: Tensor, rates: Tensor) -> dict[str, Tensor]:
        own = [{name: p[i] for name, p in params.items()} for i in range(len(rates))]
        return mapped(lambda *some: torch.stack(some), *(client(p, x, y, r) for p, r in zip(own, rates, strict=True)))

    return in_turn


def _accuracy(task: Task, params: Mapping[str, Tensor], test: Records) -> list[float]:
    right = torch.zeros(len(next(iter(params.values()))))
    for start in range(0, len(test), 500):
        few: Any = test[start : start + 500]
        outputs = vmap(lambda p, x=few.inputs: functional_call(task.working, (p, task.buffers), (x,)))(dict(params))
        right += (outputs.argmax(-1) == few.labels).float().sum(1)
    accuracy: list[float] = (right / len(test)).tolist()
    return accuracy


def _rates(setting: Setting, k: int, steps: int, key: tuple[int, int, int]) -> Tensor:
    nominal, perturbed = setting[k], setting[2]
    if not perturbed:
        return torch.full((steps,), float(nominal))
    generator = torch.Generator().manual_seed(seed_of(*key, 3))
    return float(nominal) * lrp().law.sample((steps,), generator=generator)
