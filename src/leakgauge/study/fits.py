"""Whether the values of a study fit together: small checks, each of which yields problems.

They examine what a draft could build (a model without memory, none of the user's code), or a study in the making.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import metrics
from leakgauge.adversary import Adversary, Attack, models_defense
from leakgauge.adversary.statistics import refuse_without_norms
from leakgauge.attacks.choosing import Chooser
from leakgauge.attacks.staged import members
from leakgauge.client import LABELS, RECIPE
from leakgauge.defenses.protection import Protection
from leakgauge.errors import nearest
from leakgauge.expr import PATH, described
from leakgauge.metrics.sign_flips import least_p
from leakgauge.priors.base import terms_of
from leakgauge.priors.batch_norm import BatchNorm
from leakgauge.study.attack_texts import nested_chooser
from leakgauge.study.attempts import Attempt, attempt, problems_of
from leakgauge.study.clients import encodes
from leakgauge.study.kinds import kinds
from leakgauge.study.own_code import fingerprint, has_own_code
from leakgauge.study.sections import Attacks, Problem, Spec
from leakgauge.task import Task
from leakgauge.threat import Threat
from leakgauge.types import Domain, Tree, matching

Problems = Iterator[Problem]


@dataclass(frozen=True)
class Values:
    """What a study is about, as far as it is built; None where that would have needed the user's code."""

    spec: Spec
    file: str
    domain: Domain | None
    params: Tree | None
    """Of the client without a defense."""
    under: Callable[[Protection], Task] | None
    """The client under a defense."""
    defenses: Mapping[str, Protection | None]
    adversaries: Mapping[str, tuple[Attack | None, ...]]
    faulty_adversaries: bool = False
    """Some adversary could not be read: nothing is said about which kinds there are."""
    judged: bool = True
    """Verdicts are wanted, so that there must be enough records for the level."""

    def addresses(self, protection: Protection) -> list[str]:
        """What is hidden or random under a defense: of the recipe and of the defense, or only of the latter."""
        task = None if self.under is None else attempt(partial(self.under, protection)).value
        return list(protection.nuisances if task is None else task.nuisances)

    def problem(self, key: str, what: str, remedy: str) -> Problem:
        return Problem(self.file, key, what, remedy)


def problems_of_values(values: Values) -> list[Problem]:
    """Everything that does not fit together."""
    return [problem for check in VALUE_CHECKS for problem in check(values)]


def check_defenses(values: Values) -> Problems:
    """Whether each can do its work here: encode so few records, change such a model, find its layer."""
    if not values.defenses:
        yield values.problem("defenses", "there is none", f"add one, for instance name = {EXAMPLES['defenses']!r}")
    for name, protection in values.defenses.items():
        if protection is None:
            continue
        key, domain = f"defenses.{name}", values.domain
        for part in () if domain is None else protection.input:
            assert domain is not None
            yield from problems_of(attempt(partial(encodes, part, domain, values.spec)), values.file, key)
        if values.under is not None:
            yield from problems_of(attempt(partial(values.under, protection)), values.file, key)


def check_own_code(values: Values) -> Problems:
    """Defenses of the user's own, tried once: what each releases must be an update, and its text must tell it apart."""
    plain = None if values.under is None else attempt(partial(values.under, Protection())).value
    named: dict[str, tuple[str, str]] = {}
    for name, protection in values.defenses.items() if plain is not None else ():
        if protection is None or not has_own_code(protection):
            continue
        assert plain is not None
        task = attempt(partial(replace, plain, protection=protection)).value
        if task is None:
            continue
        tried, key = attempt(partial(fingerprint, task)), f"defenses.{name}"
        yield from problems_of(tried, values.file, key)
        first, released = named.setdefault(repr(protection), (name, tried.value or ""))
        if tried.value and released != tried.value:
            what = f"prints as {first} does, {protection!r}, and releases something else"
            yield values.problem(key, what, "make what differs a setting: a number, a text or a tensor")


TOGETHER, OBSERVED = 10, 8_000_000_000
"""Updates that a worker observes at once, and the memory that all rounds of them may take."""
EXAMPLES = {"defenses": "clip(norm=1.0) | gaussian(std=0.1)", "adversaries": "inverting_gradients()"}


