"""The result of an audit, from finished cells alone: the same whatever happened on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leakgauge.audit.environment import environment
from leakgauge.audit.judge import rows
from leakgauge.audit.judge.arms import Arms, Encodings
from leakgauge.audit.judge.ceiling import ceilings
from leakgauge.audit.judge.finished import Baseline, Finished, Where, arms, encodings
from leakgauge.audit.judge.ledger import ledger, replayed
from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.order import BORROWED, Stronger, at_least_as_bad, borrowed, weakens
from leakgauge.audit.judge.values import (
    Alone,
    Attack,
    Bound,
    Checkpoint,
    Control,
    Defense,
    Encoding,
    Feature,
    Finding,
    Kind,
    Part,
    Thresholds,
)
from leakgauge.audit.judge.verdict import Rules, Verdict, incomplete, invalid, verdicts
from leakgauge.audit.plan import IDENTITY, control_trained_with, steps, trained_with
from leakgauge.audit.run import Outcome
from leakgauge.audit.store import Store
from leakgauge.defenses import Identity, Protection, parts_of
from leakgauge.doctor.diagnosis import Diagnosis
from leakgauge.metrics import DomainMetrics, FeatureShare
from leakgauge.preflight import preflight
from leakgauge.study.spec import Spec
from leakgauge.study.study import Study
from leakgauge.training import accuracy
from leakgauge.types import Domain

SCOPE = "Reconstruction of records from updates was tested; membership and property inference are not tested."


def result(study: Study, outcome: Outcome, store: Store, diagnosis: Diagnosis | None = None) -> Result:
    """Everything an audit says."""
    spec, finished = study.spec, Finished(study, outcome.plan, store, outcome.faults)
    rules = rules_of(study.metrics, spec.verdict.significance)
    evidence = _Evidence.of(finished)
    words = evidence.verdicts(finished, rules)
    if diagnosis is not None and diagnosis.status != "replays":
        words = dict.fromkeys(words, invalid(diagnosis.sentence))
    limits = ceilings(study)
    measured = _Accuracies(finished)
    checkpoints = []
    for step in steps(study):
        plain = measured.of(Where(step, IDENTITY, IDENTITY))
        defenses = []
        for (at, name), where in evidence.places.items():
            if at == step:
                scored = evidence.arms[where]
                bound = limits.of(where.defense, scored.scores["real"] if scored else None)
                accuracies = measured.of(where)
                defenses.append(_defense(name, where, words[at, name], evidence, finished, bound, accuracies))
        checkpoints.append(
            Checkpoint(step=step, accuracy=_first(plain), accuracies=tuple(plain), defenses=tuple(defenses))
        )
    return Result(
        spec=_resolved(spec, study.metrics),
        environment=environment(),
        scope=SCOPE,
        notes=tuple(spec.notes()),
        domain=_kind(study.task.domain, study.metrics),
        metric=rules.metric,
        metrics=tuple(metric.meaning for metric in study.metrics.all),
        thresholds=Thresholds(
            metric=rules.metric,
            recognisable=rules.threshold,
            exact=rules.exact,
            exactness=rules.exactness.name,
            significance=rules.significance,
        ),
        replay=replayed(diagnosis),
        preflight=tuple(Finding(**leak.as_json()) for leak in preflight(study.task)),
        checkpoints=tuple(checkpoints),
        ledger=tuple(ledger(study, diagnosis, checkpoints)),
        faults=dict(sorted(outcome.faults.items())),
    )


def _resolved(spec: Spec, measures: DomainMetrics) -> dict[str, Any]:
    """The spec with every default written out, those of the metrics, too."""
    raw = spec.model_dump(mode="json")
    verdict = raw["verdict"]
    verdict["recognisable"] = verdict["recognisable"] or {measures.judge.meaning.name: measures.threshold}
    verdict["exact"] = measures.exact
    return raw


def rules_of(measures: DomainMetrics, significance: float) -> Rules:
    """The rules of a domain's metrics."""
    judge, exactness = measures.judge.meaning, measures.exactness.meaning
    return Rules(judge, measures.threshold, exactness, measures.exact, significance)


