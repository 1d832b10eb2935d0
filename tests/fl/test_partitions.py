"""Partitions: no record twice, the sizes that were asked for, and labels as skewed as they say."""

from __future__ import annotations

import pytest
import torch

from leakgauge.errors import DomainError
from leakgauge.fl import Partition, dirichlet, iid, mcmahan, shards
from leakgauge.types import Domain, Records

DOMAIN = Domain("table", (1,), 10)


def records(count: int = 600) -> Records:
    labels = torch.arange(count) % 10
    return Records(torch.arange(count, dtype=torch.float32).view(-1, 1), labels, DOMAIN)


def ids(own: Records) -> list[int]:
    return own.inputs.flatten().long().tolist()


ALL = [iid(6), shards(clients=12, size=10), mcmahan(clients=6, shards=2), dirichlet(clients=6, alpha=0.1, least=3)]


@pytest.mark.parametrize("how", ALL, ids=repr)
def test_every_record_goes_to_one_client_and_the_seed_says_which(how: Partition) -> None:
    shared, again, other = (how(records(), seed=seed) for seed in (1, 1, 2))
    everyone = [row for own in shared for row in ids(own)]
    assert sorted(everyone) == list(range(600))
    assert len(shared) == how.clients
    assert list(map(ids, shared)) == list(map(ids, again)) != list(map(ids, other))


def test_shards_are_one_to_nine_for_each_client() -> None:
    shared = shards(clients=12, size=10)(records())
    assert {len(own) % 10 for own in shared} == {0}
    assert all(10 <= len(own) <= 90 for own in shared)
    assert len({len(own) for own in shared}) > 2
    with pytest.raises(DomainError, match="60 shards of 10 cannot be 1 to 9 for each of 5"):
        shards(clients=5, size=10)(records())


def test_mcmahan_gives_two_classes_to_each() -> None:
    shared = mcmahan(clients=5, shards=2)(records())
    assert {len(own) for own in shared} == {120}
    assert max(len(own.labels.unique()) for own in shared) == 2


def test_a_small_alpha_is_skewed_and_a_large_one_is_not() -> None:
    def shares(alpha: float) -> torch.Tensor:
        shared = dirichlet(clients=6, alpha=alpha)(records())
        return torch.stack([torch.bincount(own.labels, minlength=10) for own in shared]).double() / 60

    assert float(shares(0.05).max(0).values.mean()) > 0.7
    assert float((shares(1e4) - 1 / 6).abs().max()) < 0.05


@pytest.mark.parametrize("alpha", [1e-320, 1e-300, 1e-8, 1e-4])
def test_a_tiny_alpha_gives_every_class_to_one_client(alpha: float) -> None:
    shared = dirichlet(clients=6, alpha=alpha)(records())
    counts = torch.stack([torch.bincount(own.labels, minlength=10) for own in shared])
    # a client without any class was given a record or two
    assert int(counts.max(0).values.min()) >= 55


def test_too_few_records_are_an_error() -> None:
    with pytest.raises(DomainError, match="client 0 of 700 gets none"):
        iid(700)(records())
    with pytest.raises(DomainError, match="600 records are not 1 for each of 700"):
        dirichlet(clients=700)(records())
    with pytest.raises(DomainError, match="clients must be an integer ≥ 1"):
        iid(0)