def check_adversaries(values: Values) -> Problems:
    if not values.adversaries:
        example = EXAMPLES["adversaries"]
        yield values.problem("adversaries", "there is none", f"add one, for instance name = {example!r}")
    for name, settings in values.adversaries.items():
        key = f"adversaries.{name}"
        if not settings:
            yield values.problem(key, "there is no setting in the list", "give one, or several to be tuned")
        if len(settings) > 1 and (chooser := next((a for a in settings if isinstance(a, Chooser)), None)):
            what = f"{described(chooser)} chooses its own settings, and cannot be one of several that are tuned"
            yield values.problem(key, what, "give it a name of its own")
        for inner in filter(None, (nested_chooser(a) for a in settings if a is not None)):
            what = f"{described(inner)} stands inside another attack, where it would choose nothing"
            yield values.problem(key, what, "give it a name of its own")
        for attack in _members(settings):
            fits = getattr(attack, "fits", None)
            if fits is not None and values.params is not None:
                yield from problems_of(attempt(partial(fits, values.params)), values.file, key)


def _labels_are_inferred(spec: Spec) -> bool:
    """Whether the adversary reads labels off the update, and none are granted by their address."""
    threat = spec.threat
    return threat.labels == "inferred" and not Threat(frozenset(threat.grants), threat.labels).knows(LABELS)


def check_batches(values: Values) -> Problems:
    """What adversaries presume of batches: batch norms where they treat them, room for unique labels."""
    task = None if values.under is None else attempt(partial(values.under, Protection())).value
    for name, settings in values.adversaries.items():
        key = f"adversaries.{name}"
        for attack in _members(settings) if task is not None else ():
            assert task is not None
            batch, classes = task.recipe.batch, task.domain.classes
            unique = getattr(attack, "rule", None) == "unique" and _labels_are_inferred(values.spec)
            if unique and batch > classes:
                what = f"a batch of {batch} cannot have unique labels among {classes} classes"
                yield values.problem(key, what, "leave rule out, which counts repeated labels")
            if not isinstance(attack, Adversary):
                continue
            yield from problems_of(attempt(partial(refuse_without_norms, task, attack.norms)), values.file, key)
            norms = any(isinstance(module, _BatchNorm) for module in task.working.modules())
            if not norms and any(isinstance(term, BatchNorm) for term in terms_of(attack.prior)):
                what = "batch_norm() compares statistics of batch norms, and the model has none"
                yield values.problem(key, what, "leave it out of the prior")


def _members(settings: tuple[Attack | None, ...]) -> list[Attack]:
    """Every attack of the settings, with the stages and rivals of those that combine others."""
    return [one for attack in settings if attack is not None for one in members(attack)]


_ARTICLES: dict[Attacks, str] = {"generic": "a", "adaptive": "an"}


def check_left_out(values: Values) -> Problems:
    # the user's own attack, which is not read here, counts as generic
    modelled = [["none" if a is None else models_defense(a) for a in s] for s in values.adversaries.values()]
    listed = set() if values.faulty_adversaries else kinds(modelled)
    for i, kind in enumerate(values.spec.leave_out):
        if kind in listed:
            what = f"adversaries lists {_ARTICLES[kind]} {kind} one"
            yield values.problem(f"leave_out.{i}", what, f"take it, or {kind!r} here, out")


def check_grants(values: Values) -> Problems:
    """What is granted must be there to grant, by an address that means one thing.

    Nothing is missed where a defense or the model could not be read: it may have anything.
    """
    read = [values.addresses(protection) for protection in values.defenses.values() if protection is not None]
    whole = len(read) == len(values.defenses)
    here = {address for addresses in read for address in addresses}
    names = here | {address.rpartition(".")[2] for address in here}
    for i, grant in enumerate(values.spec.threat.grants):
        key = f"threat.grants.{i}"
        of_recipe = values.under is None and (grant.startswith(f"{RECIPE}.") or "." not in grant)
        if not matching(grant, here) and whole and not of_recipe:
            alike = [address for address in here if address.rpartition(".")[2] == grant.rpartition(".")[2]]
            remedy = nearest(grant, alike or names) if here else "take it out: there is nothing to grant"
            if grant == f"{RECIPE}.learning_rate":
                remedy = "take it out: a gradient does not depend on the learning rate, a change would"
            yield values.problem(key, f"no defense of this spec has a nuisance {grant!r}", remedy)
        for meant in (matching(grant, addresses) for addresses in read):
            if len(meant) > 1:
                yield values.problem(key, f"{grant!r} may mean {' or '.join(meant)}", f"say {meant[0]!r}")


