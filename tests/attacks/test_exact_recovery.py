"""Exact recovery: what is certified is a record, what is not is said; through scales, sums, precision and layers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.adversary.nulls import noise
from leakgauge.attacks import adaptive, exact_recovery, recover
from leakgauge.attacks.certificates import Certifier
from leakgauge.attacks.linear_layers import LayerGradient, Precision, Tail
from leakgauge.attacks.recovering import Recovery, first_layer, obstacle
from leakgauge.attacks.sparse_directions import by_sparse_directions, sampled
from leakgauge.errors import DomainError, ModelError, ObservationError

IMAGES = lg.Domain("image", (1, 6, 6), 5)
TABLE = lg.Domain("table", (20,), 3)
HALF_THE_DIGITS = {torch.float32: 3e-3, torch.float64: 1e-8}


def mlp(domain: lg.Domain, width: int = 64, depth: int = 1, seed: int = 0) -> nn.Module:
    return lg.models.build(f"mlp(width={width}, depth={depth})", domain, seed=seed)


def task(batch: int = 4, dtype: torch.dtype = torch.float64, **recipe: object) -> lg.Task:
    return lg.Task(mlp(IMAGES).to(dtype), IMAGES, lg.Recipe(batch=batch, **recipe))  # type: ignore[arg-type]


def images(count: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> lg.Records:
    """Bright images: like pixels in [0, 1], they are not centred."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, *IMAGES.shape, generator=generator, dtype=torch.float64)
    return lg.Records(inputs.to(dtype), torch.arange(count) % IMAGES.classes, IMAGES)


