"""How records are spread over clients. Every partition is a value; what it draws is a function of the seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.expr import Part, register
from leakgauge.seeds import seed_of
from leakgauge.types import Records


class Partition(Part):
    """``clients`` sets of rows, no row twice."""

    clients: int

    def rows(self, labels: Tensor, *, generator: Generator) -> list[Tensor]:
        """The rows of every client."""
        raise NotImplementedError

    def __call__(self, records: Records, *, seed: int = 0) -> list[Records]:
        """The records of every client, each with at least one."""
        generator = torch.Generator().manual_seed(seed_of(seed, 6))
        shared = [records[rows] for rows in self.rows(records.labels, generator=generator)]
        if empty := [k for k, own in enumerate(shared) if not len(own)]:
            raise DomainError(
                f"client {empty[0]} of {self.clients} gets none of {len(records)} records",
                where=repr(self),
                remedy="share more records, or among fewer clients",
            )
        return shared


@register("partition", "iid")
@dataclass(frozen=True, repr=False)
class Iid(Partition):
    """Shuffled, and cut into equal parts; a remainder is left out."""

    clients: int = 100

    def __post_init__(self) -> None:
        guards.count(self.clients, "clients", "iid")

    def rows(self, labels: Tensor, *, generator: Generator) -> list[Tensor]:
        size = len(labels) // self.clients
        return list(torch.randperm(len(labels), generator=generator)[: size * self.clients].view(self.clients, size))


@register("partition", "shards")
@dataclass(frozen=True, repr=False)
class Shards(Partition):
    """Sorted by label, cut into shards of ``size`` records, and at least ``least``, at most ``most`` shards for each.

    The partition of the LRP paper: 200 records per shard of MNIST (50 of CIFAR), one to nine of them for each of 100
    clients. Every client gets ``least`` random shards; each of the others goes to a random client that still
    has room. Most shards hold one class, none of them more than two where classes are larger than shards.

    References:
        Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023, 5.1.
    """

    clients: int = 100
    size: int = 200
    least: int = 1
    most: int = 9

    def __post_init__(self) -> None:
        for name in ("clients", "size", "least"):
            guards.count(getattr(self, name), name, "shards")
        guards.count(self.most, "most", "shards", least=self.least)

    def rows(self, labels: Tensor, *, generator: Generator) -> list[Tensor]:
        shards = _sorted(labels)[: len(labels) // self.size * self.size].view(-1, self.size)
        spare = len(shards) - self.clients * self.least
        if not 0 <= spare <= self.clients * (self.most - self.least):
            raise DomainError(
                f"{len(shards)} shards of {self.size} cannot be {self.least} to {self.most} for each of {self.clients}",
                where=repr(self),
                remedy="choose another size of shards, or number of clients",
            )
        counts = torch.full((self.clients,), self.least)
        for _ in range(spare):
            room = (counts < self.most).nonzero().flatten()
            counts[room[torch.randint(len(room), (1,), generator=generator)]] += 1
        order = torch.randperm(len(shards), generator=generator).split(counts.tolist())
        return [shards[own].flatten() for own in order]


@register("partition", "mcmahan")
@dataclass(frozen=True, repr=False)
class McMahan(Partition):
    """Sorted by label, cut into ``shards`` equal shards per client, and so many random ones for each.

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
        https://arxiv.org/abs/1602.05629
    """

    clients: int = 100
    shards: int = 2

    def __post_init__(self) -> None:
        guards.count(self.clients, "clients", "mcmahan")
        guards.count(self.shards, "shards", "mcmahan")

    def rows(self, labels: Tensor, *, generator: Generator) -> list[Tensor]:
        count = self.clients * self.shards
        size = len(labels) // count
        shards = _sorted(labels)[: size * count].view(count, size)
        return list(shards[torch.randperm(count, generator=generator)].reshape(self.clients, -1))


@register("partition", "dirichlet")
@dataclass(frozen=True, repr=False)
class Dirichlet(Partition):
    """The records of every class shared among the clients in proportions from ``Dirichlet(α, …, α)``.

    A small α gives each class to few clients, a large one shares it equally. Clients that would get fewer than
    ``least`` records are given some of the largest client's, so that everybody can train.

    References:
        Hsu et al., Measuring the Effects of Non-Identical Data Distribution, 2019. https://arxiv.org/abs/1909.06335
    """

    clients: int = 100
    alpha: float = 0.5
    least: int = 1

    def __post_init__(self) -> None:
        guards.count(self.clients, "clients", "dirichlet")
        guards.positive(self.alpha, "alpha", "dirichlet")
        guards.count(self.least, "least", "dirichlet")

    def rows(self, labels: Tensor, *, generator: Generator) -> list[Tensor]:
        if len(labels) < self.clients * self.least:
            raise DomainError(
                f"{len(labels)} records are not {self.least} for each of {self.clients} clients",
                where=repr(self),
                remedy="share more records, or among fewer clients",
            )
        alphas = torch.full((self.clients,), self.alpha, dtype=torch.float64)
        own: list[list[int]] = [[] for _ in range(self.clients)]
        for label in labels.unique():
            (members,) = (labels == label).nonzero(as_tuple=True)
            members = members[torch.randperm(len(members), generator=generator)]
            shares = _proportions(alphas, generator)
            ends = (shares.cumsum(0) * len(members)).round().long()
            ends[-1] = len(members)
            for k, some in enumerate(members.tensor_split(ends[:-1])):
                own[k] += some.tolist()
        for few in own:
            while len(few) < self.least:
                few.append(max(own, key=len).pop())
        return [torch.tensor(rows) for rows in own]


def _proportions(alphas: Tensor, generator: Generator) -> Tensor:
    """A draw of ``Dirichlet(alphas)`` by logarithms, ``log G(α) = log G(α + 1) + log(U) / α``.

    Gamma draws of a small α are too small for float64: all of them would be rounded to the same number, and a class
    that belongs to one client would be shared equally.
    """
    larger = torch._standard_gamma(alphas + 1, generator=generator)
    uniform = torch.rand(alphas.shape, dtype=alphas.dtype, generator=generator)
    logs = larger.log() + uniform.log() / alphas
    if not bool(logs.isfinite().any()):  # an α so small that even the logarithms overflow: the largest takes all
        return torch.nn.functional.one_hot(uniform.argmax(), len(alphas)).to(alphas)
    return logs.softmax(0)


def _sorted(labels: Tensor) -> Tensor:
    return labels.sort(stable=True).indices


iid = Iid
shards = Shards
mcmahan = McMahan
dirichlet = Dirichlet
__all__ = ["Dirichlet", "Iid", "McMahan", "Partition", "Shards", "dirichlet", "iid", "mcmahan", "shards"]