def check_rounds(values: Values) -> Problems:
    task, bound = values.spec.task, values.spec.bound
    if bound.rounds is not None and bound.rounds < task.rounds:
        what = f"a bound over {bound.rounds} rounds, the adversary sees {task.rounds}"
        yield values.problem("bound.rounds", what, f"say at least {task.rounds}, or leave it out")
    size = sum(p.numel() * p.element_size() for p in (values.params or {}).values())
    need = size * task.rounds * min(task.records, TOGETHER)
    if need > OBSERVED and task.rounds > 1:
        most = max(1, OBSERVED // (size * min(task.records, TOGETHER)))
        what = f"updates of {task.rounds} rounds take about {need / 1e9:,.0f} GB, the limit is {OBSERVED / 1e9:.0f} GB"
        yield values.problem("task.rounds", what, f"say at most rounds = {most}")


def check_clients(values: Values) -> Problems:
    task = values.spec.task
    if task.client_records is not None and task.client_records % task.recipe.batch:
        batch = task.recipe.batch
        what = f"{task.client_records} records do not make whole updates of {batch}"
        yield values.problem("task.client_records", what, f"give a multiple of {batch}")


def check_thresholds(values: Values) -> Problems:
    """Thresholds that a metric can reach, of metrics that fit the records; of one's own only the run can tell."""
    key, asked, domain = "verdict.recognisable", values.spec.verdict.recognisable, values.domain
    if own := [name for name in asked if PATH.search(name)]:
        if len(asked) > 1:
            what = f"{own[0]} judges alone, and there are {len(asked)} entries"
            yield values.problem(key, what, "name one; others are shown beside it where verdict.also names them")
        return
    meanings = attempt(lambda: {name: metrics.named(name).meaning for name in asked})
    yield from problems_of(meanings, values.file, key)
    if not meanings.faults and domain is not None:
        yield from _without_place(attempt(lambda: metrics.of(domain, asked)), values.file, key)
        yield from _check_also(values, domain)
    for name, meaning in (meanings.value or {}).items():
        if meaning.best is not None and asked[name] > meaning.best:
            what = f"must be at most {meaning.best:g}, got {asked[name]:g}"
            yield values.problem(f"{key}.{name}", what, "lower it")


def _check_also(values: Values, domain: Domain) -> Problems:
    """Metrics beside the judge that exist, fit the records, and have their weights on this machine."""
    for name in values.spec.verdict.also:
        if not PATH.search(name):
            tried = attempt(lambda name=name: metrics.named(name).on(domain))  # type: ignore[misc]
            yield from _without_place(tried, values.file, "verdict.also")


def _without_place(tried: Attempt[Any], file: str, key: str) -> Problems:
    for fault in tried.faults:
        yield Problem(file, key, fault.what, fault.remedy or "see `leakgauge list metric`")


def check_verdict(values: Values) -> Problems:
    if not values.judged:
        return
    rules, task = values.spec.verdict, values.spec.task
    encoding = sum(p is not None and bool(p.input) for p in values.defenses.values())  # scored too: one more comparison
    tests = max(1, len(values.defenses) + encoding) * len(set(values.spec.checkpoints.train_steps))
    least = least_p(min(task.records, 10**6)) * 2 * tests
    if least > rules.significance:
        what = (
            f"{task.records} updates cannot reach {rules.significance:g}: the smallest p-value is "
            f"{min(least, 1):.2g}, corrected for {tests} comparison{'s' * (tests > 1)}"
        )
        yield values.problem("verdict.significance", what, _reachable(rules.significance, tests))


def _reachable(level: float, tests: int) -> str:
    enough = next((n for n in range(1, 18) if least_p(n) * 2 * tests <= level), None)
    lowest = least_p(10**6) * 2 * tests
    return (
        f"take at least records = {enough} (in Python updates={enough})"
        if enough
        else f"say at least significance = {lowest:.2g}"
    )


VALUE_CHECKS: tuple[Callable[[Values], Problems], ...] = (
    check_defenses,
    check_own_code,
    check_adversaries,
    check_batches,
    check_left_out,
    check_grants,
    check_rounds,
    check_clients,
    check_thresholds,
    check_verdict,
)