def rows(count: int, seed: int = 0) -> lg.Records:
    """Rows of a centred table."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 20, generator=generator, dtype=torch.float64)
    return lg.Records(inputs, torch.arange(count) % 3, TABLE)


def matched(recovery: Recovery, records: lg.Records) -> tuple[float, set[int]]:
    """The largest distance of an answer from its nearest record, and which records were recovered with their label."""
    gaps = (recovery.inputs.flatten(1).unsqueeze(1) - records.inputs.flatten(1).double()).abs().amax(-1)
    near = gaps.argmin(1)
    assert torch.equal(recovery.labels, records.labels[near])
    return float(gaps.amin(1).max()), set(near.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("defense", "recipe"),
    [
        ("identity()", {}),
        ("identity()", {"reduction": "sum"}),
        ("clip(norm=0.01)", {}),
        ("lrp()", {}),
        ("identity()", {"shares": "change", "learning_rate": 0.03}),
    ],
)
def test_whole_batches_come_back_through_every_positive_scale(
    defense: str, recipe: dict[str, object], dtype: torch.dtype
) -> None:
    client, records = task(dtype=dtype, **recipe).protect(defense), images(4, dtype)
    hidden = lg.Threat(labels="inferred", learning_rate="unknown")
    recovery = recover(client, lg.observe(client, records, threat=hidden)[0])
    error, which = matched(recovery, records)
    assert recovery.complete
    assert (recovery.rank, len(recovery), which) == (4, 4, {0, 1, 2, 3})
    assert max(error, recovery.residue) < HALF_THE_DIGITS[dtype]


def test_a_sum_of_clients_is_a_larger_batch_even_if_each_clips_by_itself() -> None:
    client, records = task(2).protect("clip(norm=0.01)"), images(6)
    whole = lg.summed(lg.observe(client, records))
    assert (whole.batch, whole.rounds[0].clients) == (6, 3)
    recovery = recover(client, whole)
    assert recovery.complete
    assert matched(recovery, records)[1] == set(range(6))
    made = adaptive(steps=2)(client, [whole])
    assert made.certified is not None
    assert bool(made.certified.all())
    with pytest.raises(ObservationError, match="sums 3 clients, which only exact recovery takes apart"):
        lg.attacks.inverting_gradients(steps=2)(client, [whole])
    with pytest.raises(ObservationError, match="of different rounds have no sum"):
        lg.summed([])


def test_centred_rows_need_sparse_directions() -> None:
    """Of 100 units, one is expected to have one of 12 centred rows alone with probability 100 · 12 / 2¹²."""
    records = rows(12)
    client = lg.Task(mlp(TABLE, 100, 2).double(), TABLE, lg.Recipe(batch=12))
    (observation,) = lg.observe(client, records, threat=lg.Threat(labels="inferred"))
    assert sum(lg.exposure(client, records).exposed) == 0
    assert len(recover(client, observation, methods="peeling")) == 0
    recovery = recover(client, observation)
    error, which = matched(recovery, records)
    assert recovery.complete
    assert set(recovery.methods) == {"sparse directions"}
    assert (which, error < 1e-8) == (set(range(12)), True)


def test_sampling_finds_the_directions_of_a_small_batch() -> None:
    records = rows(5)
    client = lg.Task(mlp(TABLE, 100, 2).double(), TABLE, lg.Recipe(batch=5))
    first = first_layer(client)
    assert first is not None
    (one,) = lg.observe(client, records)[0].rounds
    precision = Precision.of(torch.float64)
    gradient = LayerGradient.of(one.observed, first, precision, 5)
    tail = Tail.of(client, one.params, {}, first)
    certifier = Certifier(tail, torch.arange(3), precision, gradient.factors[0])
    certified = by_sparse_directions(gradient, certifier, [partial(sampled, samples=20_000)])
    gaps = (certified.inputs.unsqueeze(1) - records.inputs).abs().amax(-1)
    assert sorted(gaps.argmin(1).tolist()) == list(range(5))
    assert float(gaps.amin(1).max()) < 1e-8


def test_a_later_layer_gives_its_features() -> None:
    client, records = lg.Task(mlp(IMAGES, 64, 2).double(), IMAGES, lg.Recipe(batch=4)), images(4)
    recovery = recover(client, lg.observe(client, records)[0], layer="linear2")
    truth = torch.relu(client.working.linear1(records.inputs.flatten(1))).detach()  # type: ignore[operator]
    assert recovery.complete
    gaps = (recovery.inputs.unsqueeze(1) - truth).abs().amax(-1)
    assert float(gaps.amin(1).max()) < 1e-8
    with pytest.raises(ModelError, match="did you mean 'linear2'"):
        recover(client, lg.observe(client, records)[0], layer="linear3")


def test_a_normalisation_is_undone() -> None:
    model = lg.models.normalised(mlp(IMAGES).double(), [0.1], [0.5])
    client, records = lg.Task(model, IMAGES, lg.Recipe(batch=4)), images(4)
    assert matched(recover(client, lg.observe(client, records)[0]), records)[1] == {0, 1, 2, 3}


def test_repeated_records_are_rank_deficient_and_said_so() -> None:
    once, client = images(3), task(4)
    twice = once[[0, 1, 2, 2]]
    recovery = recover(client, lg.observe(client, twice)[0])
    assert (recovery.rank, len(recovery), recovery.complete) == (3, 4, True)
    assert recovery.notes[0].startswith("the gradient of 'linear1' has rank 3, less than its 4 examples: some repeat")
    other = lg.Records(twice.inputs, torch.tensor([0, 1, 2, 3]), IMAGES)
    recovery = recover(client, lg.observe(client, other)[0], starts=32, samples=4096)
    assert not recovery.complete
    assert "cannot all be told apart" in recovery.notes[0]
    assert matched(recovery, other)[1] <= {0, 1}  # the third input has two labels: no single one explains it


@pytest.mark.parametrize("defense", ["identity()", "clip(norm=0.01)"])
def test_the_mean_of_two_that_are_nearly_equal_is_no_record(defense: str) -> None:
    """Their derivatives are so alike that every unit gives the same mean: twice a record that is not there."""
    records, client = images(4), task(4).protect(defense)
    inputs = records.inputs.clone()
    inputs[3] = inputs[2] + 1e-4 * (images(1, seed=9).inputs[0] - 0.5)
    alike = lg.Records(inputs, torch.tensor([0, 1, 2, 2]), IMAGES)
    recovery = recover(client, lg.observe(client, alike)[0], starts=32, samples=4096)
    assert recovery.rank == 4
    assert len(recovery) >= 1
    assert matched(recovery, alike)[0] < 1e-8


@pytest.mark.parametrize("live", [1, 12])
@pytest.mark.parametrize("defense", ["identity()", "clip(norm=0.01)"])
def test_a_mixture_that_every_live_unit_agrees_on_is_no_record(defense: str, live: int) -> None:
    """Two classes and the same units: all derivatives are parallel, and of an unknown scale any mean explains them."""
    domain = lg.Domain("table", (6,), 2)
    model = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 2)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64) / 3)
        model[0].bias.copy_(torch.where(torch.arange(30) < live, 3.0, -3.0))  # type: ignore[operator]
    inputs = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    records = lg.Records(inputs, torch.zeros(3, dtype=torch.long), domain)
    client = lg.Task(model, domain, lg.Recipe(batch=3)).protect(defense)
    recovery = recover(client, lg.observe(client, records)[0], starts=32, samples=4096)
    assert recovery.rank < 3
    assert len(recovery) == 0


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("defense", ["identity()", "clip(norm=0.01)", "lrp()"])
def test_mixtures_of_records_that_are_alike_have_no_certificate(defense: str, classes: int) -> None:
    """They activate the same units: of a free scale, one equation fits whatever is put in, and the span holds all."""
    domain = lg.Domain("image", (1, 6, 6), classes)
    for seed, batch in enumerate((2, 4, 6)):
        generator = torch.Generator().manual_seed(seed)
        inputs = 0.5 + 0.05 * torch.rand(2 * batch, 1, 6, 6, generator=generator, dtype=torch.float64)
        records = lg.Records(inputs, torch.randint(classes, (2 * batch,), generator=generator), domain)
        for depth in (1, 2):
            client = lg.Task(mlp(domain, 32, depth, seed).double(), domain, lg.Recipe(batch=batch)).protect(defense)
            observations = lg.observe(client, records, threat=lg.Threat(labels="inferred"))
            for one in (*observations, lg.summed(observations)):
                recovery = recover(client, one, starts=32, samples=4096)
                gaps = (recovery.inputs.flatten(1).unsqueeze(1) - inputs.flatten(1)).abs().amax(-1)
                assert len(recovery) == 0 or float(gaps.amin(1).max()) < 1e-6


def test_sums_of_clients_that_scale_nothing_are_a_batch_like_any_other() -> None:
    """Their factor is known, and the same for all of them."""
    records = images(8)
    for client in (task(4), task(8, clients=2), task(4, reduction="sum"), task(8, clients=2, reduction="sum")):
        observations = lg.observe(client, records)
        one = lg.summed(observations) if len(observations) > 1 else observations[0]
        recovery = recover(client, one)
        assert recovery.complete
        assert matched(recovery, records)[1] == set(range(8))


def test_nothing_is_certified_that_is_not_there() -> None:
    """Noise, another batch size, a network without gates: every one ends without a certificate."""
    client, records = task(4), images(4)
    observations = lg.observe(client, records)
    (blurred,) = noise(observations)
    recovery = recover(client, blurred)
    assert (len(recovery), recovery.complete) == (0, False)
    assert "more than 4 examples can give it" in recovery.notes[0]
    nudged = {n: v * (1 + 1e-3 * torch.randn_like(v)) for n, v in observations[0].rounds[0].observed.items()}
    shaken = lg.Observation((lg.Round(nudged, client.params),), 4)
    assert len(recover(client, shaken)) == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.protect("clip(norm=1.0) | gaussian(std=0.1)"), r"gaussian\(std=0.1\) adds noise"),
        (lambda t: t.protect("prune(p=0.5)"), r"prune\(p=0.5\) does more than scale the update"),
        (lambda t: task(4, shares="change", local_steps=2), "2 local steps add gradients at different weights"),
        (lambda t: task(4, shares="change", weight_decay=0.1), "weight decay adds the weights"),
        (lambda t: task(4, shares="change", minibatch=2), "only 2 of the 4 examples"),
    ],
)
def test_what_forbids_it_is_named(change: object, reason: str) -> None:
    client = change(task(4))  # type: ignore[operator]
    with pytest.raises(ObservationError, match=f"exact recovery does not apply: {reason}"):
        recover(client, lg.observe(client, images(4))[0])
    assert str(adaptive().against(client)).startswith("exact recovery does not apply: ")
    made = adaptive(steps=2)(client, lg.observe(client, images(4)))
    assert made.notes[0].startswith("exact recovery does not apply: ")
    assert made.certified is None


def test_networks_without_a_hold() -> None:
    smooth = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Sigmoid(), nn.Linear(16, 5))
    for model in (smooth, lg.models.build("logistic", IMAGES)):
        client = lg.Task(model, IMAGES, lg.Recipe(batch=4))
        assert obstacle(client) == "no linear layer with a bias takes the record itself and meets ReLU"
        assert adaptive().against(client).recovery == ""
        with pytest.raises(ModelError, match="attack with adaptive"):
            recover(client, lg.observe(client, images(4, torch.float32))[0])
    with pytest.raises(DomainError, match="methods must be one of both, peeling, sparse"):
        exact_recovery(methods="all")  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"recover: methods must be one of .*recover: starts must be"):
        recover(task(4), lg.observe(task(4), images(4))[0], methods="all", starts=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_a_narrow_second_layer_hides_no_relu(seed: int) -> None:
    """Some random inputs switch all of its units off, and then every derivative vanishes."""
    model = nn.Sequential(nn.Flatten(), mlp(lg.Domain("table", (36,), 5), 4, 2, seed))
    assert obstacle(lg.Task(model, IMAGES, lg.Recipe(batch=4))) is None


def test_adaptive_attacks_only_what_was_not_certified() -> None:
    """Two records repeat with other labels, which nobody can certify: the others are exact, these are searched for."""
    client, once = task(4), images(3)
    records = lg.Records(once.inputs[[0, 1, 2, 2]], torch.tensor([0, 1, 2, 3]), IMAGES)
    observations = lg.observe(client, records)
    assert str(adaptive().against(client)).startswith("exact recovery first")
    made, alone = adaptive(steps=3)(client, observations), exact_recovery(starts=32, samples=4096)(client, observations)
    for answer in (made, alone):
        assert answer.certified is not None
        count = int(answer.certified.sum())
        assert answer.status == ("exact in part" if count else "not recovered",)
        assert answer.inputs.shape == (1, 4, *IMAGES.shape)
        gaps = (answer.inputs[0, :count].unsqueeze(1) - records.inputs).abs().flatten(2).amax(-1)
        assert float(gaps.amin(1).max()) < 1e-8
        assert sorted(answer.labels[0].tolist()) == [0, 1, 2, 3]
    assert made.evaluations > 0
    assert alone.evaluations == 0
    assert bool((alone.inputs[0, ~alone.certified[0]] == 0.5).all())  # type: ignore[index]
