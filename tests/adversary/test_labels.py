"""Labels: the rules are exact for one example under any positive scale, and know what they cannot know."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from leakgauge.adversary import Adversary, adam
from leakgauge.adversary.labels import Rule, inferred, last_layer
from leakgauge.client import Recipe
from leakgauge.errors import ModelError
from leakgauge.observation import observe
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task
from leakgauge.types import Domain, Records, Threat

DOMAIN = Domain("image", (1, 6, 6), 4)


def network(*, bias: bool = True, act: nn.Module | None = None, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 10), act or nn.Sigmoid(), nn.Linear(10, 4, bias=bias))


def read(task: Task, records: Records, rule: Rule = "auto") -> torch.Tensor:
    seen = observe(task, records, threat=Threat(labels="inferred"))
    made = [inferred(o.rounds[0].observed, task.params, task.domain.classes, task.recipe.batch, rule) for o in seen]
    return torch.stack(made)


@pytest.mark.parametrize("rule", ["auto", "bias", "rows"])
@pytest.mark.parametrize("how", ["identity()", "clip(norm=0.01)", "clip(norm=0.001, per='layer')"])
def test_one_example_betrays_its_label_whatever_the_scale(rule: Rule, how: str) -> None:
    for seed in range(3):
        task = Task(network(seed=seed), DOMAIN).protect(how)
        records = small_records(30, seed=seed)
        assert torch.equal(read(task, records, rule).flatten(), records.labels)


@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_the_rules_are_exact_for_any_record_and_scale(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(10, generator=generator)  # non-negative, as after a sigmoid or ReLU
    logits = torch.randn(4, generator=generator) * 3
    label = int(torch.randint(0, 4, (1,), generator=generator))
    delta = logits.softmax(0) - nn.functional.one_hot(torch.tensor(label), 4)
    observed = {"last.weight": scale * torch.outer(delta, features), "last.bias": scale * delta}
    for rule in ("bias", "rows"):
        assert inferred(observed, observed, 4, 1, rule).tolist() == [label]


def test_without_a_bias_the_rows_say_it() -> None:
    task, records = Task(network(bias=False), DOMAIN), small_records(20)
    assert torch.equal(read(task, records).flatten(), records.labels)
    with pytest.raises(ModelError, match='labels: the last layer has no bias; use rule="rows"'):
        read(task, records, "bias")


def test_the_bias_needs_no_sign_of_the_features_and_the_rows_do() -> None:
    class Below(nn.Module):
        """Features that are all negative."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -1 - x.sigmoid()

    task, records = Task(network(act=Below()), DOMAIN), small_records(20)
    assert torch.equal(read(task, records, "bias").flatten(), records.labels)
    assert not torch.equal(read(task, records, "rows").flatten(), records.labels)


@pytest.mark.parametrize(
    "recipe", [Recipe(shares="change"), Recipe(shares="change", local_steps=3, learning_rate=0.01)]
)
def test_a_weight_change_points_the_other_way(recipe: Recipe) -> None:
    task, records = Task(network(), DOMAIN, recipe), small_records(10)
    seen = observe(task, records, threat=Threat(labels="inferred"))
    found = Adversary(solver=adam(steps=1))(task, seen)
    assert torch.equal(found.labels.flatten(), records.labels)


def counted(found: torch.Tensor, records: Records) -> float:
    """The share of labels that are right, each true label counted once."""
    batch, right = found.shape[1], 0
    for labels, true in zip(found, records.batches(batch), strict=True):
        left = true.labels.tolist()
        for label in labels.tolist():
            if label in left:
                left.remove(label)
                right += 1
    return right / found.numel()


def test_a_negative_entry_is_proof_of_its_class() -> None:
    records = small_records(120)
    for size in (2, 3, 4, 6):
        task = Task(network(), DOMAIN, Recipe(batch=size))
        seen = observe(task, records, threat=Threat(labels="inferred"))
        for found, one, true in zip(read(task, records), seen, records.batches(size), strict=True):
            proven = (one.rounds[0].observed["3.bias"] < 0).nonzero().flatten().tolist()
            assert set(proven) <= set(true.labels.tolist())
            assert set(proven) <= set(found.tolist())


@pytest.mark.parametrize(("size", "share"), [(2, 0.95), (4, 0.75)])
def test_labels_of_a_larger_batch_are_mostly_right(size: int, share: float) -> None:
    records = small_records(240)
    found = read(Task(network(), DOMAIN, Recipe(batch=size)), records)
    assert found.shape == (240 // size, size)
    assert bool((found.diff(dim=1) >= 0).all())  # in ascending order
    assert counted(found, records) >= share


def test_the_last_layer_is_the_last_with_as_many_outputs_as_classes() -> None:
    params = small_task().params
    assert last_layer(params, 4) == ("last.weight", "last.bias")
    both = {"a.weight": torch.zeros(4, 3), "b.weight": torch.zeros(4, 4)}
    assert last_layer(both, 4) == ("b.weight", None)
    with pytest.raises(
        ModelError, match='labels: no linear layer with 7 outputs to read labels from; say labels="known"'
    ):
        last_layer(params, 7)