class _Evidence:
    """The scores of every defense and of its positive control, each gathered once."""

    def __init__(self, places: Mapping[tuple[int, str], Where], bare: Mapping[Where, Where]) -> None:
        self.places, self.bare = places, bare
        self.arms: dict[Where, Arms | None] = {}
        self.encodings: dict[Where, Encodings | None] = {}

    @classmethod
    def of(cls, finished: Finished) -> _Evidence:
        study = finished.study
        places = {
            (step, name): Where(step, defense, trained_with(study, defense))
            for step in steps(study)
            for name, defense in study.defenses.items()
        }
        bare = {w: Where(w.step, IDENTITY, control_trained_with(study, w.defense)) for w in places.values()}
        evidence, baseline = cls(places, bare), Baseline.of(study)
        evidence.arms = {where: arms(finished, where, baseline) for where in {*places.values(), *bare.values()}}
        evidence.encodings = {w: encodings(finished, w, baseline) for w in places.values()}
        return evidence

    def verdicts(self, finished: Finished, rules: Rules) -> dict[tuple[int, str], Verdict]:
        """One verdict per checkpoint and defense; p-values are corrected for the number of them all."""
        own = {key: a for key, where in self.places.items() if (a := self.arms[where]) is not None}
        control = {key: a for key in own if (a := self.arms[self.bare[self.places[key]]]) is not None}
        ready = {key: own[key] for key in control}
        early = {key: e for key in ready if (e := self.encodings[self.places[key]]) is not None}
        words = verdicts(ready, control, rules, early)
        exceeding = self._order(finished, rules, words)
        if exceeding:
            ready = {key: self.arms[self.places[key]] or own for key, own in ready.items()}
            control = {key: self.arms[self.bare[self.places[key]]] or own for key, own in control.items()}
            words = verdicts(ready, control, rules, early)
            words = {key: at_least_as_bad(word, exceeding.get(self.places[key], ())) for key, word in words.items()}
        return {
            key: words[key] if key in words else incomplete(finished.reasons(where)[0])
            for key, where in self.places.items()
        }

    def _order(
        self, finished: Finished, rules: Rules, words: Mapping[tuple[int, str], Verdict]
    ) -> dict[Where, list[Stronger]]:
        """Stronger defenses that leak more than a weaker one, whose adversaries then count for that one, too."""
        exceeding: dict[Where, list[Stronger]] = {}
        first = dict(self.arms)
        own = {where: words[key] for key, where in self.places.items() if key in words}
        for where in {**dict.fromkeys(self.places.values()), **dict.fromkeys(self.bare.values())}:
            scored = first[where]
            if scored is None or where.defense.input:
                continue
            for key, word in words.items():
                at, there = self.places[key], first[self.places[key]]
                alike = (at.step, repr(at.trained)) == (where.step, repr(where.trained))
                if there is None or not alike or not weakens(where.defense, at.defense):
                    continue
                one = Stronger(key[1], repr(at.defense), there, word)
                if one.exceeds(scored, rules.metric, own.get(where)):
                    exceeding.setdefault(where, []).append(one)
                    names = {BORROWED.format(name, one.name): name for name in there.adversaries}
                    finished.borrowed.update({(where, called): (at, name) for called, name in names.items()})
        for where, stronger in exceeding.items():
            if (scored := first[where]) is not None:
                self.arms[where] = borrowed(scored, stronger)
        return exceeding


class _Accuracies:
    """Test accuracy of trained models, and of the model as given, which is measured once."""

    def __init__(self, finished: Finished) -> None:
        self.finished, study = finished, finished.study
        self.untrained = round(accuracy(study.task, study.test), 6)

    def of(self, where: Where) -> list[float]:
        return self.finished.accuracies(where) if where.step else [self.untrained]


