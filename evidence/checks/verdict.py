"""The statistics of verdicts: false alarms, uniform p-values where nothing leaks, and one leaking record of ten."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from torch import nn

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, at_most, check
from leakgauge.attacks import inverting_gradients
from leakgauge.audit.judge.single import Nearness, single_p
from leakgauge.audit.judge.statistics import best_of, excess
from leakgauge.audit.plan import Plan, plan
from leakgauge.audit.store import Store
from leakgauge.audit.work import Work
from leakgauge.metrics import clopper_pearson
from leakgauge.training import train

LEVEL = 0.05
AUDITS = 50
"""Of each set-up."""
SETUPS = tuple(product(("fresh", "trained"), ("known", "inferred"), ("flat", "random")))
DROWNED = ("gaussian(std=100.0)", "vmf(kappa=1e-3)", "clip(norm=1.0) | gaussian(std=30.0)")
Scores = npt.NDArray[np.float64]


@cache
def _data() -> lg.data.Dataset:
    return lg.data.load("fashion_mnist_sample")


@cache
def _network(trained: bool, seed: int) -> nn.Module:
    """A small network, as it begins or after 150 steps; five of each."""
    model = lg.models.build("mlp(width=32, depth=1)", _data().domain, seed=seed)
    if trained:
        task = lg.Task(model, _data().domain, lg.Recipe())
        (last,) = train(task, _data().train, steps=150, seed=seed, keep=(150,))
        model.load_state_dict(last.state)
    return model


def _told(study: lg.Study, planned: Plan, adversary: str, arm: str) -> dict[str, Any]:
    """What the cells of one arm say of the one defense: scores by metric, and nearness cell by cell."""
    (defense,) = study.defenses.values()
    cells = planned.of(defense=defense, adversary=study.adversaries[adversary], arm=arm)
    with tempfile.TemporaryDirectory() as folder:
        summaries = [Work(study, Store(Path(folder))).run(cell)[0] for cell in cells]
    scores = {metric: [v for each in summaries for v in each["scores"][metric]] for metric in summaries[0]["scores"]}
    told: dict[str, Any] = {"scores": scores, "nearness": [each.get("nearness") for each in summaries]}
    return told


def _drowned(context: Context, number: int) -> dict[str, float]:
    """The p-value of each test in an audit of updates that say nothing; kept, so that an interrupted check goes on."""
    path = context.scratch / f"{number}.json"
    if not path.exists():
        state, labels, start = SETUPS[number % len(SETUPS)]
        search = "grey" if start == "flat" else "normal"
        study = lg.Study(
            _network(state == "trained", number % 5),
            _data(),
            defenses={"drowned": DROWNED[number % 3]},
            adversaries={
                "search": repr(inverting_gradients(steps=4)).replace("adversary(", f"adversary(start='{search}', "),
                "reader": "analytic()",
            },
            leave_out=["adaptive"],
            threat=lg.Threat(labels=labels),
            updates=8 + number % 13,
            seed=number,
        )
        planned, names = plan(study), study.adversaries
        real, another = ([_told(study, planned, name, arm) for name in names] for arm in ("real", "another"))
        best = [best_of([np.array(told["scores"]["ssim"]) for told in arm]) for arm in (real, another)]
        near = [Nearness.of(told["nearness"]) for told in real]
        p = {"together": excess(*best).p, "single": single_p(near, study.peer_groups.numpy())}
        path.write_text(json.dumps(p))
    read: dict[str, float] = json.loads(path.read_text())
    return read


def _audits(context: Context) -> Iterator[tuple[int, dict[str, float]]]:
    total = AUDITS * len(SETUPS)
    for number in range(total):
        yield number, _drowned(context, number)
        if number % 20 == 19:
            context.say(f"{number + 1} of {total}")


@check("false_alarms", rows="false-alarms", cost="long")
def false_alarms(context: Context) -> Measurement:
    """400 audits of drowned updates at the level 0.05: how often both tests together, and each alone, raise an alarm,
    and whether the p-values of each set-up are uniform (Kolmogorov-Smirnov). Every alarm counts as a verdict above
    `no evidence`, as if all positive controls worked."""
    p: dict[str, dict[int, list[float]]] = {"verdict": {}, "together": {}, "single": {}}
    for number, audit in _audits(context):
        verdict = min(1.0, 2 * min(audit.values()))
        for test, one in {"verdict": verdict, **audit}.items():
            p[test].setdefault(number % len(SETUPS), []).append(one)
    total, numbers = AUDITS * len(SETUPS), dict[str, Number]()
    for test, by in p.items():
        alarms = sum(one <= LEVEL for each in by.values() for one in each)
        low, high = clopper_pearson(alarms, total)
        numbers[f"alarms, {test}"] = Number(alarms / total, interval=(low, high))
        numbers[f"lower end of its interval, {test}"] = Number(low, at_most(LEVEL))
    del p["verdict"]
    table = [_uniform(setup, {test: by[i] for test, by in p.items()}) for i, setup in enumerate(SETUPS)]
    for test in p:
        least = min(row[test] for row in table)
        numbers[f"smallest p of uniformity over 8 set-ups, {test}"] = Number(least, above(0.01))
    return Measurement(
        numbers,
        detail=f"{total} audits: fresh and trained networks, labels known and inferred, flat and random starts, 8 to "
        "20 records, two adversaries, three defenses that leave nothing; other records and noise in each. Below: "
        "Kolmogorov-Smirnov p-values of each test in each set-up",
        table=[{**row, **{test: round(row[test], 3) for test in p}} for row in table],
    )


def _uniform(setup: tuple[str, str, str], p: dict[str, list[float]]) -> dict[str, Any]:
    """Whether p-values are uniform; those of sign flips come in steps of 2⁻ⁿ, far below what 50 of them can tell."""
    network, labels, start = setup
    tests = {test: float(stats.kstest(values, "uniform").pvalue) for test, values in p.items()}
    return {"network": network, "labels": labels, "start": start, **tests}


STRENGTHS = (0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
SEEDS = 20


@check("power_single", rows="power-single", cost="minutes")
def power_single(context: Context) -> Measurement:
    """One leaking record of ten, ``s·x + (1 − s)·noise`` of falling strength s: found at the level 0.05 by the exact
    test, and by the former one, which took scores for normal, on the same reconstructions."""
    found: dict[str, Counter[float]] = {"exact": Counter(), "normal": Counter()}
    tests: dict[str, Callable[..., float]] = {"exact": _exact, "normal": _normal}
    for seed in range(SEEDS):
        for strength, real, another in _planted(seed):
            together = excess(np.array(real["scores"]["ssim"]), np.array(another["scores"]["ssim"])).p
            for name, test in tests.items():
                found[name][strength] += 2 * min(together, test(real, another)) <= LEVEL
        context.say(f"{seed + 1} of {SEEDS}")
    table, total = [], SEEDS * len(STRENGTHS)
    for strength in STRENGTHS:
        exact, normal = (found[name][strength] for name in ("exact", "normal"))
        low, high = clopper_pearson(exact, SEEDS)
        text = f"{exact} of {SEEDS} [{low:.2f}, {high:.2f}]"
        table.append({"strength": strength, "exact": text, "normal scores": f"{normal} of {SEEDS}"})
    gaps = [found["normal"][s] / SEEDS - clopper_pearson(found["exact"][s], SEEDS)[1] for s in STRENGTHS]
    exact, normal = (sum(found[name].values()) for name in ("exact", "normal"))
    return Measurement(
        {
            "found by the exact test": Number(exact / total, interval=clopper_pearson(exact, total)),
            "found by the test on normal scores": Number(normal / total),
            "upper end of the exact, less the former": Number(
                clopper_pearson(exact, total)[1] - normal / total, at_least(0)
            ),
            "former less the upper end of the exact, at the worst strength": Number(max(gaps), at_most(0)),
        },
        detail=f"{SEEDS} audits of ten updates at each of {len(STRENGTHS)} strengths, labels known; the former test is "
        "computed here, on the same scores",
        table=table,
    )


def _planted(seed: int) -> Iterator[tuple[float, dict[str, Any], dict[str, Any]]]:
    """Strength, and what the cells of the update and of the null say."""
    plants = {f"s{s}": f"evidence.planted:Plant(strength={s}, label={seed % 10})" for s in STRENGTHS}
    study = lg.Study(
        _network(False, seed % 5),
        _data(),
        defenses=plants,
        adversaries={"reader": "analytic()"},
        leave_out=["adaptive"],
        threat=lg.Threat(labels="known"),
        updates=10,
        seed=seed,
    )
    cells = plan(study)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(study, Store(Path(folder)))
        for strength, defense in zip(STRENGTHS, study.defenses.values(), strict=True):
            arms = [cells.of(defense=defense, arm=arm) for arm in ("real", "another")]
            real, another = (work.run(cell)[0] for (cell,) in arms)
            groups = study.peer_groups.numpy()
            yield strength, {**real, "groups": groups}, another


def _exact(real: dict[str, Any], another: dict[str, Any]) -> float:
    return single_p([Nearness.of([real["nearness"]])], real["groups"])


def _normal(real: dict[str, Any], another: dict[str, Any]) -> float:
    """The former test: Student's prediction from the scores of unrelated updates, with their spread pooled over the
    records, or their share that goes as far where that is larger; times the number of records."""
    own, null = np.array(real["scores"]["ssim"]), np.array(another["cross"]["ssim"])
    updates, records = null.shape
    gaps: Scores = np.sort((null - null.mean(0)).ravel())
    spread, freedom = np.sqrt((gaps**2).sum() / (records * (updates - 1))), records * (updates - 1)
    beyond = own - null.mean(0)
    t = beyond / (max(spread, 1e-6) * np.sqrt(1 + 1 / updates))
    reached = len(gaps) - np.searchsorted(gaps, beyond, side="left")
    share = np.where(reached > 0, (1 + reached) / (1 + len(gaps)), 0.0)
    return min(1.0, records * float(np.maximum(stats.t.sf(t, freedom), share).min()))
