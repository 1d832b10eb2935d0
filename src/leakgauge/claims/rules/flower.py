"""Rules for Flower's differential privacy and secure aggregation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from leakgauge.bounds import gaussian_mu
from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import DELTA, Release, classical_std, short
from leakgauge.claims.probes import flower as probes
from leakgauge.claims.probes import secagg
from leakgauge.claims.rules.base import Case, judged, rule
from leakgauge.claims.settings import (
    AdaptiveClippingMod,
    ClientAdaptive,
    ClientFixed,
    FixedClippingMod,
    LocalDpMod,
    SecureAggregation,
    ServerAdaptive,
    ServerFixed,
    Setting,
)

CENTRAL: tuple[type[Setting], ...] = (ServerFixed, ClientFixed, ServerAdaptive, ClientAdaptive)
MODS: tuple[type[Setting], ...] = (LocalDpMod, FixedClippingMod, AdaptiveClippingMod)


def _numbers(setting: LocalDpMod) -> tuple[float, float, float, float] | None:
    values = (setting.clipping_norm, setting.sensitivity, setting.epsilon, setting.delta)
    return None if any(value is None for value in values) else values  # type: ignore[return-value]


def local_std(setting: LocalDpMod) -> tuple[float, str]:
    """The noise that the mod adds: measured on the installed one, else by the formula of Flower 1.41."""
    norm, sensitivity, epsilon, delta = _numbers(setting) or (1.0, 1.0, 1.0, DELTA)
    outcome = probes.local_noise(norm, sensitivity, epsilon, delta)
    return outcome.numbers.get("std", classical_std(sensitivity, epsilon, delta)), outcome.note


@rule(LocalDpMod)
def sensitivity(case: Case) -> Iterator[Finding]:
    """The noise must be set for the clipping norm: that is how far an update can move."""
    setting = case.placed.setting
    assert isinstance(setting, LocalDpMod)
    if (values := _numbers(setting)) is None:
        return
    norm, stated, epsilon, delta = values
    std, probed = local_std(setting)
    real, claimed = Release(norm, std), gaussian_mu(epsilon, delta)
    numbers = {"std": std, "mu": real.mu(), "epsilon": real.epsilon(delta), "claimed mu": claimed}
    if stated < norm * (1 - 1e-9):
        yield Finding(
            "sensitivity",
            "broken",
            f"sensitivity {stated:g} is not the clipping norm {norm:g}: noise of standard deviation {short(std)} on "
            f"updates that move by up to {norm:g} is μ = {short(real.mu())}, that is ε = {short(real.epsilon(delta))} "
            f"at δ = {delta:g}; claimed is ε = {epsilon:g}, which needs μ ≤ {short(claimed)}",
            f"set sensitivity={norm:g}; the claim needs a standard deviation of {short(norm / claimed)}",
            numbers,
            probe=probed,
        )
    else:
        yield Finding(
            "sensitivity", "holds", f"sensitivity covers the clipping norm: μ = {short(real.mu())}", "", numbers
        )


@rule(LocalDpMod)
def formula(case: Case) -> Iterator[Finding]:
    """``√(2 ln(1.25/δ))/ε`` is proved for ε < 1; beyond, the exact δ decides."""
    setting = case.placed.setting
    assert isinstance(setting, LocalDpMod)
    if (values := _numbers(setting)) is None or not values[1]:
        return
    _, stated, epsilon, delta = values
    std, probed = local_std(setting)
    release = Release(stated, std)
    real = release.delta(epsilon)
    numbers = {"delta": real, "epsilon": release.epsilon(delta)}
    if real > delta * (1 + 1e-9):
        yield Finding(
            "formula",
            "broken",
            f"the classical Gaussian formula is proved for ε < 1: at ε = {epsilon:g} its noise gives "
            f"δ = {short(real)}, claimed is δ = {delta:g} (at that δ it is ε = {short(release.epsilon(delta))}), even "
            f"for updates that move by no more than the stated sensitivity",
            f"set epsilon={_safe_epsilon(epsilon, delta):.4g}, whose noise gives ε = {epsilon:g} exactly",
            numbers,
            probe=probed,
        )
    else:
        yield Finding("formula", "holds", f"the exact δ at ε = {epsilon:g} is {short(real)}", "", numbers)


def _safe_epsilon(epsilon: float, delta: float) -> float:
    """The ε to state so that the classical formula adds the noise that ``epsilon`` needs."""
    return gaussian_mu(epsilon, delta) * math.sqrt(2 * math.log(1.25 / delta))


@rule(LocalDpMod)
def neighbours(case: Case) -> Iterator[Finding]:
    """Two clipped updates are up to 2C apart; noise for C hides whether a client took part, not what it sent."""
    setting = case.placed.setting
    assert isinstance(setting, LocalDpMod)
    if (values := _numbers(setting)) is None or not values[0] <= values[1] < 2 * values[0]:
        return
    norm, _, epsilon, delta = values
    std, _ = local_std(setting)
    any_two = Release(2 * norm, std)
    yield Finding(
        "neighbours",
        "caution",
        f"noise for one clipping norm hides whether a client took part; between any two updates, as local privacy is "
        f"usually meant, it is μ = {short(any_two.mu())}, ε = {short(any_two.epsilon(delta))} at δ = {delta:g}, "
        f"not ε = {epsilon:g}",
        f"set sensitivity={2 * norm:g} to cover both",
        {"mu": any_two.mu(), "epsilon": any_two.epsilon(delta)},
    )


@rule(LocalDpMod)
def composition(case: Case) -> Iterator[Finding]:
    """ε is that of one message; rounds add up, and the mod does not count them."""
    setting = case.placed.setting
    assert isinstance(setting, LocalDpMod)
    if (values := _numbers(setting)) is None:
        return
    norm, _, epsilon, delta = values
    yield from composed(case, Release(norm, local_std(setting)[0]), epsilon, case.asked.delta or delta)


def composed(case: Case, one: Release, stated: float | None, delta: float) -> Iterator[Finding]:
    """ε of the whole run, beside what the user says of it, else beside the ε of the setting."""
    rounds, target = case.rounds, case.asked.epsilon if case.asked.epsilon is not None else stated
    total = one.epsilon(delta, rounds or 1)
    numbers = {"epsilon": total, "rounds": float(rounds or 1), "delta": delta}
    spent = "1 round of it spends" if (rounds or 1) == 1 else f"{rounds} rounds of it spend"
    of_run = f"{spent} ε = {short(total)} at δ = {delta:g}"
    if target is None:
        yield Finding("composition", "caution", f"no ε is claimed: {of_run}", "give --epsilon to compare it", numbers)
    elif total > target * (1 + 1e-9) and ((rounds or 1) > 1 or case.asked.epsilon is not None):
        yield Finding(
            "composition",
            "broken",
            f"nothing composes over rounds: {of_run}, claimed is ε = {target:g}",
            f"noise of standard deviation {short(_needed(one, target, delta, rounds or 1))} keeps it"
            + ("" if case.asked.epsilon is not None else f", or claim --epsilon {_rounded_up(total)} for the run"),
            numbers,
        )
    elif rounds is None:
        ten = one.epsilon(delta, 10)
        yield Finding(
            "composition",
            "caution",
            f"ε = {target:g} is of one message; nothing composes over rounds: 10 rounds spend ε = {short(ten)}",
            "give --rounds",
            {"epsilon of 10 rounds": ten},
        )
    else:
        yield Finding("composition", "holds", of_run, "", numbers)


def _needed(one: Release, epsilon: float, delta: float, rounds: int) -> float:
    return one.shift * math.sqrt(rounds) / gaussian_mu(epsilon, delta)


def _rounded_up(value: float) -> str:
    return f"{math.ceil(value * 100) / 100:g}" if value < 1e6 else f"{value * 1.01:.3g}"


@rule(LocalDpMod, FixedClippingMod, AdaptiveClippingMod)
def scalars(case: Case) -> Iterator[Finding]:
    """0-d parameters pass the mods untouched."""
    name = case.placed.setting.expression_name
    outcome = probes.scalars_at_client(name)
    norm = f": a scalar that moved by 50 left as {short(outcome.numbers['sent'])}" if outcome.numbers else ""
    yield judged(
        "scalars",
        outcome,
        f"0-d parameters (counters of BatchNorm, learned scales) are not protected under a clipping norm of 1{norm}",
        "give every parameter a dimension, and leave counters out of what is sent",
        places=case.facts.scalars,
    )


@rule(LocalDpMod)
def generator(case: Case) -> Iterator[Finding]:
    """Noise from numpy's global generator is known to whoever knows the seed."""
    yield from _generator(case)


