"""``standard()``: how strong it is without a knob, and what it costs."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn

import leakgauge as lg
from benchmarks.machine import prepare
from evidence import Context, Measurement, Number, at_least, at_most, check, exactly
from evidence.execution import unseen
from evidence.sources import Sources
from leakgauge.adversary import Attack, Reconstruction
from leakgauge.attacks import adaptive, idlg, inverting_gradients, standard
from leakgauge.attacks.choosing import Choice, Choosing
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import stage_after
from leakgauge.expr import parse
from leakgauge.metrics import match, psnr
from leakgauge.training import train

REPORTED, REFERENCE, TRAINED = 8, standard().reference, 300
ROOT = Path(__file__).resolve().parents[2]


def _group_norm(domain: lg.Domain) -> nn.Module:
    """A small ConvNet with GroupNorm."""
    channels, side = domain.shape[0], domain.shape[1] // 4
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1, stride=2),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, stride=2),
            nn.GroupNorm(8, 64),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * side * side, domain.classes),
        )


@dataclass(frozen=True)
class SetUp:
    """A client: network, data, defense, batch, and whether it was trained first."""

    model: str
    data: str
    defense: str = "identity()"
    batch: int = 1
    trained: bool = False

    @property
    def name(self) -> str:
        stage = f"after {TRAINED} steps" if self.trained else "untrained"
        return f"{self.model}, {self.data}, {self.defense}, batch {self.batch}, {stage}"

    def task(self) -> tuple[lg.Task, lg.data.Dataset]:
        dataset = lg.data.load(self.data)
        domain = dataset.domain
        network = _group_norm(domain) if self.model == "group_norm" else lg.models.build(self.model, domain)
        task = lg.Task(network, domain, lg.Recipe(batch=self.batch))
        if self.trained:
            records = dataset.sample(4000, seed=5, split="train")
            (*_, last) = train(task, records, steps=TRAINED, learning_rate=0.02, keep=())
            task = task.at(last.state)
        return task.protect(self.defense), dataset


SET_UPS = (
    SetUp("bayes_cnn", "cifar10"),
    SetUp("bayes_cnn", "fashion_mnist"),
    SetUp("dlg_lenet", "cifar10"),
    SetUp("convbig", "cifar10"),
    SetUp("dlg_lenet", "fashion_mnist", batch=4),
    SetUp("dlg_lenet", "cifar10", "gaussian(std=0.0001)"),
    SetUp("bayes_cnn", "fashion_mnist", "gaussian(std=0.001)", trained=True),
    SetUp("bayes_cnn", "cifar10", "clip(norm=1.0) | gaussian(std=0.001)"),
    SetUp("bayes_cnn", "fashion_mnist", "prune(p=0.9)"),
    SetUp("bayes_cnn", "fashion_mnist", "random_prune(p=0.5) | gaussian(std=0.01)"),
    SetUp("bayes_cnn", "fashion_mnist", "sign()"),
    SetUp("bayes_cnn", "fashion_mnist", batch=4, trained=True),
    SetUp("convbig", "cifar10", "prune(p=0.9)"),
    SetUp("group_norm", "cifar10"),
    SetUp("group_norm", "fashion_mnist", trained=True),
    SetUp("mlp(width=200, depth=2)", "fashion_mnist", batch=4),
)


@dataclass(frozen=True)
class Case:
    """A set-up with observations of reported and of reference records."""

    task: lg.Task
    reported: lg.Records
    reference: lg.Records
    private: list[lg.Observation]
    other: list[lg.Observation]

    @classmethod
    def of(cls, how: SetUp, reported: int = REPORTED) -> Case:
        task, dataset = how.task()
        records = dataset.sample(reported * how.batch, seed=0, split="test")
        others = dataset.sample(REFERENCE * how.batch, seed=3, split="train")
        return cls(task, records, others, lg.observe(task, records, seed=1), lg.observe(task, others, seed=2))

    def part(self, begin: int, end: int) -> Case:
        """With some of the reported updates only."""
        batch = self.task.recipe.batch
        some = self.reported[range(begin * batch, end * batch)]
        return replace(self, reported=some, private=self.private[begin:end])

    def scores(self, guess: Reconstruction) -> Tensor:
        """PSNR of every reported record."""
        return _scores(guess, self.reported, self.task.recipe.batch)

    def choose(self, attack: Any) -> Choice:
        choice: Choice = attack.choose(self.task, self.other, _by_psnr(self.reference, self.task.recipe.batch))
        return choice


def _scores(guess: Reconstruction, records: lg.Records, batch: int) -> Tensor:
    truth = records.inputs.unflatten(0, (-1, batch))
    inputs = guess.inputs.clamp(0, 1)
    if batch > 1:
        inputs = match(inputs, truth).apply(inputs)
    return psnr(inputs.flatten(0, 1), truth.flatten(0, 1)).clamp(max=100.0)


def _by_psnr(records: lg.Records, batch: int) -> Callable[[Reconstruction, Sequence[int]], float]:
    def score(guess: Reconstruction, places: Sequence[int]) -> float:
        own = records[[i * batch + j for i in places for j in range(batch)]]
        return float(_scores(guess, own, batch).mean())

    return score


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun


def _oracle(case: Case, how: SetUp, context: Context) -> tuple[Attack, float, int]:
    """The best mean of any setting in the box, chosen on the reported records themselves: it cheats.

    With the attack that has it, and how many settings there were.
    """
    score = _by_psnr(case.reported, case.task.recipe.batch)
    weights = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    whole: list[Attack] = [adaptive(steps=300, tv_weight=w, tv_density=3000 * w) for w in weights]
    whole += [idlg(steps=1000, restarts=1)] if how.model == "dlg_lenet" else []  # it needs a smooth network
    guesses = [attack(case.task, case.private) for attack in whole]
    swept = [inverting_gradients(steps=300, tv_weight=w) for w in weights]
    guesses += stage_after([None] * len(swept), swept, case.task, case.private)  # problems of one solver
    scores = [score(guess, range(len(case.private))) for guess in guesses]
    attacks, tried = [*whole, *swept], len(guesses)
    if choice := _searched(case, score):
        attacks, scores, tried = [*attacks, choice.attack], [*scores, choice.score], tried + choice.tried
    best = max(scores)
    context.say(f"oracle: {best:.2f} dB from {tried} settings")
    return attacks[scores.index(best)], best, tried


def _searched(case: Case, score: Callable[[Reconstruction, Sequence[int]], float]) -> Choice | None:
    """The portfolio with every reported record in every rung."""
    every = len(case.private)
    effort = replace(standard().effort, look=every, records=every)
    return Choosing(Portfolio.of(case.task, case.private), effort, case.task, case.private, score).choose()


Row = dict[str, Any]
COSTLY = ("convbig", "group_norm", "bayes_cnn", "dlg_lenet")
"""Networks by the processor time of an evaluation, the most costly first."""


def _kept(context: Context, name: str, by: str, work: Callable[[], Row], *, begin: bool = True) -> Row:
    """What ``by`` measured for an interrupted check, or another check of the same code; else, if it may still
    ``begin``, it is measured now, or nothing is there."""
    digest = Sources(ROOT).fingerprint(__name__, by).digest
    path = context.scratch.parents[1] / digest[:12] / "standard_rows" / f"{re.sub(r'[^a-z0-9]+', '_', name)}.json"
    unseen()
    if not path.exists():
        if not begin:
            return {}
        row = work()
        context.say(str(row))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row))
    return dict(json.loads(path.read_text()))


def _compared(how: SetUp) -> dict[str, Any]:
    """One set-up: what ``standard()`` and ``adaptive()`` reach, and the processor time of each."""
    prepare("tuned")
    case = Case.of(how)
    choice, choosing = timed(lambda: case.choose(standard()))
    guess, attacking = timed(lambda: choice.attack(case.task, case.private))
    plain, before = timed(lambda: adaptive(steps=1000)(case.task, case.private))
    twenty = 20 / REPORTED
    return {
        "set-up": how.name,
        "standard dB": round(float(case.scores(guess).mean()), 2),
        "adaptive dB": round(float(case.scores(plain).mean()), 2),
        "settings": choice.tried,
        "choice / adaptive on 20": round(choosing / (before * twenty), 2),
        "all / adaptive on 20": round((choosing + attacking * twenty) / (before * twenty), 2),
        "chosen": repr(choice.attack),
    }


def _row(how: SetUp, context: Context, *, begin: bool = True) -> Row:
    return _kept(context, how.name, "_compared", lambda: _compared(how), begin=begin)


def _of_oracle(how: SetUp, row: Row, context: Context, *, begin: bool = True) -> Row:
    """What the oracle reaches, for which ``adaptive(steps=1000)`` is one more setting.

    Its attack and that of ``standard()`` also meet on as many further records, on which neither was chosen.
    """

    def asked() -> Row:
        both = Case.of(how, 2 * REPORTED)
        attack, best, tried = _oracle(both.part(0, REPORTED), how, context)
        if best < row["adaptive dB"]:
            attack, best = adaptive(steps=1000), row["adaptive dB"]
        later = both.part(REPORTED, 2 * REPORTED)
        ours, theirs = (
            round(float(later.scores(one(later.task, later.private)).mean()), 2)
            for one in (cast("Attack", parse(row["chosen"], "attack")), attack)
        )
        found = {"oracle dB": round(best, 2), "oracle settings": tried + 1, "oracle's": repr(attack)}
        return found | {"standard dB, further records": ours, "oracle's dB, further records": theirs}

    return _kept(context, f"oracle {how.name}", "_oracle", asked, begin=begin)


@check("standard_strength", rows="standard-strength", cost="long")
def strength(context: Context) -> Measurement:
    """16 set-ups, 8 reported updates each: against adaptive(), then an oracle that searches on the reported records.

    ``EVIDENCE_SECONDS`` ends it early: nothing further is begun after so many, and it says how many it measured.
    """
    until = time.monotonic() + float(os.environ.get("EVIDENCE_SECONDS", "inf"))
    rows: dict[SetUp, Row] = {}
    for how in sorted(SET_UPS, key=lambda how: [how.model.startswith(model) for model in COSTLY]):
        if row := _row(how, context, begin=time.monotonic() < until):
            rows[how] = row | _of_oracle(how, row, context, begin=time.monotonic() < until)
    asked = {how: row for how, row in rows.items() if "oracle dB" in row}
    gains = [row["standard dB"] - row["adaptive dB"] for row in rows.values()]
    leads = [row["oracle dB"] - row["standard dB"] for row in asked.values()]
    later = [row["oracle's dB, further records"] - row["standard dB, further records"] for row in asked.values()]
    return Measurement(
        {
            "set-ups measured": Number(len(rows), exactly(len(SET_UPS))),
            "of them with the oracle": Number(len(asked), exactly(len(SET_UPS))),
            "within 0.3 dB of the oracle": Number(sum(lead <= 0.3 for lead in leads), at_least(14)),
            "median lead of the oracle, dB": Number(median(leads) if leads else math.inf),
            "median lead of its attacks on further records, dB": Number(median(later) if later else math.inf),
            "within 0.3 dB of its attacks on further records": Number(sum(lead <= 0.3 for lead in later)),
            "above adaptive(steps=1000)": Number(sum(gain > 0 for gain in gains)),
            "mean gain over adaptive(steps=1000), dB": Number(sum(gains) / len(gains), at_least(2.0)),
            "greatest processor time, of adaptive on 20 records": Number(
                max(row["all / adaptive on 20"] for row in rows.values()), at_most(3.0)
            ),
            "fewest settings of the oracle": Number(
                min((row["oracle settings"] for row in asked.values()), default=0), at_least(60)
            ),
        },
        detail=f"{len(rows)} of {len(SET_UPS)} set-ups measured, {len(asked)} with the oracle; mean PSNR of {REPORTED} "
        f"updates of test records; settings chosen on {REFERENCE} updates of train records; times on 20 records are "
        f"those on {REPORTED} times 20 / {REPORTED}, for an audit attacks in cells of about as many; the oracle "
        "chooses on the reported updates themselves; its attacks then meet those of standard() on further ones, "
        "which shows how much of its lead is luck",
        table=list(rows.values()),
    )


@check("standard_opening", rows="standard-opening", cost="long")
def opening(context: Context) -> Measurement:
    """The four undefended set-ups in which a setting found by hand beat adaptive(steps=1000): without an oracle."""
    rows = [_row(how, context) for how in SET_UPS[:4]]
    gains = [row["standard dB"] - row["adaptive dB"] for row in rows]
    return Measurement(
        {
            "mean gain over adaptive(steps=1000), dB": Number(sum(gains) / len(gains), at_least(2.0)),
            "least gain, dB": Number(min(gains), at_least(0.0)),
        },
        detail=f"mean PSNR of {REPORTED} test records, settings chosen on {REFERENCE} train records",
        table=rows,
    )


@check("standard_choice", rows="standard-choice", cost="long")
def choice_is_cheap(context: Context) -> Measurement:
    """What choosing costs, in processor time of adaptive(steps=1000) on 20 records, on the four opening set-ups."""
    rows = [_row(how, context) for how in SET_UPS[:4]]
    return Measurement(
        {
            "greatest share": Number(max(row["choice / adaptive on 20"] for row in rows), at_most(1.0)),
            "fewest settings": Number(min(row["settings"] for row in rows), at_least(60)),
        },
        detail=f"processor time on one thread, tuned allocator, one process; that of 20 records is that of {REPORTED}, "
        f"times 20 / {REPORTED}: an audit attacks in cells of about as many",
        table=rows,
    )
