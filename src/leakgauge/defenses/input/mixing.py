"""MixUp and InstaHide: every input is a mixture of several, with random coefficients, and perhaps random signs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge import data, guards
from leakgauge.defenses.stages import Encoded, InputPart
from leakgauge.errors import DataError, DomainError
from leakgauge.expr import PATH, register
from leakgauge.types import Domain, Nuisance, Records

Law = Literal["dirichlet", "normal"]
_MIXTURE = (Nuisance("indices", per="example"), Nuisance("coefficients", per="example"))
CENTRE = 0.5
"""Signs are flipped around mid-grey, so that an encoding is an image in [0, 1] again."""


@register("defense", "mixup")
@dataclass(frozen=True, repr=False)
class MixUp(InputPart):
    """``x̃_i = Σ_j λ_ij x_{π_j(i)}``, labels alike: k distinct records, the first of them record i itself.

    Every round draws k − 1 permutations of the client's records and new coefficients: ``Dirichlet(3, 1, …, 1)``
    (GradAttack) or ``|N(0, 1)|`` divided by their sum (``law="normal"``, the original InstaHide), drawn again while
    the largest exceeds ``cap``. GradAttack permutes the first record too, which only renames the encodings of a round.
    ``k=1`` mixes nothing: the records as they are.

    References:
        Zhang et al., mixup: Beyond Empirical Risk Minimization, 2018. https://arxiv.org/abs/1710.09412
        Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021. https://arxiv.org/abs/2112.00059
    """

    k: int = 4
    cap: float = 0.65
    law: Law = "dirichlet"
    nuisances: ClassVar[tuple[Nuisance, ...]] = _MIXTURE

    def __post_init__(self) -> None:
        with guards.together():
            k = guards.count(self.k, "k", self.expression_name)
            guards.choice(self.law, "law", self.expression_name, get_args(Law))
            guards.inside(self.cap, "cap", self.expression_name, 1 / k if k > 1 else 0.0, 1.0, closed_high=True)

    def check(self, domain: Domain, records: int) -> None:
        if self.own > records:
            raise DataError(
                f"it mixes {self.own} distinct records, there are {records}",
                where=repr(self),
                remedy=f"give at least {self.own} records or a smaller k",
            )

    @property
    def mixing(self) -> Literal["solvable", "secret"] | None:
        return "solvable" if self.k > 1 else None

    @property
    def own(self) -> int:
        """How many of the k are the client's own records."""
        return self.k

    def encode(self, pool: Records | Encoded, rows: Tensor, *, generator: Generator) -> Encoded:
        self.check(pool.domain, len(pool))
        indices = partners(len(pool), self.own, generator)[rows]
        weights = coefficients(len(pool), self.k, self.law, self.cap, generator)[rows].to(pool.inputs.dtype)
        return self.mixed(pool, indices, weights, generator=generator)

    def mixed(self, pool: Records | Encoded, indices: Tensor, weights: Tensor, *, generator: Generator) -> Encoded:
        """``Σ_j λ_ij x_{indices_ij}`` and the labels alike."""
        labels = pool.labels
        soft = labels if labels.is_floating_point() else one_hot(labels, pool.domain.classes).to(pool.inputs.dtype)
        own = weights[:, : indices.shape[1]]
        inputs = torch.einsum("bk,bk...->b...", own, pool.inputs[indices])
        if self.k == 1:  # one record is no mixture: its label stays a class
            return Encoded(inputs, labels[indices[:, 0]], pool.domain, {"indices": indices, "coefficients": weights})
        targets = torch.einsum("bk,bkc->bc", own, soft[indices])
        return Encoded(inputs, targets, pool.domain, {"indices": indices, "coefficients": weights})

    @classmethod
    def neutral(cls) -> Self | None:
        return cls(k=1)


