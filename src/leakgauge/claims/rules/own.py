"""Rules for leakgauge's own protections, in a mod or filter or as an expression: their bound."""

from __future__ import annotations

from collections.abc import Iterator

from leakgauge.bounds import bound_of
from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import DELTA, short
from leakgauge.claims.rules.base import Case, rule, sizes_of
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
    whole, sizes = protection(setting.protection), sizes_of(case)
    figures = {size: bound_of(whole, size, rounds=rounds, delta=delta).epsilon for size in sizes}
    totals = {size: figure.value for size, figure in figures.items() if figure.value is not None}
    if len(totals) < len(figures):
        sentence = next(figure.sentence for figure in figures.values() if figure.value is None)
        yield Finding("bound", "caution" if case.asked.epsilon is None else "broken", f"no ε is proven: {sentence}")
        return
    largest, smallest = max(totals.values()), min(totals.values())
    numbers = {"epsilon": largest, "rounds": float(rounds), "delta": delta}
    after = f"at δ = {delta:g} after {rounds} round{'s' if rounds > 1 else ''}"
    what, remedy = f"ε = {short(largest)} {after}", "add noise"
    if smallest < largest * (1 - 1e-9):  # Laplace noise on a norm that is not its own
        numbers |= {f"epsilon of {size} parameters": total for size, total in totals.items()}
        each = ", ".join(f"ε = {short(total)} for {size:,} parameters" for size, total in totals.items())
        what, remedy = f"it grows with the model: {each} {after}", "give --parameters, or add noise"
    if case.asked.epsilon is not None and largest > case.asked.epsilon * (1 + 1e-9):
        yield Finding("bound", "broken", f"{what}, claimed is ε = {case.asked.epsilon:g}", remedy, numbers)
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
