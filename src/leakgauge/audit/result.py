"""The result of an audit: one JSON value, built from finished cells alone, the same whatever happened on the way.

Schema 1::

    schema, spec, environment, scope
    metric                      the score that verdicts are about: ssim, or psnr where images are too small for it
    thresholds                  {metric, recognisable, exact, significance}
    replay                      {status, sentence}: does our client replay the user's?
    preflight                   [{name, severity, sentence}]
    control                     the undefended update: {mean, low, high, p, n}, the best adversary's excess
    checkpoints[]               {step, accuracy, defenses[]}
      defenses[]                {name, expression, attack, bound, adversaries[], records[], faults[]}
        attack                  {verdict, why, p, excess {mean, low, high, p, n}, rate {...}}
        bound                   null, or {ceiling, why, assumptions[]}
        adversaries[]           {name, expression, scores: arm → metric → [per record], labels}
        records[]               most exposed first: {record, label, score, psnr, null, exposure, adversary,
                                 cell, row, null_cell, null_row}
    ledger[]                    {number, assumes}
    faults                      cell → sentence
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from leakgauge import parse
from leakgauge.audit.doctor import Diagnosis
from leakgauge.audit.plan import Cell, Plan
from leakgauge.audit.preflight import preflight
from leakgauge.audit.prepare import Prepared
from leakgauge.audit.run import Outcome, environment
from leakgauge.audit.spec import Spec
from leakgauge.audit.statistics import Scores, exposure
from leakgauge.audit.store import Store
from leakgauge.audit.verdict import NULLS, Arms, Verdict, incomplete, invalid, verdicts

SCOPE = "Reconstruction of records from updates was tested; membership and property inference are not tested."
ARMS = ("real", *NULLS)


def result(
    spec: Spec, prepared: Prepared, outcome: Outcome, store: Store, diagnosis: Diagnosis | None = None
) -> dict[str, Any]:
    """Everything an audit says, as plain JSON."""
    found = _Found(spec, outcome.plan, store)
    metric = "ssim" if min(prepared.task.domain.shape[-2:]) >= 11 and spec.verdict.recognisable.ssim else "psnr"
    control = found.arms("identity()")
    whole = {name: found.arms(text) for name, text in spec.defenses.items()}
    ready = {name: arms for name, arms in whole.items() if arms is not None}
    said = verdicts(ready, control, spec.verdict, metric) if control is not None else {}
    if diagnosis is not None and diagnosis.status != "replays":
        said = {name: invalid(name, diagnosis.sentence) for name in spec.defenses}
    labels = prepared.records.labels.tolist()
    return {
        "schema": 1,
        "spec": spec.model_dump(mode="json"),
        "environment": environment(),
        "scope": SCOPE,
        "metric": metric,
        "thresholds": {
            "metric": metric,
            "recognisable": getattr(spec.verdict.recognisable, metric),
            "exact": spec.verdict.exact,
            "significance": spec.verdict.significance,
        },
        "replay": _replay(diagnosis),
        "preflight": [leak.as_json() for leak in preflight(prepared.task)],
        "control": _control(control, metric),
        "checkpoints": [
            {
                "step": 0,
                "accuracy": None,
                "defenses": [
                    found.defense(name, text, said.get(name) or incomplete(name), ready.get(name), metric, labels)
                    for name, text in spec.defenses.items()
                ],
            }
        ],
        "ledger": ledger(spec, prepared, diagnosis),
        "faults": dict(sorted(outcome.faults.items())),
    }


class _Found:
    """Finished cells, by what they are about."""

    def __init__(self, spec: Spec, plan: Plan, store: Store) -> None:
        self.spec, self.plan, self.store = spec, plan, store
        self.by: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in plan.cells:
            key = (cell.params["defense"], cell.params["adversary"], cell.params["arm"])
            self.by.setdefault(key, []).append(cell)

    def cells(self, defense: str, adversary: str, arm: str) -> list[Cell]:
        return self.by[repr(parse(defense)), repr(parse(adversary)), arm]

    def scores(self, defense: str, adversary: str, arm: str) -> dict[str, Scores] | None:
        """Metric → per record, or None where a cell is missing."""
        cells = self.cells(defense, adversary, arm)
        if not all(self.store.done(cell.id) for cell in cells):
            return None
        made = [self.store.result(cell.id)["scores"] for cell in cells]
        return {metric: np.concatenate([np.asarray(m[metric]) for m in made]) for metric in made[0]}

    def arms(self, defense: str) -> Arms | None:
        got = {
            arm: {name: self.scores(defense, text, arm) for name, text in self.spec.adversaries.items()} for arm in ARMS
        }
        if any(scores is None for by in got.values() for scores in by.values()):
            return None
        return Arms(got)  # type: ignore[arg-type]

    def place(self, defense: str, adversary: str, arm: str, record: int) -> tuple[str, int]:
        """The cell that holds a record's reconstruction, and its row there."""
        for cell in self.cells(defense, adversary, arm):
            start, stop = (edge * self.spec.task.recipe.batch for edge in cell.params["records"])
            if start <= record < stop:
                return cell.id, record - start
        raise AssertionError(f"record {record} is in no cell")

    def defense(
        self, name: str, text: str, verdict: Verdict, arms: Arms | None, metric: str, labels: list[int]
    ) -> dict[str, Any]:
        return {
            "name": name,
            "expression": repr(parse(text)),
            "attack": {
                "verdict": verdict.attack,
                "why": verdict.why,
                "p": verdict.p,
                "excess": asdict(verdict.excess) if verdict.excess else None,
                "rate": asdict(verdict.rate) if verdict.rate else None,
            },
            "bound": None,
            "adversaries": []
            if arms is None
            else [self.adversary(a, t, arms) for a, t in self.spec.adversaries.items()],
            "records": [] if arms is None else self.records(text, arms, metric, labels),
            "faults": [] if arms is not None else ["a planned cell failed"],
        }

    def adversary(self, name: str, text: str, arms: Arms) -> dict[str, Any]:
        scores = {arm: {m: v.tolist() for m, v in by[name].items()} for arm, by in arms.scores.items()}
        return {"name": name, "expression": repr(parse(text)), "scores": scores}

    def records(self, defense: str, arms: Arms, metric: str, labels: list[int]) -> list[dict[str, Any]]:
        """Every record with its best reconstruction and the best null, most exposed first."""
        real, null = arms.best("real", metric), arms.null(metric)
        seen = exposure(real, np.concatenate([arms.best(arm, metric) for arm in NULLS]))
        psnr = arms.best("real", "psnr")
        rows = []
        for i in range(len(real)):
            winner = _winner({a: by[metric][i] for a, by in arms.scores["real"].items()})
            arm = _winner({arm: arms.best(arm, metric)[i] for arm in NULLS})
            loser = _winner({a: by[metric][i] for a, by in arms.scores[arm].items()})
            cell, row = self.place(defense, self.spec.adversaries[winner], "real", i)
            null_cell, null_row = self.place(defense, self.spec.adversaries[loser], arm, i)
            rows.append(
                {
                    "record": i,
                    "label": labels[i],
                    "score": float(real[i]),
                    "psnr": float(psnr[i]),
                    "null": float(null[i]),
                    "exposure": float(seen[i]),
                    "adversary": winner,
                    "cell": cell,
                    "row": row,
                    "null_cell": null_cell,
                    "null_row": null_row,
                }
            )
        return sorted(rows, key=lambda r: (-r["score"], r["record"]))