def _first(values: list[float]) -> float | None:
    return values[0] if values else None


def _defense(
    name: str,
    where: Where,
    verdict: Verdict,
    evidence: _Evidence,
    finished: Finished,
    bound: Bound,
    accuracies: list[float],
) -> Defense:
    study, protected = finished.study, where.defense
    metric = study.metrics.judge.meaning.name
    scored, early = evidence.arms[where], evidence.encodings[where]
    labels = study.records.labels.tolist()
    records = rows.records(finished, where, scored, early, metric, labels) if scored else []
    failed = scored is None and verdict.word != "invalid"
    return Defense(
        name=name,
        expression=repr(protected),
        bare=not any(parts(protected)),
        parts=tuple(parts(protected)),
        attack=_attack(verdict),
        encoding=_encoding(verdict),
        control=_control(verdict),
        bound=bound,
        accuracy=_first(accuracies),
        accuracies=tuple(accuracies),
        adversaries=tuple(rows.adversaries(finished, where, scored, early, metric)) if scored else (),
        records=tuple(records),
        columns=tuple(rows.columns(finished, study.task.domain, records, _tolerance(study.metrics) or 0.0)),
        ablation=tuple(rows.ablation(finished, where, scored, metric)) if scored else (),
        faults=tuple(finished.reasons(where)) if failed else (),
    )


def _tolerance(measures: DomainMetrics) -> float | None:
    """How near a number of a table must be to count as right, in standard deviations."""
    return next((metric.tolerance for metric in measures.all if isinstance(metric, FeatureShare)), None)


def parts(protected: Protection) -> list[Part]:
    """What analyses ask the parts of a defense; none for the client without one."""
    late = [part for part in parts_of(protected.update) if not isinstance(part, Identity)]
    return [
        *(Part(expression=repr(part), stage="input", mixing=part.mixing) for part in protected.input),
        *(Part(expression=repr(part), stage="model") for part in protected.model),
        *(Part(expression=repr(part), stage="training") for part in protected.training),
        *(Part(expression=repr(part), stage="update") for part in late),
    ]


def _kind(domain: Domain, measures: DomainMetrics) -> Kind:
    features = tuple(Feature.model_validate(feature, from_attributes=True) for feature in domain.features)
    return Kind(
        kind=domain.kind,
        shape=tuple(domain.shape),
        classes=domain.classes,
        features=features,
        tolerance=_tolerance(measures),
    )


def _attack(verdict: Verdict) -> Attack:
    finding = verdict.finding
    if finding is None:
        return Attack(verdict=verdict.word, why=verdict.why, p=verdict.p)
    return Attack(
        verdict=verdict.word,
        why=verdict.why,
        p=verdict.p,
        excess=finding.gains["another"],
        nulls=dict(finding.gains),
        single=finding.single,
        recognised=finding.recognised,
        rate=verdict.rate,
    )


def _encoding(verdict: Verdict) -> Encoding | None:
    encoded = verdict.encoded
    if encoded is None:
        return None
    return Encoding(
        called=encoded.called,
        lone=encoded.lone,
        recognised=encoded.recognised,
        records=encoded.records,
        mean=encoded.mean,
        best=encoded.best,
        p=encoded.p,
        excess=encoded.gain,
    )


def _control(verdict: Verdict) -> Control | None:
    positive = verdict.control
    if positive is None:
        return None
    gain = positive.together.gains["another"]
    return Control(
        mean=gain.mean,
        low=gain.low,
        high=gain.high,
        n=gain.n,
        p=positive.together.p,
        recognised=positive.together.recognised,
        records=positive.together.records,
        adversaries={
            name: Alone(p=finding.p, recognised=finding.recognised, works=name in positive.works)
            for name, finding in positive.each.items()
        },
    )
