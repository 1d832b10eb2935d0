"""Rules for Opacus: DP-SGD inside a client. The unit that it protects is a record."""

from __future__ import annotations

import math
from collections.abc import Iterator

from leakgauge.bounds import gaussian_mu
from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import DELTA, Release, short
from leakgauge.claims.probes import opacus as probes
from leakgauge.claims.rules.base import Case, judged, rule
from leakgauge.claims.settings import MakePrivate, MakePrivateWithEpsilon, Opacus


@rule(MakePrivate)
def noise(case: Case) -> Iterator[Finding]:
    """Without noise there is no privacy."""
    setting = case.placed.setting
    assert isinstance(setting, MakePrivate)
    if setting.noise_multiplier == 0:
        yield Finding(
            "noise", "broken", "noise_multiplier is 0: no noise, hence no privacy", "choose one of 0.5 or more"
        )


@rule(MakePrivate, MakePrivateWithEpsilon)
def generator(case: Case) -> Iterator[Finding]:
    """Outside of secure mode the noise comes from torch's global generator."""
    if getattr(case.placed.setting, "secure_mode", None):
        yield Finding("generator", "holds", "secure_mode draws noise from a cryptographic generator")
        return
    if case.facts.read and not case.facts.torch_seeds:
        yield Finding("generator", "holds", "noise comes from torch's global generator, which this app does not seed")
        return
    yield judged(
        "generator",
        probes.seeded_noise(),
        "noise comes from torch's global generator: whoever knows the seed subtracts it",
        "PrivacyEngine(secure_mode=True), or do not seed torch",
        places=case.facts.torch_seeds,
    )


@rule(MakePrivate, MakePrivateWithEpsilon)
def sampling(case: Case) -> Iterator[Finding]:
    """The accountant counts on Poisson sampling; without it ε is that of no sampling at all."""
    if getattr(case.placed.setting, "poisson_sampling", True) is not False:
        return
    outcome = probes.sampling_counted()
    real = Release(1.0, 1.0).epsilon(DELTA)
    figure = (
        f" (noise multiplier 1, one epoch in batches of a tenth: it says ε = {short(outcome.numbers['epsilon'])}; what "
        f"is proven without sampling is ε = {short(real)} at δ = {DELTA:g})"
        if outcome.numbers
        else ""
    )
    yield judged(
        "sampling",
        outcome,
        f"poisson_sampling=False, and the accountant counts on Poisson sampling all the same{figure}",
        "leave poisson_sampling on, or account for every step at rate 1",
        places=(case.placed.where,),
    )


@rule(MakePrivate, MakePrivateWithEpsilon)
def composition(case: Case) -> Iterator[Finding]:
    """An engine that is built in every round forgets the rounds before it."""
    setting, rounds = case.placed.setting, case.rounds
    if rounds is None or rounds < 2:
        return
    if isinstance(setting, MakePrivateWithEpsilon) and setting.target_epsilon and setting.target_delta:
        stated, delta = setting.target_epsilon, setting.target_delta
        one = Release(gaussian_mu(stated, delta), 1.0)
    elif isinstance(setting, MakePrivate) and setting.noise_multiplier:
        delta = case.asked.delta or DELTA
        one = Release(1.0, setting.noise_multiplier)
        stated = one.epsilon(delta)
    else:
        return
    total, target = one.epsilon(delta, rounds), case.asked.epsilon if case.asked.epsilon is not None else stated
    numbers = {"epsilon": total, "rounds": float(rounds), "sum": rounds * stated}
    spent = (
        f"{rounds} rounds at ε = {short(stated)} spend about ε = {short(total)} at δ = {delta:g} "
        f"(as Gaussian releases; at most {short(rounds * stated)} at δ = {rounds * delta:g})"
    )
    certain = case.placed.scope == "round" or case.asked.rounds is not None  # else a helper may run once a round
    built = "every round builds a new engine, which" if certain else "if every round builds a new engine, it"
    what = f"{built} knows nothing of the others: {spent}"
    remedy = f"plan every round for {short(_share(target, delta, rounds))}"
    if total <= target * (1 + 1e-9):
        yield Finding("composition", "holds", what, "", numbers)
    elif certain:
        yield Finding("composition", "broken", what, remedy, numbers)
    else:
        yield Finding("composition", "caution", what, f"keep one engine, or {remedy}", numbers)


@rule(MakePrivate, MakePrivateWithEpsilon)
def claim(case: Case) -> Iterator[Finding]:
    """What one engine is planned for, beside the ε that the user claims."""
    setting, claimed = case.placed.setting, case.asked.epsilon
    if claimed is None:
        return
    if isinstance(setting, MakePrivateWithEpsilon) and setting.target_epsilon and setting.target_delta:
        stated, delta = setting.target_epsilon, case.asked.delta or setting.target_delta
        total = stated
        if delta != setting.target_delta:
            total = Release(gaussian_mu(stated, setting.target_delta), 1.0).epsilon(delta)
        what = f"one engine is planned for ε = {short(stated)} at δ = {setting.target_delta:g}"
        if delta != setting.target_delta:
            what += f" (about {short(total)} at δ = {delta:g}, as a Gaussian release)"
        if total > claimed * (1 + 1e-9):
            remedy = f"set target_epsilon={claimed:g}, or claim what it is planned for"
            yield Finding("claim", "broken", f"{what}, claimed is ε = {claimed:g}", remedy, {"epsilon": total})
        else:
            yield Finding("claim", "holds", what, "", {"epsilon": total})
    elif isinstance(setting, MakePrivate) and setting.noise_multiplier != 0:
        what = f"ε = {claimed:g} depends on the sampling rate and the number of steps, which the setting does not have"
        yield Finding("values", "caution", what, "compare it with the engine's get_epsilon(delta) after the last round")


def _share(epsilon: float, delta: float, rounds: int) -> float:
    """ε of one round of so many that keep ``epsilon`` together."""
    return Release(gaussian_mu(epsilon, delta) / math.sqrt(rounds), 1.0).epsilon(delta)


@rule(Opacus)
def unit(case: Case) -> Iterator[Finding]:
    """Say what is protected."""
    yield Finding("unit", "holds", "it protects one record of a client, not the client as a whole")
