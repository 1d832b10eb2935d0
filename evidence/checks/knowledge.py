"""What the adversary knows: grants and what they are worth, hidden rates, and every combination of features."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, check, exactly, numbers, within
from leakgauge.attacks import adaptive
from leakgauge.audit import audit
from leakgauge.audit.cells import AttackCell
from leakgauge.audit.plan import plan
from leakgauge.audit.store import Store
from leakgauge.errors import AssumptionWarning
from leakgauge.metrics import Interval, mean_interval, psnr
from leakgauge.papers.bayes.tuned import DEFENSES, Setting
from leakgauge.papers.conventions import MNIST_MEAN, MNIST_STD, normalised, unclipped_psnr
from leakgauge.study import Study, of
from leakgauge.testing import capped_psnr, folded_psnr, hiding_law, image_records, worth_of_grants

ROOT = Path(__file__).resolve().parents[2]


def _stored(context: Context, name: str, compute: Callable[[], Any]) -> Any:
    """Plain JSON values, computed once: an interrupted check goes on where it was."""
    path = context.scratch / f"{name}.json"
    if not path.exists():
        path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


# --- the law of grants


@dataclass(frozen=True)
class Case:
    """One defense under one recipe, as both laws take it."""

    name: str
    text: str
    task: Callable[[], lg.Task] | None = None
    rounds: int = 1

    def options(self) -> dict[str, Any]:
        task = {} if self.task is None else {"task": self.task()}
        return {**task, "rounds": self.rounds}


def _cases() -> Iterator[Case]:
    from tests.test_grants import CHAINS, UNKNOWN_RATE, changing, dropping, rounds_of

    for text in CHAINS:
        yield Case(text, text, rounds=rounds_of(text))
    for steps in (1, 3):
        for text in UNKNOWN_RATE:
            yield Case(f"{text}, change after {steps} steps", text, partial(changing, steps))
    yield Case("dropout", "identity()", dropping)


def _worth(case: Case, records: int, steps: int, confidence: float) -> dict[str, list[float]]:
    score = folded_psnr if case.text.startswith("instahide") else capped_psnr
    gains = worth_of_grants(
        case.text,
        records=image_records(records),
        attack=adaptive(steps=steps),
        confidence=confidence,
        score=score,
        **case.options(),
    )
    return {name: [gain.mean, gain.low, gain.high] for name, gain in gains.items()}


@check("worth_of_grants", rows="law-of-grants", cost="long")
def worth_of_grants_(context: Context) -> Measurement:
    """Every defense with nuisances, alone and before noise, and hidden rates: each nuisance granted and hidden."""
    return _grants(context, list(_cases()), records=12, steps=200)


def _grants(context: Context, cases: list[Case], *, records: int, steps: int) -> Measurement:
    confidence = 1 - 0.05 / 100  # some hundred intervals at once
    table, ends = [], []
    for i, case in enumerate(cases):
        gains = _stored(context, f"grants-{i}", partial(_worth, case, records, steps, confidence))
        for address, (mean, low, high) in gains.items():
            ends.append(high)
            row = {"defense": case.name, "granted": address, "gain": round(mean, 2)}
            table.append({**row, "interval": f"[{low:.2f}, {high:.2f}]"})
        context.say(f"{i + 1} of {len(cases)}, {case.name}: {gains}")
    return Measurement(
        {
            "grants": Number(len(ends), at_least(len(cases))),
            "grants that lower the mean score beyond its interval": Number(sum(e < 0 for e in ends), exactly(0)),
            "defenses and recipes": Number(len(cases)),
        },
        detail=f"mean gain in dB (PSNR, at most 60) over {records} bundled images, adaptive(steps={steps}), a small "
        f"network; intervals at {confidence:.2%}, since there are many",
        table=table,
    )


@check("hidden_is_not_used", rows="law-of-grants", cost="minutes")
def hidden_is_not_used(context: Context) -> Measurement:
    """The hidden value replaced by another draw, or by another rate: is every bit of the reconstruction the same?"""
    return _hiding(list(_cases()))


def _hiding(cases: list[Case]) -> Measurement:
    broken = []
    for case in cases:
        try:
            hiding_law(case.text, records=image_records(7), attack=adaptive(steps=5), **case.options())
        except AssertionError as fault:
            broken.append({"defense": case.name, "what": str(fault).partition("\n")[0]})
    return Measurement(
        {
            "defenses and recipes": Number(len(cases), at_least(1)),
            "that use what is hidden": Number(len(broken), exactly(0)),
        },
        detail="observations that had everything granted and taken out again, after other draws, at a task of 37 "
        "times the hidden rate: bit for bit, in one process",
        table=broken,
    )


# --- every combination


@check("product_of_features", rows="product-of-features", cost="long")
def product_of_features(context: Context) -> Measurement:
    """{part alone, in a chain} x {granted, hidden} x {recipes} x {image, table} x {labels} x {rounds}: all of them."""
    from tests.test_product_of_features import PRODUCT

    return _product(context, PRODUCT)


def _product(context: Context, combinations: list[Any], chunk: int = 24) -> Measurement:
    from tests.test_product_of_features import audited

    def some(start: int) -> list[list[str]]:
        outcomes = []
        for one in combinations[start : start + chunk]:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", AssumptionWarning)
                    outcomes.append([audited(*one), ""])
            except AssertionError as fault:
                outcomes.append(["loses a grant, or has a fault", f"{one}: {str(fault)[:200]}"])
            except Exception as fault:  # counted: a crash is what the check looks for
                outcomes.append(["crashes", f"{one}: {type(fault).__name__}: {str(fault)[:200]}"])
        return outcomes

    counts: Counter[str] = Counter()
    wrong = []
    for start in range(0, len(combinations), chunk):
        for word, what in _stored(context, f"product-{start}", partial(some, start)):
            counts[word] += 1
            wrong += [{"outcome": word, "combination": what}] if what else []
        context.say(f"{start + chunk} of {len(combinations)}: {dict(counts)}")
    return Measurement(
        {
            "combinations": Number(len(combinations), at_least(1)),
            "audited": Number(counts["audited"], at_least(1)),
            "refused by check with a sentence": Number(counts["refused"]),
            "lost a grant, or had a fault": Number(counts["loses a grant, or has a fault"], exactly(0)),
            "crashed": Number(counts["crashes"], exactly(0)),
        },
        detail="attacks of two steps: the seams are tested, not scores",
        table=wrong[:50],
    )


# --- a hidden learning rate

NOISES = {"Gaussian": "gaussian(std=0.0001)", "Laplace": "laplace(scale=0.0001)"}


@check("hidden_rate", rows="hidden-rate", cost="long")
def hidden_rate(context: Context) -> Measurement:
    """Bayes CNN, 8 bundled images, a shared change under small noise: the rate known and unknown; verdicts, too.

    Four starts each, the likeliest counts: from one, either arm may end in a minimum 10 dB below the other's.
    """
    return _hidden_rate(context, model="bayes_cnn", records=8, steps=300, restarts=4, audit_steps=80)


def _hidden_rate(
    context: Context, *, model: str, records: int, steps: int, restarts: int, audit_steps: int
) -> Measurement:
    table: list[dict[str, Any]] = []
    figures: dict[str, Number] = {}
    for noise, text in NOISES.items():
        for local in (1, 5):
            where = f"{noise}, {local} local step{'s' if local > 1 else ''}"
            arms = {}
            for rate in ("known", "unknown"):
                raw = {
                    "leave_out": ["generic"],
                    "task": {
                        "model": model,
                        "records": records,
                        "recipe": {"shares": "change", "local_steps": local},
                    },
                    "defenses": {"noisy": text},
                    "adversaries": {"adaptive": f"adaptive(steps={audit_steps})"},
                    "threat": {"learning_rate": rate},
                }
                name = f"{noise}-{local}-{rate}"
                arms[rate] = _stored(context, f"{name}-verdict", partial(_audited, raw))
                arms[rate]["psnr"] = _stored(context, f"{name}-psnr", partial(_attacked, raw, steps, restarts))
                context.say(f"{where}, {rate}: {arms[rate]}")
            known, unknown = (torch.tensor(arms[rate]["psnr"]) for rate in ("known", "unknown"))
            gap = mean_interval(unknown - known)
            figures[f"{where}: unknown less known"] = Number(gap.mean, at_least(-1.0), (gap.low, gap.high))
            table.append(
                {
                    "noise, steps": where,
                    "PSNR known": round(float(known.mean()), 2),
                    "PSNR unknown": round(float(unknown.mean()), 2),
                    "verdict known": arms["known"]["word"],
                    "verdict unknown": arms["unknown"]["word"],
                    "the hidden rate is": arms["unknown"]["treatment"],
                }
            )
    other = sum(row["verdict known"] != row["verdict unknown"] for row in table)
    return Measurement(
        {**figures, "verdicts that differ": Number(other, exactly(0))},
        detail=f"mean PSNR in dB of {records} images, adaptive(steps={steps}, restarts={restarts}); "
        f"verdicts after {audit_steps} steps from one start",
        table=table,
    )


def _audited(raw: dict[str, Any]) -> dict[str, Any]:
    """The verdict of an audit, and what was done about the rate."""
    (defense,) = audit(Study.of(of(raw)), redact=True).defenses.values()
    (adversary,) = defense.adversaries
    rates = [one.sentence for one in adversary.treatments if one.address == "recipe.learning_rate"]
    return {"word": defense.verdict, "treatment": rates[0]}


def _attacked(raw: dict[str, Any], steps: int, restarts: int) -> list[float]:
    """PSNR of the study's records by a longer attack than its audit's."""
    study = Study.of(of(raw))
    task = study.under(study.defenses["noisy"])
    reconstruction = adaptive(steps=steps, restarts=restarts)(
        task, lg.observe(task, study.records, threat=study.threat)
    )
    return psnr(reconstruction.inputs[:, 0], study.records.inputs).tolist()


# --- Table 2 of the Bayes paper through a spec

TUNED = {"granted": (0.6324555320336759, 0.5, 1.0), "hidden": (0.31622776601683794, 0.5, 0.98)}
"""What the rows of Table 2 tuned, in normalised space: weight of the prior, learning rate, its decay per step."""
MASK = "random_prune.mask"
SPEC = """
leave_out = ["generic", "adaptive"]
[task]
model = "bayes_cnn"
data = "{data}"
records = {records}
normalise = {{mean = [{mean}], std = [{std}]}}
[defenses]
pruned = "{defense}"
[adversaries]
granted = "{granted}"
hidden = "{hidden}"
[threat]
grants = ["{mask}"]
"""


def _in_images(weight: float, rate: float, decay: float, steps: int) -> str:
    """The same adversary in the space of images, ``x = m + s z``: the prior is worth 1/s² as much, a step is s long."""
    prior = f"{weight / MNIST_STD**2:.6g}*tv(kind='quadratic', periodic=True, reduce='sum')"
    solver = f"adam(lr={rate * MNIST_STD:.6g}, steps={steps}, schedule=exponential(rate={decay}), box=False)"
    return f"adversary(likelihood=density(), prior={prior}, solver={solver})"


@check(
    "table_2_spec",
    rows="table-2-spec",
    cost="long",
    uses=("docs/evidence/table_2_mask_granted.json", "docs/evidence/table_2_mask_not_granted.json"),
)
def table_2_spec(context: Context) -> Measurement:
    """Pruning and noise from one TOML file: the mask granted and, by ablation, hidden; beside Table 2's own way."""
    return _table_2(context, data="mnist", records=20, steps=200)


