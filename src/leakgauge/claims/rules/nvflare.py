"""Rules for NVFlare's privacy filters."""

from __future__ import annotations

from collections.abc import Iterator

from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import short
from leakgauge.claims.probes import nvflare as probes
from leakgauge.claims.rules.base import Case, judged, rule, sizes_of
from leakgauge.claims.settings import ExcludeVars, PercentilePrivacy, SVTPrivacy


@rule(PercentilePrivacy)
def raw(case: Case) -> Iterator[Finding]:
    """Parameters that it refuses make it send everything."""
    setting = case.placed.setting
    assert isinstance(setting, PercentilePrivacy)
    if setting.percentile is None or setting.gamma is None:
        return
    refused = setting.gamma <= 0 or not 0 <= setting.percentile <= 100
    outcome = probes.percentile_raw(setting.percentile, setting.gamma)
    if refused or outcome.faulty:
        share = outcome.numbers.get("share sent raw")
        part = "the data" if share is None else f"{share:.0%} of the data"
        yield judged(
            "raw data",
            outcome,
            f"percentile={setting.percentile:g}, gamma={setting.gamma:g} are out of range: it sends {part} as they are",
            "percentile must lie in [0, 100], gamma above 0",
            places=(case.placed.where,),
        )
    yield Finding(
        "no noise",
        "caution",
        "it adds no noise: there is no ε, and no bound; what is sent is cut off at ±gamma, full weights (the default "
        "of recipes) as well",
        "claim no differential privacy; add noise with Defend('clip(norm=…) | gaussian(std=…)')",
    )


@rule(PercentilePrivacy, SVTPrivacy)
def scalars(case: Case) -> Iterator[Finding]:
    """0-d parameters pass the filters untouched."""
    outcome = probes.scalars(case.placed.setting.expression_name)
    left = f": 50 left as {short(outcome.numbers['sent'])}" if outcome.numbers else ""
    yield judged(
        "scalars", outcome, f"0-d parameters pass as they are{left}", "give every parameter a dimension",
        places=case.facts.scalars,
    )  # fmt: skip


@rule(SVTPrivacy)
def released(case: Case) -> Iterator[Finding]:
    """``epsilon`` pays for the choice of entries; every value that is sent costs ``noise_var`` more."""
    setting = case.placed.setting
    assert isinstance(setting, SVTPrivacy)
    if None in (setting.epsilon, setting.noise_var, setting.gamma, setting.fraction):
        return
    choosing, rounds = float(setting.epsilon or 0), case.rounds or 1
    if setting.epsilon_release is not None:
        each, note, numbers = None, "", {"epsilon": rounds * (choosing + setting.epsilon_release)}
        text = f"ε = {short(choosing + setting.epsilon_release)} a round"
    else:
        outcome = probes.svt_release(setting.noise_var, setting.gamma)
        each, note = outcome.numbers.get("per value", float(setting.noise_var or 0)), outcome.note
        totals = {size: choosing + each * setting.uploads(size) for size in sizes_of(case)}
        numbers = {f"epsilon of {size} parameters": rounds * total for size, total in totals.items()}
        text = ", ".join(f"ε = {short(total)} a round for {size:,} parameters" for size, total in totals.items())
    total, largest = min(numbers.values()), max(numbers.values())
    target = case.asked.epsilon if case.asked.epsilon is not None else choosing + float(setting.epsilon_release or 0.0)
    over = f", {rounds} rounds add up to {short(total)} or more" if rounds > 1 else ""
    if largest <= target * (1 + 1e-9):
        yield Finding("release", "holds", text, "", numbers, probe=note)
        return
    what = (
        f"epsilon={choosing:g} pays for choosing entries only; a value sent costs ε = {short(each)} more: {text}{over}"
        if each is not None
        else f"{text}{over}, claimed is ε = {target:g}"
    )
    yield Finding("release", "broken", what, "set epsilon_release, and count it for every round", numbers, probe=note)


@rule(ExcludeVars)
def excluded(case: Case) -> Iterator[Finding]:
    """An argument of the wrong type excludes nothing, without a word."""
    setting = case.placed.setting
    assert isinstance(setting, ExcludeVars)
    if "exclude_vars" in case.placed.unread:
        return
    value = tuple(setting.exclude_vars) if isinstance(setting.exclude_vars, list | tuple) else setting.exclude_vars
    outcome = probes.excluded(value)
    if outcome.faulty is False:
        yield Finding("exclusion", "holds", "names and patterns are left out", probe=outcome.note)
    elif outcome.faulty or not isinstance(value, str | tuple):
        what = f"exclude_vars={setting.exclude_vars!r} leaves out nothing at all, without a word"
        yield judged("exclusion", outcome, what, "give a list of names, or a pattern", places=(case.placed.where,))