def _generator(case: Case) -> Iterator[Finding]:
    outcome = probes.global_noise()
    if outcome.faulty and case.facts.read and not case.facts.numpy_seeds:
        yield Finding("generator", "holds", "noise comes from numpy's global generator, which this app does not seed")
        return
    yield judged(
        "generator",
        outcome,
        "noise comes from numpy's global generator: with the same seed two clients send the same noise, and whoever "
        "knows the seed subtracts it",
        "do not seed numpy where updates are protected",
        places=case.facts.numpy_seeds,
    )


@rule(*MODS)
def evaluation(case: Case) -> Iterator[Finding]:
    """Mods that are registered for the whole app meet evaluate messages, too."""
    if case.placed.scope != "app":
        return
    name = case.placed.setting.expression_name
    yield judged(
        "evaluation",
        probes.evaluation(name),
        f"{name} is registered for the whole app and does not look at the kind of a message: every evaluation fails",
        f"register it for training: @app.train(mods=[{name}…])",
        places=(case.placed.where,) if case.facts.evaluates else (),
    )


@rule(*CENTRAL)
def central_noise(case: Case) -> Iterator[Finding]:
    """What the noise multiplier is worth over the rounds."""
    multiplier = getattr(case.placed.setting, "noise_multiplier", None)
    if multiplier is None:
        return
    if not multiplier:
        yield Finding("noise", "broken", "noise_multiplier is 0: no noise, hence no privacy", "choose one of 1 or more")
        return
    delta = case.asked.delta or DELTA
    accounted = getattr(case.placed.setting, "accountant", None) is not None
    if accounted and case.asked.epsilon is None:
        yield Finding("composition", "holds", "its accountant adds up the rounds")
        return
    yield from composed(case, Release(1.0, multiplier), None, delta)