def _table_2(context: Context, *, data: str, records: int, steps: int) -> Measurement:
    texts = {name: _in_images(*tuned, steps) for name, tuned in TUNED.items()}
    spec = SPEC.format(
        data=data,
        records=records,
        mean=MNIST_MEAN,
        std=MNIST_STD,
        defense=DEFENSES["prune + gaussian"],
        mask=MASK,
        **texts,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table-2.toml"
        path.write_text(spec)
        study = Study.load(path)
        audit(study, Path(folder) / "run", ablate=True)
        audited = {
            name: mean_interval(_scores(study, Store(Path(folder) / "run"), name, without))
            for name, without in (("granted", None), ("hidden", MASK))
        }
    means: dict[str, Interval] = {}
    figures: dict[str, Number] = {}
    for name, (weight, rate, decay) in TUNED.items():
        adversary = Setting("bayes", weight, rate, decay, steps).adversary()
        private = normalised(study.records)
        task = lg.Task(study.module, study.task.domain).protect(DEFENSES["prune + gaussian"])
        grants = frozenset({MASK} if name == "granted" else ())
        inputs = adversary(task, lg.observe(task, private, threat=lg.Threat(grants=grants), seed=2)).inputs[:, 0]
        context.say(f"{name}: {audited[name]}")
        means[f"mask {name}, by the spec"] = audited[name]
        means[f"mask {name}, Table 2's own way"] = mean_interval(
            psnr(inputs * MNIST_STD + MNIST_MEAN, study.records.inputs)
        )
        own, spec_way = means[f"mask {name}, Table 2's own way"], audited[name]
        apart = max(0.0, own.low - spec_way.high, spec_way.low - own.high)
        figures[f"mask {name}: distance of the two intervals"] = Number(apart, exactly(0))
        unclipped, row = float(unclipped_psnr(inputs, private.inputs).mean()), _row(name)
        bar = within((row[2] - row[1]) / 2, (row[1] + row[2]) / 2) if data == "mnist" else None
        figures[f"mask {name}: unclipped, within the interval of the row of Table 2"] = Number(unclipped, bar)
    return Measurement(
        {
            **numbers({n: m.mean for n, m in means.items()}, {n: (m.low, m.high) for n, m in means.items()}),
            **figures,
        },
        detail=f"mean PSNR in dB of {records} images of {data}, clipped as audits score; Table 2's convention does not "
        "clip, so its own attack is scored in both ways. Settings as the rows of Table 2 tuned them",
    )


def _scores(study: Study, store: Store, adversary: str, without: str | None) -> Tensor:
    """PSNR of the real updates by one adversary, with the grant or without it."""
    cells = [cell for cell in plan(study, ablate=True).cells if isinstance(cell, AttackCell) and cell.arm == "real"]
    chosen = [
        cell
        for cell in cells
        if cell.defense == study.defenses["pruned"]
        and cell.settings == study.adversaries[adversary]
        and cell.without == without
    ]
    return torch.tensor([score for cell in chosen for score in store.result(cell.id)["scores"]["psnr"]])


def _row(name: str) -> tuple[float, float, float]:
    """The stored figure of Table 2, with its interval."""
    file, key = {
        "granted": ("table_2_mask_granted", "mask granted"),
        "hidden": ("table_2_mask_not_granted", "mean PSNR"),
    }[name]
    stored = json.loads((ROOT / "docs" / "evidence" / f"{file}.json").read_text())["numbers"][key]
    return stored["value"], *stored["interval"]
