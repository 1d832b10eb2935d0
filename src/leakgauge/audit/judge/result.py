"""The result of an audit: one JSON value, built from finished cells alone, the same whatever happened on the way.

Schema 1::

    schema, spec, environment, scope
    notes                       [sentence]: adversaries that were added, or left out on request
    metric                      the score that verdicts are about: ssim, or psnr where images are too small for it
    thresholds                  {metric, recognisable, exact, significance}
    replay                      {status, sentence}: does our client replay the user's?
    preflight                   [{name, severity, sentence}]
    checkpoints[]               {step, accuracy, accuracies[], defenses[]}
      defenses[]                {name, expression, attack, encoding, control, bound, accuracy, accuracies[],
                                 adversaries[], records[], ablation[], faults[]}
        attack                  {verdict, why, p, excess, nulls, single, recognised, rate}
                                 p: corrected; excess: {mean, low, high, p, n} over another record's update;
                                 nulls: the same over each null; single: p-value of the most exposed record by itself
        encoding                scores against what the client trained on, under an input stage, else null: {called,
                                 lone, recognised, records, mean, best, p, excess}
        control                 {mean, low, high, p, n, recognised, adversaries: name → {p, recognised, works}}: the
                                 undefended update of these records
        bound                   {ceiling, why, assumptions[], unit, rounds, log_capacity, epsilon, corridor, enough};
                                 a ceiling of null is no proven bound; enough: {expression, ceiling}, the least noise
                                 of this kind that proves a ceiling of one half; log_capacity and epsilon: {value,
                                 sentence}; corridor: {success, low, high, risk, state, sentence} of one adversary
        adversaries[]           {name, expression, scores: arm → metric → [per record], labels: right ones in the
                                 real arm, mean: its mean score there, encoding: that against encodings, evaluations,
                                 assumed: [sentence]}
        records[]               most exposed first: {record, label, score, psnr, null, prior, exposure, adversary,
                                 cell, row, null_cell, null_row, encoding: {score, null, adversary, cell}}
        ablation[]              {grant, mean, low, high, n}: what a grant was worth, in the metric
    ledger[]                    {number, assumes}
    faults                      cell → sentence
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from leakgauge.audit.cells import blind, scores
from leakgauge.audit.judge.ceiling import ceilings
from leakgauge.audit.judge.ledger import assumed, ledger, replayed
from leakgauge.audit.judge.statistics import Scores, excess
from leakgauge.audit.judge.verdict import NULLS, Arms, Encodings, Verdict, incomplete, invalid, verdicts
from leakgauge.audit.plan import ARMS, IDENTITY, Cell, controls, seeds, shown, threats, trainings
from leakgauge.audit.prepare import Prepared
from leakgauge.audit.run import Outcome, environment
from leakgauge.audit.store import Store
from leakgauge.defenses import protection
from leakgauge.doctor.diagnosis import Diagnosis
from leakgauge.preflight import preflight
from leakgauge.study.checks import SMALLEST_SSIM
from leakgauge.study.spec import Spec
from leakgauge.training import accuracy

SCOPE = "Reconstruction of records from updates was tested; membership and property inference are not tested."
Key = tuple[int, str]
"""A step of training and the name of a defense."""


def result(
    spec: Spec, prepared: Prepared, outcome: Outcome, store: Store, diagnosis: Diagnosis | None = None
) -> dict[str, Any]:
    """Everything an audit says, as plain JSON."""
    found = _Found(spec, prepared, outcome, store)
    metric = found.metric
    steps = list(dict.fromkeys(spec.checkpoints.train_steps))
    said = found.verdicts(steps)
    if diagnosis is not None and diagnosis.status != "replays":
        said = {key: invalid(key[1], diagnosis.sentence) for key in said}
    checkpoints = [
        {
            "step": step,
            "accuracy": found.accuracy(step, IDENTITY),
            "accuracies": found.accuracies(step, IDENTITY, seeds(spec)),
            "defenses": [found.defense(step, name, said[step, name]) for name in spec.defenses],
        }
        for step in steps
    ]
    return {
        "schema": 1,
        "spec": spec.model_dump(mode="json"),
        "environment": environment(),
        "scope": SCOPE,
        "notes": spec.notes(),
        "metric": metric,
        "thresholds": {
            "metric": metric,
            "recognisable": getattr(spec.verdict.recognisable, metric),
            "exact": spec.verdict.exact,
            "significance": spec.verdict.significance,
        },
        "replay": replayed(diagnosis),
        "preflight": [leak.as_json() for leak in preflight(prepared.task)],
        "checkpoints": checkpoints,
        "ledger": [*ledger(spec, prepared, diagnosis), *assumed(checkpoints)],
        "faults": dict(sorted(outcome.faults.items())),
    }


class _Found:
    """Finished cells, by what they are about."""

    def __init__(self, spec: Spec, prepared: Prepared, outcome: Outcome, store: Store) -> None:
        self.spec, self.prepared, self.plan, self.store = spec, prepared, outcome.plan, store
        self.faults = outcome.faults
        big = min(prepared.task.domain.shape[-2:]) >= SMALLEST_SSIM
        self.metric = "ssim" if big and spec.verdict.recognisable.ssim else "psnr"
        self.prior = {m: np.asarray(v) for m, v in scores(prepared.guess(), prepared.records.inputs).items()}
        self.alike = _alike(prepared)
        self.ceilings = ceilings(spec, prepared, self.metric)
        self.kept: dict[tuple[int, str, str], Arms | None] = {}
        self.early: dict[tuple[int, str, str], Encodings] = {}

    # --- scores

    def cells(self, step: int, defense: str, trained: str, adversary: str, arm: str, without: str | None) -> list[Cell]:
        """The cells of an arm, in the order of the records."""
        settings = [shown(text, "attack") for text in self.spec.settings(adversary)]
        return self.plan.of(
            step=step,
            defense=shown(defense),
            trained=shown(trained) if step else None,
            adversary=settings[0] if len(settings) == 1 else settings,
            arm=arm,
            without=without,
        )

    def done(self, cells: list[Cell]) -> list[dict[str, Any]] | None:
        """What the cells found, or None where one is missing."""
        return [self.store.result(c.id) for c in cells] if all(self.store.done(c.id) for c in cells) else None

    def arms(self, step: int, defense: str, trained: str) -> Arms | None:
        key = (step, defense, trained)
        if key not in self.kept:
            self.kept[key] = self._arms(*key)
        return self.kept[key]

    def _arms(self, step: int, defense: str, trained: str) -> Arms | None:
        by: dict[str, dict[str, dict[str, Scores]]] = {arm: {} for arm in ARMS}
        cross: dict[str, dict[str, Scores]] = {}
        for arm in ARMS:
            for name in self.spec.adversaries:
                made = self.done(self.cells(step, defense, trained, name, arm, None))
                if made is None:
                    return None
                by[arm][name] = {m: np.concatenate([f["scores"][m] for f in made]) for m in made[0]["scores"]}
                if arm == "another":
                    cross[name] = {m: np.concatenate([f["cross"][m] for f in made]) for m in made[0]["cross"]}
        return Arms(by, cross, self.alike, self.prior, self.spec.task.recipe.batch)

    def encodings(self, step: int, defense: str, trained: str) -> Encodings | None:
        """The scores of finished cells against what the client trained on; None where that is the records."""
        key, parts = (step, defense, trained), protection(defense).input
        if not parts or self.arms(*key) is None:
            return None
        if key not in self.early:
            by: dict[str, dict[str, dict[str, Scores]]] = {arm: {} for arm in ARMS}
            for arm, name in product(ARMS, self.spec.adversaries):
                made = self.done(self.cells(*key, name, arm, None)) or []
                by[arm][name] = {m: np.concatenate([f["encoding"][m] for f in made]) for m in made[0]["encoding"]}
            task, mine = self.prepared.task.protect(defense), self.prepared.records
            guessed = blind(task, mine, self.prepared.guess(), self.spec.seed)
            prior = {metric: np.asarray(values) for metric, values in guessed.items()}
            arms = Arms(by, {}, self.alike, prior, self.spec.task.recipe.batch)
            self.early[key] = Encodings(arms, all(part.lone for part in parts))
        return self.early[key]

    def verdicts(self, steps: list[int]) -> dict[Key, Verdict]:
        """One verdict per checkpoint and defense; p-values are corrected for the number of them all."""
        trained, control = trainings(self.spec), controls(self.spec)
        keys = {(step, name): text for step in steps for name, text in self.spec.defenses.items()}
        arms = {key: self.arms(key[0], text, trained[text]) for key, text in keys.items()}
        bare = {key: self.arms(key[0], IDENTITY, control[text]) for key, text in keys.items()}
        ready = {k: a for k, a in arms.items() if a is not None and bare[k] is not None}
        said = verdicts(
            {str(k): a for k, a in ready.items()},
            {str(k): bare[k] for k in ready},  # type: ignore[misc]
            self.spec.verdict,
            self.metric,
            {str(k): e for k in ready if (e := self.encodings(k[0], keys[k], trained[keys[k]])) is not None},
        )
        return {
            key: said.get(str(key)) or incomplete(key[1], self.reasons(key[0], text)[0]) for key, text in keys.items()
        }

    # --- one defense

    @cached_property
    def _given(self) -> float:
        return round(accuracy(self.prepared.task, self.prepared.test), 6)

    def accuracy(self, step: int, trained: str) -> float | None:
        """Test accuracy of the model that was trained with a defense; at step 0 of the model as given."""
        found = self.accuracies(step, trained, seeds(self.spec)[:1])
        return found[0] if found else None

    def accuracies(self, step: int, trained: str, wanted: list[int]) -> list[float]:
        """The same of several seeds; of those trainings that ended."""
        if not step:
            return [self._given]
        given = {"defense": shown(trained), "train_steps": self.spec.checkpoints.train_steps}
        cells = [cell for seed in wanted for cell in self.plan.of(**given, seed=seed)]
        done = [self.store.result(cell.id) for cell in cells if self.store.done(cell.id)]
        return [round(float(made["accuracy"][str(step)]), 6) for made in done]

    def defense(self, step: int, name: str, verdict: Verdict) -> dict[str, Any]:
        text = self.spec.defenses[name]
        trained = trainings(self.spec)[text]
        arms = self.arms(step, text, trained)
        said: dict[str, Any] = {
            "name": name,
            "expression": shown(text),
            "attack": _attack(verdict),
            "encoding": _encoding(verdict),
            "control": _control(verdict),
            "bound": self.ceilings.of(text, arms.scores["real"] if arms else None),
            "accuracy": self.accuracy(step, trained),
            "accuracies": self.accuracies(step, trained, seeds(self.spec)),
            "adversaries": [],
            "records": [],
            "ablation": [],
            "faults": [] if arms is not None or verdict.attack == "invalid" else self.reasons(step, text),
        }
        if arms is not None:
            said["adversaries"] = [self.adversary(step, text, trained, a, arms) for a in self.spec.adversaries]
            said["records"] = self.records(step, text, trained, arms)
            said["ablation"] = self.ablation(step, text, trained, arms)
        return said

    def reasons(self, step: int, defense: str) -> list[str]:
        """Why a defense has no verdict, each reason once."""
        cells = self.plan.of(step=step, defense=shown(defense))
        return list(dict.fromkeys(self.faults[c.id] for c in cells if c.id in self.faults)) or [
            "one of the positive control"
        ]

    def adversary(self, step: int, defense: str, trained: str, name: str, arms: Arms) -> dict[str, Any]:
        made = self.done(self.cells(step, defense, trained, name, "real", None)) or []
        early = self.encodings(step, defense, trained)
        return {
            "name": name,
            "expression": made[0]["adversary"],
            "scores": {arm: {m: v.tolist() for m, v in by[name].items()} for arm, by in arms.scores.items()},
            "labels": sum(sum(f["labels"]) for f in made),
            "mean": float(arms.scores["real"][name][self.metric].mean()),
            "encoding": float(early.arms.scores["real"][name][self.metric].mean()) if early else None,
            "evaluations": sum(f["evaluations"] for f in made),
            "assumed": sorted({said for f in made for said in f["assumed"]}),
        }

    def records(self, step: int, defense: str, trained: str, arms: Arms) -> list[dict[str, Any]]:
        """Every record with its best reconstruction and the best null, most exposed first."""
        metric, labels = self.metric, self.prepared.records.labels.tolist()
        real, psnr, exposure = arms.best("real", metric), arms.best("real", "psnr"), arms.exposure(metric)
        null = {arm: arms.best(arm, metric) for arm in NULLS if arm != "prior"}
        early = self.encodings(step, defense, trained)
        rows = []
        for i in range(len(real)):
            winner = _winner({a: by[metric][i] for a, by in arms.scores["real"].items()})
            arm = _winner({arm: values[i] for arm, values in null.items()})
            loser = _winner({a: by[metric][i] for a, by in arms.scores[arm].items()})
            cell, row = self.place(step, defense, trained, winner, "real", i)
            null_cell, null_row = self.place(step, defense, trained, loser, arm, i)
            rows.append(
                {
                    "record": i,
                    "label": labels[i],
                    "score": float(real[i]),
                    "psnr": float(psnr[i]),
                    "null": float(null[arm][i]),
                    "prior": float(self.prior[metric][i]),
                    "exposure": float(exposure[i]),
                    "adversary": winner,
                    "cell": cell,
                    "row": row,
                    "null_cell": null_cell,
                    "null_row": null_row,
                    "encoding": early and self.encoding(step, defense, trained, early.arms, i),
                }
            )
        return sorted(rows, key=lambda r: (r["exposure"], -r["score"], r["record"]))

    def encoding(self, step: int, defense: str, trained: str, arms: Arms, record: int) -> dict[str, Any]:
        """The best score against one record's encoding, and the cell that holds it, at the record's row."""
        by = {a: scores[self.metric][record] for a, scores in arms.scores["real"].items()}
        winner = _winner(by)
        cell, _ = self.place(step, defense, trained, winner, "real", record)
        null = float(arms.null(self.metric)[record])
        return {"score": float(by[winner]), "null": null, "adversary": winner, "cell": cell}

    def place(self, step: int, defense: str, trained: str, adversary: str, arm: str, record: int) -> tuple[str, int]:
        """The cell that holds a record's reconstruction, and its row there."""
        for cell in self.cells(step, defense, trained, adversary, arm, None):
            start, stop = (edge * self.spec.task.recipe.batch for edge in cell.params["records"])
            if start <= record < stop:
                return cell.id, record - start
        raise AssertionError(f"record {record} is in no cell")

    def ablation(self, step: int, defense: str, trained: str, arms: Arms) -> list[dict[str, Any]]:
        """What each grant was worth: the best score with it, less the best without, per update."""
        worth = []
        for grant in threats(self.spec):
            without = []
            for name in self.spec.adversaries:
                cells = self.cells(step, defense, trained, name, "real", grant)
                made = self.done(cells) if cells else None
                if made is None:
                    break
                without.append(np.concatenate([f["scores"][self.metric] for f in made]))
            else:
                best = np.maximum.reduce(without)
                size = self.spec.task.recipe.batch
                real, less = (s.reshape(-1, size).mean(1) for s in (arms.best("real", self.metric), best))
                gain = asdict(excess(real, less))
                worth.append({"grant": grant, **{k: gain[k] for k in ("mean", "low", "high", "n")}})
        return worth


