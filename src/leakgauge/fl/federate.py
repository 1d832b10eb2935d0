"""FedAvg: rounds of sampled clients, each of which trains on its own records, and the mean of what they send."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import guards
from leakgauge.errors import DataError, DomainError, LeakgaugeError, ModelError
from leakgauge.fl.aggregate import mean, misfit, secure_mean
from leakgauge.fl.engine import Engine, InProcess, Job
from leakgauge.fl.errors import FederationError, SecureSumError
from leakgauge.fl.history import History, Lost, RoundLog
from leakgauge.fl.secure_sum import LEAST
from leakgauge.fl.sums import SecureSums, Totals, classes_of
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.training.accuracy import accuracy
from leakgauge.types import Progress, Records, Tree


@dataclass(frozen=True)
class Federation:
    """How a federated training goes; the optimiser of the clients (momentum, weight decay, Adam) is the task's recipe.

    ``per_round`` clients are drawn in each of ``rounds`` (default: all take part). Each takes ``steps`` local steps, or
    ``epochs`` passes over its records, on batches of ``minibatch`` of them (None: all at once). The rate is constant,
    or falls by a cosine from ``learning_rate`` to 0 over the rounds. Two schemes of aggregation, ``p_k = n_k / Σ n``:

    - ``"I"``: ``W ← 1/K Σ W_k``, where client k trains ``p_k N L_k``, that is at the rate ``p_k N η``;
    - ``"II"``: ``W ← Σ p_k W_k / Σ p_k`` over the clients of the round, which all train at the rate η.

    LRP and ada-LRP belong to scheme I: it is ``lrp()`` that makes ``U(0, 2 p_k N η)`` of its rate. ``secure`` lets the
    server see the sum of a round's updates alone (at least three clients; fixed point of 2⁻³²).

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
        Li et al., On the Convergence of FedAvg on Non-IID Data, 2020 (the schemes). https://arxiv.org/abs/1907.02189
    """

    rounds: int = 100
    per_round: int | None = None
    steps: int | None = None
    epochs: int | None = None
    minibatch: int | None = 32
    learning_rate: float = 0.01
    decay: Literal["constant", "cosine"] = "constant"
    scheme: Literal["I", "II"] = "I"
    secure: bool = False

    def __post_init__(self) -> None:
        with guards.together():
            for name in ("rounds", "per_round", "steps", "epochs", "minibatch"):
                if getattr(self, name) is not None:
                    guards.count(getattr(self, name), name, "federation")
            guards.positive(self.learning_rate, "learning_rate", "federation")
            guards.choice(self.decay, "decay", "federation", ("constant", "cosine"))
            guards.choice(self.scheme, "scheme", "federation", ("I", "II"))
        if (self.steps is None) == (self.epochs is None):
            what = "neither steps nor epochs" if self.steps is None else "both steps and epochs"
            raise DomainError(
                f"{what} of local training", where="federation", remedy="say one of them, such as steps=5"
            )

    def rate(self, number: int) -> float:
        """The learning rate of round 0, 1, …"""
        if self.decay == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * number / self.rounds)) / 2

    def sample(self, clients: int, number: int, seed: int) -> list[int]:
        """The clients of a round, in ascending order."""
        count = clients if self.per_round is None else self.per_round
        order = torch.randperm(clients, generator=torch.Generator().manual_seed(seed_of(seed, number, 8)))
        return sorted(order[:count].tolist())


def federate(
    task: Task,
    clients: Sequence[Records],
    how: Federation,
    *,
    test: Records | None = None,
    every: int = 1,
    seed: int = 0,
    totals: Totals | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> History:
    """Train by FedAvg, every client under the task's protection; the accuracy on ``test`` after ``every`` rounds.

    Everything random is a function of ``(seed, round, client)``. What clients must know of each other comes from
    ``totals``; by default from a secure sum where the training stage perturbs rates or updates are summed in secret, so
    that no count is sent in clear, else from the counts, as servers of FedAvg do. A client that vanishes, or whose
    update does not fit the model, is left out of its round and noted; a round without any answer ends the training with
    the rounds before it (:class:`FederationError`). The user's model is left alone.
    """
    check(task, clients, how)
    guards.count(every, "every", "federate")
    run = Run(task, clients, how, totals or totals_of(task, clients, how), engine or InProcess(), seed)
    own = copy.deepcopy(task.trained()).state_dict()
    state, logs = {**own, **{name: p.clone() for name, p in task.params.items()}}, list[RoundLog]()
    if test is not None:
        logs.append(RoundLog(0, how.rate(0), (), (), accuracy(task.at(state), test, seed=seed)))
    for number in range(how.rounds):
        try:
            change, log = run.round(number, {name: state[name] for name in task.params})
        except LeakgaugeError as fault:
            if number == 0 and not isinstance(fault, FederationError):
                raise  # a set-up that is refused; later on, what was trained before is not lost
            history = History(tuple(logs), state)
            raise FederationError(fault.what, history=history, where=fault.where, remedy=fault.remedy) from None
        state = {**state, **{name: (state[name].double() + c).to(state[name]) for name, c in change.items()}}
        if test is not None and ((number + 1) % every == 0 or number + 1 == how.rounds):
            log = replace(log, accuracy=accuracy(task.at(state), test, seed=seed))
        logs.append(log)
        if progress is not None:
            progress(number + 1, how.rounds, 1 - log.accuracy if log.accuracy is not None else float("nan"))
    return History(tuple(logs), state)


def totals_of(task: Task, clients: Sequence[Records], how: Federation) -> Totals:
    """What clients learn of each other where nothing else is said: by a secure sum where a count would tell."""
    return Totals.secure(clients) if task.protection.training or how.secure else Totals.in_clear(clients)


def check(task: Task, clients: Sequence[Records], how: Federation) -> None:
    """Refuse what cannot be trained, before anything runs."""
    if not clients:
        raise DomainError("there are no clients", where="federate", remedy="give the records of at least one")
    for k, own in enumerate(clients):
        if not len(own):
            raise DataError(f"client {k} has no records", where="federate", remedy="leave it out")
        if own.domain != task.domain:
            raise DataError(
                f"client {k} has records of {own.domain}, the task of {task.domain}",
                where="federate",
                remedy="give records of one domain",
            )
    if how.per_round is not None and how.per_round > len(clients):
        raise DomainError(
            f"{how.per_round} clients per round of {len(clients)}",
            where="federate",
            remedy=f"say per_round={len(clients)} at most",
        )
    count = how.per_round or len(clients)
    if how.secure and count < LEAST:
        raise DomainError(
            f"a secure sum of {count} client{'s' if count > 1 else ''} hides nobody's update",
            where="federate",
            remedy=f"let at least {LEAST} take part in every round, or leave secure out",
        )
    if task.recipe.mode == "train" and any(isinstance(m, _BatchNorm) for m in task.working.modules()):
        raise ModelError(
            "batch normalisation in train mode keeps running statistics, which a mean of updates does not carry",
            where="federate",
            remedy='use group normalisation, or mode="eval"',
        )


@dataclass
class Run:
    """One training: what does not change between rounds, and the work of each client in each of them."""

    task: Task
    clients: Sequence[Records]
    how: Federation
    totals: Totals
    engine: Engine
    seed: int

    def __post_init__(self) -> None:
        known: dict[tuple[object, ...], Task] = {}
        self.tasks = [self._task(own, known) for own in self.clients]
        names = [str(k) for k in range(len(self.clients))]
        self.sums = SecureSums(names, f"updates {self.seed}") if self.how.secure else None

    def _task(self, own: Records, known: dict[tuple[object, ...], Task]) -> Task:
        """The task at one client: its number of steps, and what it personalises of the training stage."""
        size = min(self.how.minibatch or len(own), len(own))
        steps = self.how.steps or (self.how.epochs or 1) * (len(own) // size)
        parts = tuple(
            part.of_client(classes_of(own), self.totals.mean_classes) for part in self.task.protection.training
        )
        key = (size, steps, parts)
        if key not in known:
            recipe = replace(
                self.task.recipe,
                batch=steps * size,
                minibatch=size,
                local_steps=steps,
                clients=1,  # the sum of several is the federation's
                shares="change",
                learning_rate=self.how.learning_rate,
            )
            known[key] = replace(self.task, recipe=recipe, protection=replace(self.task.protection, training=parts))
        return known[key]

    def round(self, number: int, params: Tree) -> tuple[dict[str, Tensor], RoundLog]:
        """The mean change of a round, in float64, and its log."""
        chosen, rate = self.how.sample(len(self.clients), number, self.seed), self.how.rate(number)
        jobs = [self.job(k, number, params) for k in chosen]
        replies, lost = self._answers(jobs, params)
        if not replies:
            raise FederationError(
                f"no client of {len(chosen)} answered ({lost[0].why})",
                history=History((), {}),
                where=f"round {number + 1}",
                remedy="look at the clients; the rounds before this one are kept",
            )
        weights = {k: self._weight(k) for k in replies}
        try:
            change = mean(replies, weights) if self.sums is None else secure_mean(self.sums, replies, weights, number)
        except (SecureSumError, DomainError) as fault:  # too few are left to hide one of them, or an update overflows
            what = f"no secure sum of {len(replies)} of {len(chosen)} clients: {fault.what}"
            raise FederationError(
                what, history=History((), {}), where=f"round {number + 1}", remedy=fault.remedy
            ) from None
        return change, RoundLog(number + 1, rate, tuple(replies), tuple(lost))

    def job(self, k: int, number: int, params: Tree) -> Job:
        """What client k does in round 0, 1, …"""
        rate = self.how.rate(number) * self._own_rate(k)
        return Job(k, self.tasks[k], self.clients[k], params, (self.seed, number, k), rate)

    def _answers(self, jobs: Sequence[Job], params: Tree) -> tuple[dict[int, Tree], list[Lost]]:
        """The updates that count, and who is lost: one answer of every client that was asked, whatever the engine."""
        replies, lost = dict[int, Tree](), list[Lost]()
        waiting, silent = {job.client for job in jobs}, "it did not answer"
        answers = iter(self.engine.run(jobs))
        while True:
            try:
                answer = next(answers, None)
            except LeakgaugeError:
                raise
            except Exception as fault:  # an engine that breaks must not cost the answers that are there
                answer, silent = None, f"the engine ended by {type(fault).__name__}: {fault}"
            if answer is None:
                break
            if answer.client not in waiting:
                lost.append(Lost(answer.client, "it was not asked, or has answered before"))
                continue
            waiting.remove(answer.client)
            if isinstance(answer, Lost):
                lost.append(answer)
            elif (why := misfit(answer.change, params)) is not None:
                lost.append(Lost(answer.client, why))
            else:
                replies[answer.client] = answer.change
        lost += [Lost(k, silent) for k in sorted(waiting)]
        return {k: replies[k] for k in sorted(replies)}, lost

    def _own_rate(self, k: int) -> float:
        """What scheme I multiplies a client's rate by."""
        return self.totals.share(self.clients[k]) if self.how.scheme == "I" else 1.0

    def _weight(self, k: int) -> float:
        return 1.0 if self.how.scheme == "I" else self.totals.share(self.clients[k])
