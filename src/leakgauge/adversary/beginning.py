"""Where the unknowns of N problems begin: inputs or codes, soft labels, and what is hidden of every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary.adversary import Adversary
from leakgauge.adversary.rates import Shared
from leakgauge.adversary.rounds import Group
from leakgauge.adversary.solver.problem import draw
from leakgauge.adversary.unknowns import INPUTS, SOFT_LABELS, Block, Unknowns
from leakgauge.errors import DomainError
from leakgauge.priors.generators import Generated, generator_in
from leakgauge.task import Task
from leakgauge.types import Tree


@dataclass(frozen=True)
class Key:
    """One problem: observation, restart, setting."""

    observation: int
    restart: int
    setting: int


@dataclass(frozen=True)
class Beginning:
    """Of the problems of one group: ``labels`` are ``[n, restarts, B]``, None where they are searched for as well.

    ``searched`` are the addresses of hidden values that are unknowns, ``rates`` those that rounds may share.
    """

    adversary: Adversary
    group: Group
    settings: int
    labels: Tensor | None
    searched: Sequence[str]
    rates: frozenset[str]
    begin: Tensor | None
    shared: Shared | None

    @property
    def task(self) -> Task:
        return self.group.task

    @property
    def like(self) -> Tensor:
        return self.group.like

    @cached_property
    def generator(self) -> Generated | None:
        return generator_in(self.adversary.prior)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Of every round, the first one that drew the same hidden rates."""
        return self.shared.first if self.shared else tuple(range(len(self.group.states)))

    @property
    def at_grey(self) -> bool:
        """Whether first starts are the middle of the box: one level of many that could be."""
        moves_inputs = self.begin is None and self.generator is None
        return moves_inputs and self.adversary.start == "grey" and self.task.domain.box is not None

    def labels_of(self, keys: Sequence[Key]) -> Tensor | None:
        if self.labels is None:
            return None
        return self.labels[[key.observation for key in keys], [key.restart for key in keys]]

    def unknowns(self, seeds: Sequence[int], keys: Sequence[Key]) -> Unknowns:
        blocks = {INPUTS: self._codes(seeds, keys) if self.generator else self._block(seeds, keys)}
        if self.labels is None:
            logits = draw(seeds, (self.group.batch, self.task.domain.classes), 4, like=self.like)
            blocks[SOFT_LABELS] = Block(logits, decode=lambda raw: raw.softmax(-1))
        for r, address in product(range(len(self.group.states)), self.searched):
            if self.first[r] != r and address in self.rates:
                continue
            weight, laws = self._prior_weight, self.task.laws(address)
            for name, shape in self.task.shapes(address, self.group.batch).items():
                start = self._rates_of(address, r, keys, shape)
                whole = (len(seeds), *shape)
                blocks[block(r, address, name)] = Block.of_law(laws[name], whole, self.like, weight, start)
        return Unknowns(blocks)

    def _rates_of(self, address: str, r: int, keys: Sequence[Key], shape: tuple[int, ...]) -> Tensor | None:
        """Where hidden rates of round r begin, if an earlier attack says so."""
        if self.shared is None or address not in self.shared.rates:
            return None
        factors = self.shared.rates[address][[self.group.places[key.observation] for key in keys], r]
        return factors.view(-1, *(1 for _ in shape)).expand(-1, *shape)

    def of_round(self, values: Tree, r: int) -> dict[str, Any]:
        """The nuisances among the unknowns of round r, by address; rates are those of the first round that shares."""
        return {**_nuisances(values, self.first[r]), **_nuisances(values, r)}

    def _block(self, seeds: Sequence[int], keys: Sequence[Key]) -> Block:
        return Block(self._inputs(seeds, keys), box=self.task.domain.box)

    def _codes(self, seeds: Sequence[int], keys: Sequence[Key]) -> Block:
        """The codes of a generator in place of inputs, each time from the middle of its prior, then from anywhere."""
        assert self.generator is not None
        decode = self.generator.decoder(self.like, self.task.domain.shape)
        codes = draw(seeds, (self.group.batch, self.generator.codes), 0, like=self.like)
        # equal codes of a batch would stay equal: only one record alone can begin in the middle
        codes[[n for n, key in enumerate(keys) if key.restart == 0 and self.group.batch == 1]] = 0
        self._begun(codes, keys)
        return Block(self.generator.begin(codes, self.labels_of(keys)), decode)

    @property
    def _prior_weight(self) -> float:
        """Of the log prior of a nuisance beside the likelihood; that of a rate is flat, whatever it weighs."""
        weight = self.adversary.hidden
        return 1.0 if weight is None else weight

    def _inputs(self, seeds: Sequence[int], keys: Sequence[Key]) -> Tensor:
        shape, how = (self.group.batch, *self.task.domain.shape), self.adversary.start
        if how == "prior":
            inputs = self._inputs_of_prior([key.restart for key in keys], shape)
        else:
            inputs = draw(seeds, shape, 0, like=self.like, law="uniform" if how == "uniform" else "normal")
        first = torch.tensor([key.restart == 0 for key in keys], device=self.like.device)
        if how in ("grey", "zeros"):
            # only the first start can be the flat one: a second would end where the first did
            inputs[first] = 0.5 if how == "grey" and self.task.domain.box is not None else 0.0
        self._begun(inputs, keys)
        return inputs

    def _begun(self, start: Tensor, keys: Sequence[Key]) -> None:
        """Put the first start of each observation where it was told to begin."""
        begins = [(n, key) for n, key in enumerate(keys) if key.restart == 0]
        if self.begin is None or not begins:
            return
        each = self.begin.dim() > start.dim()  # its own for every setting
        begin = self.begin if each else self.begin.expand(self.settings, *self.begin.shape)
        places = [(key.setting, self.group.places[key.observation]) for _, key in begins]
        start[[n for n, _ in begins]] = torch.stack([begin[s, i] for s, i in places]).to(start)

    def _inputs_of_prior(self, restarts: Sequence[int], shape: tuple[int, ...]) -> Tensor:
        starts = getattr(self.adversary.prior, "starts", None)
        if starts is None or self.labels is None:
            what = "joint labels have no start there" if starts else f"{self.adversary.prior!r} names no starts"
            raise DomainError(what, where="adversary", remedy="choose another start, or a prior like Finite")
        inputs: Tensor = starts(restarts, self.like)
        if inputs.shape[1:] != shape:
            raise DomainError(
                f"the prior starts at records of shape {tuple(inputs.shape[1:])}, the batch has {shape}",
                where="adversary",
                remedy="give a prior over such batches",
            )
        return inputs


def block(r: int, address: str, name: str) -> str:
    """The name of the unknown that a nuisance of round r is, or one of its tensors."""
    return f"{r}/{address}/{name}" if name else f"{r}/{address}"


def _nuisances(values: Tree, r: int) -> dict[str, Any]:
    """The nuisances among the unknowns of round r, by address."""
    nuisances: dict[str, Any] = {}
    for key, value in values.items():
        number, _, rest = key.partition("/")
        if number == str(r):
            address, _, name = rest.partition("/")
            if name:  # of one layer
                nuisances.setdefault(address, {})[name] = value
            else:
                nuisances[address] = value
    return nuisances


__all__ = ["Beginning", "Key", "block"]