@rule(*CENTRAL)
def weights(case: Case) -> Iterator[Finding]:
    """Noise is set for 1/n; FedAvg weighs by the number of examples."""
    setting = case.placed.setting
    multiplier = getattr(setting, "noise_multiplier", None)
    if getattr(setting, "accountant", None) is not None or case.facts.equal_weights:
        yield Finding("weights", "holds", "all clients weigh the same")
        return
    outcome = probes.weighted_noise()
    factor = outcome.numbers.get("factor", 9.91)
    real = (
        f", μ = {short(factor / multiplier)} per round where {short(1 / multiplier)} is assumed" if multiplier else ""
    )
    yield judged(
        "weights",
        outcome,
        "noise is set for equal weights, the mean is weighted by the number of examples: one client with 1000 examples "
        f"among nine with 1 moves it by {short(factor)} times what the noise is set for{real}",
        "let every client report the same number of examples, or use an accountant, which checks it",
        places=case.facts.unequal_weights,
    )


@rule(*CENTRAL)
def scalars_at_server(case: Case) -> Iterator[Finding]:
    """0-d parameters are not clipped at the server either."""
    outcome = probes.scalars_at_server()
    by = f" by {short(outcome.numbers['factor'])} times what the noise is set for" if outcome.numbers else ""
    yield judged(
        "scalars",
        outcome,
        f"0-d parameters are not clipped: a scalar that moved by 50 under a clipping norm of 1 moves the mean{by}",
        "give every parameter a dimension, and leave counters out of what is sent",
        places=case.facts.scalars,
    )


@rule(*CENTRAL)
def generator_at_server(case: Case) -> Iterator[Finding]:
    """The same global generator."""
    yield from _generator(case)


@rule(ServerAdaptive, ClientAdaptive)
def adaptive_direction(case: Case) -> Iterator[Finding]:
    """The clipping norm must go towards the quantile, not away from it."""
    outcome = probes.adaptive_direction()
    numbers = outcome.numbers
    ends = (
        f": from 0.1 to {short(numbers['from 0.1'])}, from 10 to {short(numbers['from 10'])} in 30 rounds"
        if numbers
        else ""
    )
    yield judged(
        "adaptive clipping",
        outcome,
        f"the clipping norm moves away from the norms of the updates (median 1){ends}; it ends in no learning, or in "
        "noise without a limit",
        "use fixed clipping",
        places=(case.placed.where,),
    )


@rule(ClientFixed, ClientAdaptive)
def clipping_mod(case: Case) -> Iterator[Finding]:
    """Somebody must clip."""
    wanted = "fixedclipping_mod" if isinstance(case.placed.setting, ClientFixed) else "adaptiveclipping_mod"
    if case.facts.read and wanted not in case.facts.mods:
        yield Finding(
            "clipping",
            "broken",
            f"no client of this app clips: there is no {wanted}, so one client moves the mean without a limit",
            f"@app.train(mods=[{wanted}])",
            {"mu": math.inf},
        )


@rule(SecureAggregation)
def masks(case: Case) -> Iterator[Finding]:
    """The masks must be as hard to guess as the keys."""
    outcome = secagg.mask_bits()
    bits = outcome.numbers.get("bits", 28.0)
    yield judged(
        "mask seeds",
        outcome,
        f"{bits:.0f} bits decide a pairwise mask: all {2**bits:,.0f} seeds can be tried on one core, and the server "
        "reads single updates",
        "count on no secrecy against the server; use leakgauge.fl.SecureSums or another implementation",
        places=(case.placed.where,),
    )


@rule(SecureAggregation)
def counts(case: Case) -> Iterator[Finding]:
    """Counts and metrics must not leave beside the masked vector."""
    outcome = secagg.counts_in_clear()
    sent = f" ({outcome.numbers['sent']:.0f} of {secagg.EXAMPLES} was read off a reply)" if outcome.numbers else ""
    yield judged(
        "counts",
        outcome,
        f"the number of examples and all metrics leave in clear beside the masked vector{sent}",
        "report 1 example and no metrics",
        places=(case.placed.where,),
    )


def needed_std(setting: LocalDpMod) -> float | None:
    """The standard deviation that the claim of a client needs; None where it cannot be read."""
    if (values := _numbers(setting)) is None:
        return None
    norm, _, epsilon, delta = values
    return norm / gaussian_mu(epsilon, delta)
