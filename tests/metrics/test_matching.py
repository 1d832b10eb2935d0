"""One-to-one matching against all permutations; labels before and after it."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.metrics import RowError, label_accuracy, label_counts_accuracy, match, mse


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 5), st.booleans())
def test_no_permutation_is_better(seed: int, problems: int, batch: int, coarse: bool) -> None:
    truth, reconstruction = draw(problems, batch, 1, 2, 2, seed=seed), draw(problems, batch, 1, 2, 2, seed=seed + 1)
    if coarse:  # many ties
        truth, reconstruction = truth.round(), reconstruction.round()
    found = match(reconstruction, truth)
    for n in range(problems):
        best = min(mse(reconstruction[n, list(p)], truth[n]).sum() for p in itertools.permutations(range(batch)))
        assert sorted(found.permutation[n].tolist()) == list(range(batch))
        torch.testing.assert_close(found.scores[n].sum(), best)
    torch.testing.assert_close(found.scores, mse(found.apply(reconstruction), truth))
    assert torch.equal(found.permutation, match(reconstruction, truth).permutation)


def test_undoes_a_shuffle() -> None:
    truth, labels = draw(4, 6, 3, 8, 8), torch.arange(24).view(4, 6)
    shuffle = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(n)) for n in range(4)])
    rows = torch.arange(4).unsqueeze(1)
    noisy = (truth + 0.05 * draw(4, 6, 3, 8, 8, seed=1)).clamp(0, 1)
    found = match(noisy[rows, shuffle], truth)
    assert torch.equal(found.apply(shuffle), torch.arange(6).expand(4, 6))
    assert torch.equal(found.apply(labels[rows, shuffle]), labels)
    assert torch.equal(found.apply(noisy[rows, shuffle]), noisy)


def test_no_record_is_found_twice() -> None:
    truth = torch.stack([torch.full((1, 2, 2), v) for v in (0.0, 1.0)]).unsqueeze(0)
    both_black = torch.zeros(1, 2, 1, 2, 2)
    assert match(both_black, truth).scores.tolist() == [[0.0, 1.0]]


def test_duplicates_keep_their_order() -> None:
    same = torch.full((1, 3, 1, 2, 2), 0.5)
    assert match(same, same).permutation.tolist() == [[0, 1, 2]]


def test_a_diverged_reconstruction_leaves_the_others_alone() -> None:
    truth = draw(1, 4, 1, 6, 6)
    order = [2, 0, 3, 1]
    reconstruction = truth[:, order].clone()
    reconstruction[0, 1] = math.nan  # it belonged to record 0
    found = match(reconstruction, truth)
    assert found.permutation.tolist() == [[1, 3, 0, 2]]
    assert found.scores.isfinite().all()


def test_tables_are_not_clipped() -> None:
    truth = torch.tensor([[[5.0, 9.0], [-7.0, 2.0], [1.0, 1.0]]])
    reconstruction = truth[:, [1, 2, 0]].clone()
    assert match(reconstruction, truth, metric=RowError()).permutation.tolist() == [[2, 0, 1]]
    reconstruction[0, 0, 0] = math.inf
    found = match(reconstruction, truth, metric=RowError())
    assert found.permutation.tolist() == [[2, 0, 1]]
    assert found.scores.tolist() == [[0.0, math.inf, 0.0]]


def test_shapes_are_checked() -> None:
    with pytest.raises(DomainError, match=r"must both be \[N, B, …\]"):
        match(torch.zeros(2, 3, 1, 4, 4), torch.zeros(2, 2, 1, 4, 4))
    with pytest.raises(DomainError, match=r"must both be \[N, B\]"):
        label_accuracy(torch.zeros(3), torch.zeros(3))
    with pytest.raises(DomainError, match=r"must both be \[N, B\]"):
        label_counts_accuracy(torch.zeros(1, 2), torch.zeros(1, 3))


def test_labels() -> None:
    truth = torch.tensor([[0, 1, 2, 2], [3, 3, 3, 0]])
    guess = torch.tensor([[1, 0, 2, 2], [3, 0, 0, 0]])
    assert label_accuracy(guess, truth).tolist() == [0.5, 0.5]
    assert label_counts_accuracy(guess, truth).tolist() == [1.0, 0.5]


def test_a_label_counts_only_with_its_image() -> None:
    truth, labels = draw(1, 3, 1, 4, 4), torch.tensor([[5, 6, 7]])
    found = match(truth[:, [2, 0, 1]], truth)
    assert label_accuracy(labels[:, [2, 0, 1]], labels, found).item() == 1.0
    assert label_accuracy(labels, labels, found).item() == 0.0


def test_soft_labels() -> None:
    soft = torch.tensor([[[0.1, 0.9], [0.8, 0.2], [math.nan, 0.3]]])
    truth = torch.tensor([[1, 0, 0]])
    assert label_accuracy(soft, truth).item() == pytest.approx(2 / 3)
    assert label_counts_accuracy(soft, truth).item() == pytest.approx(2 / 3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5))
def test_counts_are_the_best_order_of_positions(pairs: list[tuple[int, int]]) -> None:
    guess, truth = zip(*pairs, strict=True)
    best = max(sum(a == b for a, b in zip(p, truth, strict=True)) for p in itertools.permutations(guess))
    counts = label_counts_accuracy(torch.tensor([guess]), torch.tensor([truth])).item()
    assert counts == pytest.approx(best / len(pairs))
