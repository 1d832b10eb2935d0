"""Labels: the rules are exact for one example under any positive scale, and know what they cannot know."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from leakgauge.adversary import Adversary, adam
from leakgauge.adversary.labels import Counts, LabelReader, Rule, counts_of, last_layer
from leakgauge.adversary.labels.counts import spelled, whole
from leakgauge.adversary.labels.rate import first_rate, fitted_rate
from leakgauge.adversary.labels.reader import labels_by_restart
from leakgauge.adversary.labels.rules import by_sign
from leakgauge.client import Recipe
from leakgauge.errors import DomainError, ModelError
from leakgauge.losses import CrossEntropy
from leakgauge.metrics import label_counts_accuracy
from leakgauge.models.init import lecun_normal
from leakgauge.observation import observe
from leakgauge.task import Task
from leakgauge.testing import image_records, image_task, small_records, small_task
from leakgauge.types import Domain, Records, Threat

DOMAIN = Domain("image", (1, 6, 6), 4)


def network(*, bias: bool = True, act: nn.Module | None = None, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 10), act or nn.Sigmoid(), nn.Linear(10, 4, bias=bias))


def read(task: Task, records: Records, rule: Rule = "auto") -> torch.Tensor:
    observations = observe(task, records, threat=Threat(labels="inferred"))
    reader = LabelReader.of(task, observations[0].rounds[0])
    return torch.stack([reader.counts(one.rounds[0], one.batch, rule).labels for one in observations])


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
    for signal in (scale * delta, scale * torch.outer(delta, features).sum(1)):
        counts = by_sign(signal, 1)
        assert counts.labels.tolist() == [label]
        assert counts.confidence == 1


def test_without_a_bias_the_rows_say_it() -> None:
    task, records = Task(network(bias=False), DOMAIN), small_records(20)
    assert torch.equal(read(task, records).flatten(), records.labels)
    with pytest.raises(ModelError, match='labels: the last layer has no bias; use rule="auto"'):
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


CLASSES = 10


def signed(act: nn.Module, *, bias: bool, seed: int = 0) -> Task:
    """A network whose last features have both signs, as fresh as its initialisation leaves it."""
    torch.manual_seed(seed)
    layers = nn.Flatten(), nn.Linear(64, 32), act, nn.Linear(32, 24), act, nn.Linear(24, CLASSES, bias=bias)
    return Task(lecun_normal(nn.Sequential(*layers)), Domain("image", (1, 8, 8), CLASSES))


def images(labels: torch.Tensor, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(len(labels), 1, 8, 8, generator=generator) * torch.rand(
        len(labels), 1, 1, 1, generator=generator
    ).clamp(min=0.2)
    return Records(inputs, labels, Domain("image", (1, 8, 8), CLASSES))


def counts(task: Task, records: Records, rule: Rule = "auto") -> list[Counts]:
    observations = observe(task, records, threat=Threat(labels="inferred"))
    return [counts_of(task, one, rule) for one in observations]


def share(task: Task, records: Records) -> float:
    """The share of the labels that was found."""
    found_labels = torch.stack([one.labels for one in counts(task, records)])
    truth = records.labels.view(-1, task.recipe.batch)
    return float(label_counts_accuracy(found_labels, truth).mean())


@pytest.mark.parametrize("act", [nn.Tanh(), nn.SiLU(), nn.GELU()], ids=repr)
def test_without_a_bias_signed_features_betray_one_label(act: nn.Module) -> None:
    task, records = signed(act, bias=False), images(torch.arange(40) % CLASSES)
    assert share(task, records) >= 0.99


def test_the_published_rule_fails_on_signed_features() -> None:
    task, records = signed(nn.Tanh(), bias=False), images(torch.arange(40) % CLASSES)
    by_row_sums = torch.cat([one.labels for one in counts(task, records, "rows")])
    assert not torch.equal(by_row_sums, records.labels)


REPEATED = torch.cat([torch.tensor([c] * 5 + [c + 1, c + 2, c + 3]) % CLASSES for c in range(CLASSES)])


@pytest.mark.parametrize("bias", [True, False])
def test_a_class_that_occurs_five_times_is_counted(bias: bool) -> None:
    task = replace(signed(nn.ReLU(), bias=bias), recipe=Recipe(batch=8))
    guessed_uniform = 4 / 8  # one record of each class that is there
    assert share(task, images(REPEATED)) >= (0.95 if bias else 0.8) > guessed_uniform


@pytest.mark.parametrize(
    ("how", "least"),
    [("clip(norm=0.01)", 0.9), ("random_prune(p=0.5)", 0.8), ("random_prune(p=0.3) | gaussian(std=0.001)", 0.8)],
)
def test_counts_survive_defenses(how: str, least: float) -> None:
    task = replace(signed(nn.ReLU(), bias=True), recipe=Recipe(batch=8)).protect(how)
    assert share(task, images(REPEATED)) >= least


def test_a_summed_loss_and_a_smoothed_one_say_the_same() -> None:
    task, records = signed(nn.ReLU(), bias=True), images(REPEATED)
    for recipe in (Recipe(batch=8, reduction="sum"), Recipe(batch=8, loss=CrossEntropy(smoothing=0.1))):
        assert share(replace(task, recipe=recipe), records) >= 0.95


def test_local_steps_are_read_through_the_change() -> None:
    task = replace(signed(nn.ReLU(), bias=True), recipe=Recipe(8, shares="change", local_steps=3, learning_rate=0.05))
    assert share(task, images(REPEATED[:32])) >= 0.9


CHANGING = [
    Recipe(8, shares="change", local_steps=3, learning_rate=0.05),
    Recipe(8, shares="change", weight_decay=0.1),
    Recipe(8, shares="change", local_steps=3, learning_rate=0.002, optimiser="adam"),
]


@pytest.mark.parametrize("recipe", CHANGING, ids=["steps", "decay", "adam"])
def test_a_hidden_rate_is_fitted_and_never_looked_up(recipe: Recipe) -> None:
    task, records = replace(signed(nn.ReLU(), bias=True), recipe=recipe), images(REPEATED[:32])
    hidden = observe(task, records, threat=Threat(labels="inferred", learning_rate="unknown"))
    elsewhere = replace(task, recipe=replace(recipe, learning_rate=37 * recipe.learning_rate))
    found = [counts_of(task, one) for one in hidden]
    for one, again in zip(found, (counts_of(elsewhere, one) for one in hidden), strict=True):
        assert torch.equal(one.counts, again.counts)
        assert one.confidence == again.confidence
    truth = records.labels.view(-1, recipe.batch)
    right = float(label_counts_accuracy(torch.stack([one.labels for one in found]), truth).mean())
    assert right >= share(task, records) - 0.05  # of the granted rate


def test_the_granted_rate_of_adam_does_not_make_its_steps_a_gradient() -> None:
    task, records = image_task(recipe=CHANGING[2]), image_records(80)
    assert share(task, records) >= 0.9


def test_a_fitted_rate_is_near_the_true_one_whatever_the_classes() -> None:
    task = replace(signed(nn.ReLU(), bias=True), recipe=CHANGING[0])
    for labels in (torch.arange(8), torch.zeros(8, dtype=torch.long)):
        (seen,) = observe(task, images(labels), threat=Threat(labels="inferred", learning_rate="unknown"))
        rate = fitted_rate(task, seen.rounds[0], labels, first_rate(task, seen.rounds[0], 8))
        assert 0.3 < rate / task.recipe.learning_rate < 3


def test_each_update_has_a_hidden_rate_of_its_own() -> None:
    """The reader of one update reads another as a reader of its own does."""
    task, records = replace(signed(nn.ReLU(), bias=True), recipe=CHANGING[0]), images(REPEATED[:16])
    first, second = observe(task, records, threat=Threat(labels="inferred", learning_rate="unknown"))
    one, louder = first.rounds[0], second.rounds[0]
    louder = replace(louder, observed={name: 5 * value for name, value in louder.observed.items()})
    reader = LabelReader.of(task, one)
    reader.counts(one, 8)
    again, alone = reader.counts(louder, 8), LabelReader.of(task, louder).counts(louder, 8)
    assert torch.equal(again.counts, alone.counts)
    assert again.confidence == alone.confidence


@pytest.mark.parametrize("recipe", CHANGING, ids=["steps", "decay", "adam"])
def test_a_length_that_says_nothing_of_the_rate_ends_in_no_fault(recipe: Recipe) -> None:
    """A client at the rate that signs suggest diverges."""
    task = replace(signed(nn.ReLU(), bias=True), recipe=recipe).protect("sign()")
    for scale in (1.0, 1e4):
        (seen,) = observe(task, images(REPEATED[:8]), threat=Threat(labels="inferred", learning_rate="unknown"))
        one = seen.rounds[0]
        one = replace(one, observed={name: scale * value for name, value in one.observed.items()})
        assert int(LabelReader.of(task, one).counts(one, 8).counts.sum()) == 8


def test_the_confidence_falls_with_what_the_update_says() -> None:
    task = replace(signed(nn.ReLU(), bias=True), recipe=Recipe(batch=8))
    sure, drowned = (counts(task.protect(how), images(REPEATED)) for how in ("identity()", "gaussian(std=3.0)"))
    assert min(one.confidence for one in sure) > 0.95
    assert max(one.confidence for one in drowned) < 0.7


def test_no_more_is_stated_than_simulated_clients_give_away() -> None:
    """A sign leaves which classes are frequent, and its rows look like those of a likely batch."""
    task = replace(signed(nn.ReLU(), bias=False), recipe=Recipe(batch=64)).protect("sign()")
    (found,) = counts(task, images(spelled(torch.tensor([40, 0, 0, 12, 0, 8, 3, 0, 0, 1]))))
    assert found.confidence < 0.8


def test_a_hidden_scale_costs_a_large_batch_no_label() -> None:
    records = images(spelled(torch.tensor([101, 0, 75, 0, 0, 59, 17, 0, 0, 4])))
    task = replace(signed(nn.ReLU(), bias=True), recipe=Recipe(batch=256))
    known, hidden = (share(task.protect(how), records) for how in ("identity()", "clip(norm=0.1)"))
    assert hidden >= known - 0.03


def test_a_network_that_is_sure_of_its_outputs_lowers_the_confidence() -> None:
    """As after training: its outputs hide the labels of a batch."""
    task = replace(signed(nn.ReLU(), bias=True), recipe=Recipe(batch=8))
    state = {name: 50 * p if name.startswith("5.") else p for name, p in task.model.state_dict().items()}
    assert max(one.confidence for one in counts(task.at(state), images(REPEATED))) <= 0.5


def test_restarts_try_the_next_likely_labels() -> None:
    best, other = torch.tensor([2, 0, 1]), torch.tensor([1, 1, 1])
    some = Counts(best, 0.6, ((other, 0.5), (torch.tensor([0, 3, 0]), 0.001)))
    assert [labels.tolist() for labels in some.hypotheses(3)] == [[0, 0, 2], [0, 1, 2], [0, 0, 2]]
    task = replace(signed(nn.ReLU(), bias=False), recipe=Recipe(batch=8)).protect("gaussian(std=0.05)")
    observations = observe(task, images(REPEATED[:8]), threat=Threat(labels="inferred"))
    tried = labels_by_restart(task, observations, "auto", 3)[0]
    assert tried.shape == (3, 8)
    assert len({tuple(labels.tolist()) for labels in tried}) > 1


@given(st.lists(st.floats(-20, 40), min_size=1, max_size=30), st.integers(1, 1024))
def test_whole_counts_are_never_negative_and_fill_the_batch(numbers: list[float], batch: int) -> None:
    rounded = whole(torch.tensor([numbers], dtype=torch.float64), batch)[0]
    assert int(rounded.sum()) == batch
    assert int(rounded.min()) >= 0
    assert len(spelled(rounded)) == batch


def test_unique_labels_are_refused_where_they_cannot_be() -> None:
    task, records = signed(nn.ReLU(), bias=False), images(torch.arange(20) % CLASSES)
    distinct = replace(task, recipe=Recipe(batch=4))
    for one, true in zip(counts(distinct, records, "unique"), records.batches(4), strict=True):
        assert one.labels.tolist() == sorted(true.labels.tolist())
    with pytest.raises(DomainError, match="a batch of 20 cannot have unique labels among 10 classes; use rule"):
        counts(replace(task, recipe=Recipe(batch=20)), records, "unique")


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(DomainError, match="labels: rule must be one of auto, bias, rows, unique, got 'rwos'"):
        read(Task(network(), DOMAIN), small_records(1), "rwos")  # type: ignore[arg-type]


def test_counts_do_not_print_the_labels_they_hold() -> None:
    counts = Counts(torch.tensor([3, 0, 17]), 0.9)
    assert "17" not in repr(counts)
    assert "20 examples" in repr(counts)