def _winner(scores: Mapping[str, float]) -> str:
    return max(scores, key=lambda name: (scores[name], name))


def _control(arms: Arms | None, metric: str) -> dict[str, Any] | None:
    if arms is None:
        return None
    from leakgauge.audit.statistics import excess

    return asdict(excess(arms.best("real", metric), arms.null(metric)))


def _replay(diagnosis: Diagnosis | None) -> dict[str, str]:
    if diagnosis is None:
        return {"status": "not checked", "sentence": "The set-up was not checked against your client."}
    return {"status": diagnosis.status, "sentence": diagnosis.sentence}


def ledger(spec: Spec, prepared: Prepared, diagnosis: Diagnosis | None) -> list[dict[str, str]]:
    """What every number assumes."""
    granted = ", ".join(spec.threat.grants) or "nothing else"
    return [
        {"number": "every score", "assumes": f"labels {spec.threat.labels}; the adversary is granted {granted}"},
        {"number": "every score", "assumes": "the adversary knows model, weights, recipe and defense (Kerckhoffs)"},
        {"number": "every score", "assumes": _replay(diagnosis)["sentence"]},
        {"number": "p-values", "assumes": "real and null scores of a record are exchangeable when nothing leaks"},
        {
            "number": "all",
            "assumes": f"{len(prepared.records)} records of {spec.task.data}, disjoint from "
            f"{len(prepared.reference)} reference records (manifest.json)",
        },
    ]
