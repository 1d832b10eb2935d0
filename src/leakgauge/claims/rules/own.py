"""Rules for leakgauge's own protections, in a mod or filter or as an expression: their bound."""

from __future__ import annotations

from collections.abc import Iterator

from leakgauge.bounds import bound_of
from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import DELTA, short
from leakgauge.claims.rules.base import Case, rule
from leakgauge.claims.settings import Defend


@rule(Defend)
def bound(case: Case) -> Iterator[Finding]:
    """ε of the protection over the rounds, as ``leakgauge bound`` proves it."""
    from leakgauge.defenses import protection

    setting = case.placed.setting
    assert isinstance(setting, Defend)
    if setting.protection is None:
        return
    rounds, delta = case.rounds or 1, case.asked.delta or DELTA
    figure = bound_of(protection(setting.protection), 1, rounds=rounds, delta=delta).epsilon
    if figure.value is None:
        yield Finding(
            "bound", "caution" if case.asked.epsilon is None else "broken", f"no ε is proven: {figure.sentence}"
        )
        return
    numbers = {"epsilon": figure.value, "rounds": float(rounds), "delta": delta}
    what = f"ε = {short(figure.value)} at δ = {delta:g} after {rounds} round{'s' if rounds > 1 else ''}"
    if case.asked.epsilon is not None and figure.value > case.asked.epsilon * (1 + 1e-9):
        yield Finding("bound", "broken", f"{what}, claimed is ε = {case.asked.epsilon:g}", "add noise", numbers)
    else:
        yield Finding("bound", "holds", what, "", numbers)


@rule(Defend)
def buffers(case: Case) -> Iterator[Finding]:
    """What is not trained leaves unprotected if it is sent."""
    setting = case.placed.setting
    assert isinstance(setting, Defend)
    if setting.buffers == "send":
        yield Finding(
            "buffers", "caution", "running statistics and counters leave unprotected", "leave out buffers='send'"
        )


def client_std(setting: Defend) -> float | None:
    """The standard deviation of a chain that ends in Gaussian noise."""
    from leakgauge.defenses import GaussianNoise, protection

    if setting.protection is None:
        return None
    law = protection(setting.protection).chain.parts[-1].noise_law
    return law.std if isinstance(law, GaussianNoise) else None