@register("defense", "instahide")
@dataclass(frozen=True, repr=False)
class InstaHide(MixUp):
    """MixUp, then a random sign for every pixel and channel: ``x̃ = c + σ ⊙ (Σ_j λ_j x_j − c)``, with c mid-grey.

    Intra-InstaHide mixes k records of the client; with ``public``, the name of a data set, Inter-InstaHide mixes two of
    them with k − 2 public images, whose labels do not count (their ``indices`` are −1 − i, of train image i). The
    original centres images at their mean; around mid-grey an encoding stays in [0, 1]. Half of a sign remains for
    ever undetermined: x and 1 − x at one pixel of *all* records give the same encodings.

    References:
        Huang et al., InstaHide: Instance-hiding Schemes for Private Distributed Learning, 2020.
        https://arxiv.org/abs/2010.02772
    """

    public: str | None = None
    nuisances: ClassVar[tuple[Nuisance, ...]] = (*_MIXTURE, Nuisance("signs", per="example"))
    accuracy_caveat: ClassVar[str] = (
        "the network has seen inputs of random signs only; asked about such inputs it may know more"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public is not None and not isinstance(self.public, str):
            raise DomainError("public must be a text", where="instahide", remedy="name a data set")
        if self.public is not None and PATH.fullmatch(self.public):  # within a text nobody announces code
            raise DataError(
                f"public = {self.public!r} names code, which a defense does not run",
                where="instahide",
                remedy="name a data set, an .npz file or a folder of images",
            )
        if self.public is not None and self.k < 3:
            raise DomainError(
                f"with public images k must be at least 3, got {self.k}: two are the client's own",
                where="instahide",
                remedy="say k=4, or leave public out",
            )

    @property
    def mixing(self) -> Literal["solvable", "secret"] | None:
        return "secret" if self.k > 1 else None

    @property
    def own(self) -> int:
        return self.k if self.public is None else 2

    def check(self, domain: Domain, records: int) -> None:
        super().check(domain, records)
        if self.public is not None and (shape := tuple(public_images(self.public).shape[1:])) != domain.shape:
            raise DataError(
                f"images of {self.public} have shape {shape}, the records {domain.shape}",
                where=repr(self),
                remedy="name a public data set of the records' shape",
            )

    def mixed(self, pool: Records | Encoded, indices: Tensor, weights: Tensor, *, generator: Generator) -> Encoded:
        mixture = super().mixed(pool, indices, weights, generator=generator)
        inputs = mixture.inputs
        if self.public is not None:
            strangers = public_images(self.public)
            shape = (len(pool), self.k - 2)
            # drawn for the whole round, so that a batch is the same whoever asks for it
            chosen = torch.randint(len(strangers), shape, generator=generator)[self._rows(pool, indices)]
            inputs = inputs + torch.einsum("bk,bk...->b...", weights[:, 2:], strangers[chosen].to(inputs))
            indices = torch.cat([indices, -1 - chosen], 1)
        signs = _signs(self._rows(pool, indices), pool, generator).to(inputs)
        drawn = {"indices": indices, "coefficients": weights, "signs": signs}
        return Encoded(CENTRE + signs * (inputs - CENTRE), mixture.labels, pool.domain, drawn)

    def _rows(self, pool: Records | Encoded, indices: Tensor) -> Tensor:
        return indices[:, 0]  # the first record of a mixture is the one it stands for

    @classmethod
    def neutral(cls) -> Self | None:
        return None


@cache
def public_images(name: str) -> Tensor:
    """The train images of a public data set."""
    return data.load(name).train.inputs


def _signs(rows: Tensor, pool: Records | Encoded, generator: Generator) -> Tensor:
    """A sign for every pixel of every row, each row from a seed of its own."""
    seeds = torch.randint(2**62, (len(pool),), generator=generator)[rows].tolist()
    shape = pool.domain.shape
    each = [torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return 2 * torch.stack(each) - 1


def partners(records: int, k: int, generator: Generator, *, tries: int = 1000) -> Tensor:
    """Row i: itself and its places in k − 1 random permutations, all distinct, ``[records, k]``."""
    columns = [torch.arange(records)]
    while len(columns) < k:
        order = torch.randperm(records, generator=generator)
        for _ in range(tries):
            bad = torch.stack([order == column for column in columns]).any(0).nonzero().flatten()
            if not len(bad):
                break
            # a swap keeps it a permutation
            here, there = int(bad[0]), int(torch.randint(records, (), generator=generator))
            order[[here, there]] = order[[there, here]]
        else:
            return _shifts(records, k, generator)
        columns.append(order)
    return torch.stack(columns, 1)


def _shifts(records: int, k: int, generator: Generator) -> Tensor:
    """Cyclic shifts in a random order: distinct however few records there are."""
    order = torch.randperm(records, generator=generator)
    steps = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(records - 1, generator=generator)[: k - 1]])
    place = order.argsort()
    return order[(place.unsqueeze(1) + steps) % records]


def coefficients(rows: int, k: int, law: Law, cap: float, generator: Generator, *, tries: int = 10_000) -> Tensor:
    """``[rows, k]``, positive, summing to one, none above ``cap`` (a single one is 1)."""
    if k == 1:
        return torch.ones(rows, 1)
    weights = _drawn(rows, k, law, generator)
    for _ in range(tries):
        bad = (weights.amax(1) > cap).nonzero().flatten()
        if not len(bad):
            return weights
        weights[bad] = _drawn(len(bad), k, law, generator)
    raise DomainError(
        f"no {k} coefficients below {cap} were found in {tries} draws", where="mixup", remedy=f"raise cap above 1/{k}"
    )


def _drawn(rows: int, k: int, law: Law, generator: Generator) -> Tensor:
    if law == "normal":
        raw = torch.randn(rows, k, generator=generator, dtype=torch.float64).abs()
    else:  # Gamma(3) is the sum of three exponentials
        waits = -torch.log1p(-torch.rand(rows, k + 2, generator=generator, dtype=torch.float64))
        raw = torch.cat([waits[:, :3].sum(1, keepdim=True), waits[:, 3:]], 1)
    return raw / raw.sum(1, keepdim=True)
