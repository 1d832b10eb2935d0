"""MixUp and InstaHide: the law of the mixtures, and their decoders on exact encodings."""

from __future__ import annotations

import math

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks import adaptive
from leakgauge.attacks.mixing import (
    decode_instahide,
    decode_mixup,
    fitted_coefficients,
    guessed_coefficients,
    hidden_mixture,
)
from leakgauge.attacks.unmixing import matrix
from leakgauge.defenses import instahide, mixup
from leakgauge.defenses.input.mixing import coefficients, partners
from leakgauge.defenses.stages import Encoded
from leakgauge.errors import DataError, DomainError
from leakgauge.metrics import psnr
from leakgauge.observation import encoded
from leakgauge.testing import small_records, small_task
from leakgauge.types import Threat

EPS = torch.finfo(torch.float32).eps


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("records", "k"), [(50, 4), (50, 6), (6, 6), (4, 4), (1, 1)])
def test_partners_are_distinct_and_every_column_is_a_permutation(records: int, k: int) -> None:
    for seed in range(5):
        made = partners(records, k, generator(seed))
        assert torch.equal(made[:, 0], torch.arange(records))
        assert all(len(set(row.tolist())) == k for row in made)
        assert all(torch.equal(column.sort().values, torch.arange(records)) for column in made.T)


@pytest.mark.parametrize(("law", "mean"), [("dirichlet", 0.43), ("normal", 0.25)])
def test_coefficients_follow_their_law(law: str, mean: float) -> None:
    made = coefficients(20_000, 4, law, 0.65, generator())
    assert torch.allclose(made.sum(1), torch.ones(20_000, dtype=torch.float64))
    assert 0 < float(made.min()) <= float(made.max()) <= 0.65
    assert float(made[:, 0].mean()) == pytest.approx(mean, abs=0.01)


def test_a_batch_is_a_slice_of_the_round() -> None:
    records = small_records(12)
    for part in (mixup(k=4), instahide(k=4)):
        whole = part.encode(records, torch.arange(12), generator=generator(3))
        some = part.encode(records, torch.tensor([5, 2]), generator=generator(3))
        # a sum of four terms in float32, none above one, in batches of two and of twelve
        torch.testing.assert_close(some.inputs, whole.inputs[[5, 2]], rtol=0, atol=8 * EPS)
        torch.testing.assert_close(some.labels, whole.labels[[5, 2]], rtol=0, atol=8 * EPS)


def test_labels_and_inputs_are_mixed_alike() -> None:
    records = small_records(8)
    made = mixup(k=4).encode(records, torch.arange(8), generator=generator())
    weights = matrix(made.drawn["indices"], made.drawn["coefficients"], 8)
    soft = torch.nn.functional.one_hot(records.labels, 4).double()
    assert torch.allclose(made.labels.double(), weights @ soft, atol=1e-6)
    assert torch.allclose(made.inputs.double().flatten(1), weights @ records.inputs.double().flatten(1), atol=1e-6)


def test_instahide_flips_around_grey_and_stays_in_the_box() -> None:
    records = small_records(8)
    plain = mixup(k=4).encode(records, torch.arange(8), generator=generator())
    made = instahide(k=4).encode(records, torch.arange(8), generator=generator())
    assert torch.allclose((made.inputs - 0.5).abs(), (plain.inputs - 0.5).abs(), atol=1e-6)
    assert 0.3 < float((made.drawn["signs"] > 0).double().mean()) < 0.7
    assert 0 <= float(made.inputs.min()) <= float(made.inputs.max()) <= 1


def rounds(part: mixup, records: lg.Records, count: int) -> Encoded:
    every = torch.arange(len(records))
    made = [part.encode(records, every, generator=generator(seed)) for seed in range(count)]
    side = {name: torch.cat([one.drawn[name] for one in made]) for name in made[0].drawn}
    return Encoded(
        torch.cat([one.inputs for one in made]), torch.cat([one.labels for one in made]), records.domain, side
    )


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("k", [4, 6])
def test_exact_mixtures_are_decoded_exactly(k: int, count: int) -> None:
    records = small_records(30)
    made = rounds(mixup(k=k), records, count)
    found = decode_mixup(made.inputs, made.drawn["indices"], made.drawn["coefficients"], 30)
    # a mixture is rounded k times, by eps/2 of at most one; least squares stretch its error by ‖W⁺‖ at most
    weights = matrix(made.drawn["indices"], made.drawn["coefficients"], 30)
    stretched = float(torch.linalg.matrix_norm(torch.linalg.pinv(weights), 2)) * math.sqrt(len(weights))
    assert float((found - records.inputs).square().sum(0).sqrt().max()) <= stretched * (k + 1) * EPS / 2


def test_hidden_coefficients_are_found_from_the_mixtures_themselves() -> None:
    records = small_records(12)
    made = rounds(mixup(k=3), records, 12)
    weights = fitted_coefficients(made.inputs, made.drawn["indices"], 12, mixup(k=3))
    assert float((weights - made.drawn["coefficients"]).abs().max()) < 1e-5
    found = decode_mixup(made.inputs, made.drawn["indices"], weights, 12)
    assert float(psnr(found, records.inputs.double()).min()) > 100