def redacted(made: dict[str, Any]) -> dict[str, Any]:
    """The same without the labels of private records."""
    for checkpoint in made["checkpoints"]:
        for defense in checkpoint["defenses"]:
            for row in defense["records"]:
                row["label"] = None
    return made


def _alike(prepared: Prepared) -> Any:
    """``[J, n]``: whether the update that stood in for j came with the grants of record i.

    Where labels are granted, an update of another class is no null for this one. Batches are told apart by their
    sorted labels; where hardly any two agree, every update counts, for else there is nothing to compare with.
    """
    size = prepared.task.recipe.batch
    labels = prepared.records.labels.unflatten(0, (-1, size)).sort(1).values
    if not prepared.labels_granted:
        alike = np.ones((len(labels), len(labels)), dtype=bool)
    else:
        alike = (labels[:, None] == labels[None]).all(-1).numpy()
        if alike.sum() < 2 * len(labels):
            alike = np.ones_like(alike)
    return alike.repeat(size, 1)


def _attack(verdict: Verdict) -> dict[str, Any]:
    found = verdict.finding
    return {
        "verdict": verdict.attack,
        "why": verdict.why,
        "p": verdict.p,
        "excess": asdict(found.gains["another"]) if found else None,
        "nulls": {name: asdict(gain) for name, gain in found.gains.items()} if found else {},
        "single": found.single if found else None,
        "recognised": found.recognised if found else None,
        "rate": asdict(verdict.rate) if verdict.rate else None,
    }


def _encoding(verdict: Verdict) -> dict[str, Any] | None:
    if verdict.seen is None:
        return None
    said = asdict(verdict.seen)
    return {"excess": said.pop("gain"), **said}


def _control(verdict: Verdict) -> dict[str, Any] | None:
    if verdict.control is None:
        return None
    together = verdict.control.together
    each = {
        name: {"p": found.p, "recognised": found.recognised, "works": name in verdict.control.works}
        for name, found in verdict.control.each.items()
    }
    gain = asdict(together.gains["another"])
    return {**gain, "p": together.p, "recognised": together.recognised, "adversaries": each}


def _winner(by: Mapping[str, float]) -> str:
    return max(by, key=lambda name: (by[name], name))
