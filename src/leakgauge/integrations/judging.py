"""The core of Gate, whatever the framework: attack an update before it is sent, against the client's own records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leakgauge import guards
from leakgauge.errors import DataError, DomainError

if TYPE_CHECKING:
    from torch import nn

    from leakgauge import inspect
    from leakgauge.inspect.scoring import Ruler
    from leakgauge.integrations.exchange import Exchange
    from leakgauge.task import Task
    from leakgauge.types import Loss, Records

DRAWS = 3
DECIBELS = 14.0
LARGEST = 8
"""Of an update of more examples, a batch of so many is assumed: larger ones cost more than a gate may."""


@dataclass(frozen=True)
class Judge:
    """Attacks an outgoing update, and says why it must stay here, if it must.

    Exact recovery and the exposure check come first, then the attacks of ``leakgauge inspect``, beside the same attacks
    on noise. An update leaks if a record is certified, stands in one of its rows, or comes out at ``threshold`` and
    beyond the spread of noise. The threshold is in the metric of the records' domain: by default 14 dB of PSNR, of rows
    of a table 0.75 of their features. ``budget`` bounds the evaluations for one update: where they do not suffice for
    every attack, the update is withheld, as it is if anything raises. The server gets one neutral error; the node's
    log says why.

    ``model`` builds the network, ``records`` gives the client's own from the context. One local step on ``batch``
    examples is assumed (default: as many as the client states, at most 8): after many steps the attack is weaker than
    the best there is, and passing is no proof of safety. ``defense`` is what the client does to its update, if it does
    something: the adversary models it. ``action = "warn"`` only writes to the log what it would have withheld.
    """

    model: Callable[[], nn.Module]
    records: Callable[[Any], Records]
    threshold: float | None = None
    budget: int = 20_000
    batch: int | None = None
    mode: Literal["train", "eval"] = "eval"
    loss: Loss | None = None
    defense: str | None = None
    action: Literal["block", "warn"] = "block"

    def __post_init__(self) -> None:
        with guards.together():
            if self.threshold is not None:
                guards.positive(self.threshold, "threshold", "Gate")
            guards.count(self.budget, "budget", "Gate")
            guards.choice(self.mode, "mode", "Gate", ("train", "eval"))
            guards.choice(self.action, "action", "Gate", ("block", "warn"))
            if self.batch is not None:
                guards.count(self.batch, "batch", "Gate")
        if self.defense is not None:
            from leakgauge.defenses import protection

            protection(self.defense)  # one that cannot be read would withhold every update, round by round

    def withholds(self, both: Exchange, context: object, examples: int | None, log: logging.Logger) -> bool:
        """Whether an update must stay here; the log says why."""
        try:
            reason = self.leak(both, self.records(context), self.batch or min(examples or 1, LARGEST))
        except Exception as fault:
            reason = f"{type(fault).__name__}: {fault}"
        if reason is None:
            return False
        log.warning("gate: %s: %s", "withheld" if self.action == "block" else "would withhold", reason)
        return self.action == "block"

    def leak(self, both: Exchange, records: Records, batch: int) -> str | None:
        """What comes out of an update, as a clause; None if nothing does."""
        from leakgauge.defenses import protection
        from leakgauge.inspect import attacks_on, inspect
        from leakgauge.inspect.client import Client
        from leakgauge.inspect.cost import evaluations
        from leakgauge.inspect.scoring import Ruler
        from leakgauge.integrations.exposing import read_off

        if not len(records):
            raise DataError("there are no records to compare with", where="Gate", remedy="give the client's own")
        model, domain = self.model(), records.domain
        capture = _capture(both, model)
        defense = None if self.defense is None else protection(self.defense)
        task = Client(model, domain, batch, self.mode, self.loss, defense).task(capture)
        certified = _certified(task, capture, batch)
        if certified:
            return f"{certified} of {batch} records are recovered exactly"
        ruler = Ruler.of(domain)
        limit = self._limit(ruler)
        exposed = read_off(task, capture.gradient, records, limit)
        if exposed:
            return f"{exposed} of the client's {len(records)} records can be read off single units"
        left = self.budget - 1
        for attack in attacks_on(task, batch):
            left -= (1 + DRAWS) * evaluations(attack)
            if left < 0:
                raise DomainError(f"{self.budget} evaluations do not suffice for {attack!r}", where="budget")
            findings = inspect(
                model, domain, [capture], batch=batch, known=records, attacks=[attack], mode=self.mode, loss=self.loss,
                defense=defense, draws=DRAWS,
            )  # fmt: skip
            found = [score for score, near in zip(findings[0].scores, findings[0].nearer, strict=True) if near]
            if found and max(found) >= limit:
                return f"{attack!r} recovers a record at {ruler.metric.meaning.at(round(max(found), 2))}"
        return None

    def _limit(self, ruler: Ruler) -> float:
        """The score from which a record leaks; one that no score can reach would let everything pass."""
        meaning = ruler.metric.meaning
        if self.threshold is None:
            return DECIBELS if ruler.in_decibels else meaning.threshold
        if meaning.best is not None and self.threshold > meaning.best:
            raise DomainError(
                f"no record can reach {meaning.at(self.threshold)}",
                where="threshold",
                remedy=f"say {meaning.threshold:g}, or leave it out",
            )
        return self.threshold


def _capture(both: Exchange, model: nn.Module) -> inspect.Capture:
    import torch

    from leakgauge.inspect.captures import captured, named
    from leakgauge.storage.states import State, metadata_of

    before, after = (
        named(
            State({n: torch.from_numpy(v.copy()) for n, v in arrays.items()}, Path(what), metadata_of("state", sign=1)),
            model,
        )
        for what, arrays in (("before", both.before), ("after", both.after))
    )
    return captured(before, after, model)


def _certified(task: Task, capture: inspect.Capture, batch: int) -> int:
    """How many records peeling certifies; 0 where it has no hold."""
    from leakgauge.attacks.recovering import obstacle, recover
    from leakgauge.inspect.readings import readings

    if obstacle(task) is not None:
        return 0
    (reading,) = readings(task, capture, batch, None)  # the capture states its sign
    return len(recover(task, reading.observation, methods="peeling"))
