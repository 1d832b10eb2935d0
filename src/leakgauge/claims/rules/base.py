"""The table of rules, and what they share: what a probe's outcome makes of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from leakgauge.claims.facts import Asked, Facts, Placed
from leakgauge.claims.findings import Finding, Level
from leakgauge.claims.probes import Outcome
from leakgauge.claims.settings import Setting


@dataclass(frozen=True)
class Case:
    """One setting with its surroundings."""

    placed: Placed
    facts: Facts
    asked: Asked

    @property
    def rounds(self) -> int | None:
        """How many rounds the run has, if anybody says so."""
        return self.asked.rounds or self.facts.rounds


COMPOSING = {"composition", "bound", "release"}
"""Rules whose findings depend on the number of rounds."""
SIZES = (1000, 1_000_000)
"""Numbers of parameters to speak of where the model's is not known."""


def sizes_of(case: Case) -> tuple[int, ...]:
    """The parameters of the model, or :data:`SIZES`."""
    return SIZES if case.asked.parameters is None else (case.asked.parameters,)


Rule = Callable[[Case], Iterator[Finding]]
RULES: dict[type[Setting], list[Rule]] = {}


def rule(*kinds: type[Setting]) -> Callable[[Rule], Rule]:
    """Ask this of settings of these kinds."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES.setdefault(kind, []).append(function)
        return function

    return enter


def findings_of(case: Case) -> tuple[Finding, ...]:
    """All findings about one setting, those that break its claim first."""
    functions = [f for kind, group in RULES.items() if isinstance(case.placed.setting, kind) for f in group]
    where = case.placed.where
    findings = [
        finding if finding.where else replace(finding, where=where)
        for function in functions
        for finding in function(case)
    ]
    if case.facts.unread_rounds and case.asked.rounds is None and {f.rule for f in findings} & COMPOSING:
        what = f"the number of rounds is no constant: {case.rounds or 1} assumed"
        findings.append(Finding("values", "caution", what, "give --rounds", where=case.facts.unread_rounds))
    if case.placed.unread:
        what = f"not constants, so not examined: {', '.join(case.placed.unread)}"
        findings.append(Finding("values", "caution", what, "write the setting as an expression", where=where))
    return ordered(findings)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What breaks a claim first."""
    levels = ("broken", "caution", "not probed", "holds")
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))


def judged(rule: str, outcome: Outcome, what: str, remedy: str = "", *, places: tuple[str, ...] = ()) -> Finding:
    """The finding of a fault that needs something of the app: broken at the first of ``places``, else a caution.

    Where the package cannot be tried, the sentence says what is known of the version that leakgauge was written for.
    """
    if outcome.faulty is None:
        return Finding(rule, "not probed", what, remedy, where=places[0] if places else "", probe=outcome.note)
    if not outcome.faulty:
        return Finding(rule, "holds", f"{rule}: not so in the installed version", probe=outcome.note)
    level: Level = "broken" if places else "caution"
    where = places[0] if places else ""
    return Finding(rule, level, what, remedy, dict(outcome.numbers), where, outcome.note)
