"""The training of Table 1: two clients whose labels do not overlap, all settings and seeds at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
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
    """Test accuracy by setting and seed: the one client function, vmapped over trainings."""
    dataset = data.load(name)
    own = [two_clients(dataset.train, seed, shard) for seed in seeds]
    recipe = Recipe(batch=steps * size, minibatch=size, local_steps=steps, shares="change")
    tasks = [Task(models.build(model, dataset.domain, seed=s), dataset.domain, recipe) for s in seeds]
    cases = list(product(range(len(seeds)), settings))
    params = {n: torch.stack([tasks[s].params[n] for s, _ in cases]) for n in tasks[0].params}
    task = tasks[0]

    def client(theta: dict[str, Tensor], x: Tensor, y: Tensor, rates: Tensor) -> dict[str, Tensor]:
        drawn = task.drawn({})
        return update_of(task.working, theta, task.buffers, x, y, recipe, type(drawn)(rates, drawn.buffers))

    for number in range(rounds):
        changes = []
        for k in (0, 1):
            rows = [batches(len(own[0][k]), size, steps, (s, number, k)).flatten() for s in seeds]
            inputs = torch.stack([own[s][k].inputs[rows[s]] for s, _ in cases])
            labels = torch.stack([own[s][k].labels[rows[s]] for s, _ in cases])
            rates = torch.stack([_rates(setting, k, steps, (seeds[s], number, k)) for s, setting in cases])
            changes.append(vmap(client)(params, inputs, labels, rates))
        params = mapped(lambda p, a, b: p + (a + b) / 2, params, *changes)
    right, test = torch.zeros(len(cases)), dataset.test
    for start in range(0, len(test), 500):
        few: Any = test[start : start + 500]
        outputs = vmap(lambda p, x=few.inputs: functional_call(task.working, (p, task.buffers), (x,)))(params)
        right += (outputs.argmax(-1) == few.labels).float().sum(1)
    scores = (right / len(test)).tolist()
    return [[scores[i] for i, (_, one) in enumerate(cases) if one == setting] for setting in settings]


def _rates(setting: Setting, k: int, steps: int, key: tuple[int, int, int]) -> Tensor:
    nominal, perturbed = setting[k], setting[2]
    if not perturbed:
        return torch.full((steps,), float(nominal))
    generator = torch.Generator().manual_seed(seed_of(*key, 3))
    return float(nominal) * lrp().law.sample((steps,), generator=generator)