def test_hidden_indices_are_found_from_the_mixtures_themselves() -> None:
    """Encodings of several rounds say who is in them; columns that were shuffled among them say nothing."""
    records, count = small_records(20), 8
    made = rounds(mixup(k=3), records, count)
    order = torch.arange(20 * count).view(count, 20).T.flatten()
    shown, indices = made.inputs[order], made.drawn["indices"][order]
    owners = torch.arange(20).repeat_interleave(count)
    found = hidden_mixture(shown, owners, 20, mixup(k=3))
    assert found is not None
    assert torch.equal(found.indices.sort(1).values, indices.sort(1).values)
    decoded = decode_mixup(shown, found.indices, found.weights, 20)
    assert float(psnr(decoded, records.inputs.double()).min()) > 90
    noisy = shown + 0.02 * torch.randn(shown.shape, generator=generator())
    near = hidden_mixture(noisy, owners, 20, mixup(k=3))
    assert near is not None
    # 0.93 when this was written; by chance about one in five
    assert float((near.indices.sort(1).values == indices.sort(1).values).double().mean()) > 0.7
    flat = shown.flatten(1)
    shuffled = torch.stack([c[torch.randperm(len(c), generator=generator(i))] for i, c in enumerate(flat.unbind(1))], 1)
    assert hidden_mixture(shuffled, owners, 20, mixup(k=3)) is None
    assert hidden_mixture(shown[::count], owners[::count], 20, mixup(k=3)) is None


def test_nothing_granted_and_every_record_comes_back() -> None:
    """A linear first layer gives the encodings away, and they the records; one that is dead there is done without."""
    records = small_records(12)
    network = lg.models.build("mlp(width=8, depth=1)", records.domain)
    task = lg.Task(network, records.domain).protect("mixup(k=3)")
    made = adaptive(steps=2)(task, lg.observe(task, records, rounds=[task.params] * 8))
    assert set(made.status) == {"decoded"}
    assert float(psnr(made.inputs[:, 0], records.inputs).min()) > 60
    assert made.encodings is not None


def test_magnitudes_come_back_from_flipped_mixtures_and_images_where_public_ones_fix_the_sign() -> None:
    records = small_records(12)
    made = rounds(instahide(k=4), records, 20)
    side = made.drawn
    found = decode_instahide(made.inputs, side["indices"], side["coefficients"], 12, starts=20)
    gap = (found - (records.inputs.double() - 0.5).abs()).abs()
    assert float((gap < 1e-5).double().mean()) > 0.9


def test_soft_labels_betray_the_coefficients_behind_signs() -> None:
    records, part = small_records(12), instahide(k=2)
    made = rounds(part, records, 20)
    indices, true = made.drawn["indices"], made.drawn["coefficients"].double()
    found = guessed_coefficients(indices, made.labels, 12, part)
    apart = records.labels[indices[:, 0]] != records.labels[indices[:, 1]]
    assert 0 < int(apart.sum()) < len(apart)
    assert float((found - true)[apart].abs().max()) < 1e-5
    assert torch.allclose(found.sum(1), torch.ones(len(found), dtype=torch.float64))
    blind = guessed_coefficients(indices, None, 12, part)
    assert float((blind - true).abs().mean()) > float((found - true).abs().mean())


def test_inter_instahide_mixes_public_images_whose_labels_do_not_count() -> None:
    sample = lg.data.load("fashion_mnist_sample")
    records = sample.sample(6, seed=1, split="test")
    part = instahide(k=4, public="fashion_mnist_sample")
    made = part.encode(records, torch.arange(6), generator=generator())
    indices, weights = made.drawn["indices"], made.drawn["coefficients"]
    assert bool((indices[:, :2] >= 0).all())
    assert bool((indices[:, 2:] < 0).all())
    assert torch.allclose(made.labels.sum(1), weights[:, :2].sum(1))
    strangers = sample.train.inputs[-1 - indices[:, 2:]]
    mixed = torch.einsum("bk,bk...->b...", weights, torch.cat([records.inputs[indices[:, :2]], strangers], 1))
    assert torch.allclose((made.inputs - 0.5).abs(), (mixed - 0.5).abs(), atol=1e-6)


def test_adaptive_decodes_what_is_granted_and_says_what_it_returns() -> None:
    task = small_task().protect("mixup(k=2)")
    records = small_records(5)
    grants = Threat(grants=frozenset({"indices", "coefficients"}))
    states = [task.params] * 3
    granted = adaptive(steps=300)(task, lg.observe(task, records, threat=grants, rounds=states))
    hidden = adaptive(steps=300)(task, lg.observe(task, records))
    indices = Threat(grants=frozenset({"indices"}))
    fitted = adaptive(steps=2)(task, lg.observe(task, records, threat=indices, rounds=states))
    assert set(fitted.status) == {"decoded"}
    assert set(granted.status) == {"decoded"}
    assert set(hidden.status) == {"encoding"}
    shown = encoded(task, records).inputs
    assert float(psnr(hidden.inputs[:, 0], shown).mean()) > float(psnr(hidden.inputs[:, 0], records.inputs).mean()) + 3
    assert float(psnr(granted.inputs[:, 0], records.inputs).mean()) > float(
        psnr(hidden.inputs[:, 0], records.inputs).mean()
    )


def test_bad_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(DataError, match=r"mixup\(k=6\): it mixes 6 distinct records, there are 4; give at least 6"):
        lg.observe(small_task().protect("mixup(k=6)"), small_records(4))
    with pytest.raises(DataError, match=r"have shape \(1, 28, 28\), the records \(1, 6, 6\)"):
        lg.observe(small_task().protect("instahide(public='fashion_mnist_sample')"), small_records(4))
    for make, options, says in (
        (mixup, {"k": 0}, "mixup: k must be an integer ≥ 1"),
        (mixup, {"cap": 0.2}, r"mixup: cap must lie in \(0.25, 1\]"),
        (mixup, {"law": "uniform"}, "mixup: law must be"),
        (instahide, {"k": 2, "public": "cifar10"}, "instahide: with public images k must be at least 3"),
    ):
        with pytest.raises(DomainError, match=says):
            make(**options)
    with pytest.raises(DomainError, match=r"no 4 coefficients below 0.2501 were found"):
        coefficients(1, 4, "normal", 0.2501, generator(), tries=20)
