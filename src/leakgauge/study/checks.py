"""What is wrong with a study: small checks, each of which yields problems; all of them are listed at once.

``CHECKS`` examine a draft: its texts, files and numbers. ``VALUE_CHECKS`` examine values, whether they come from a
draft (a model without memory, nothing of the user's imported) or from a study that is being made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from leakgauge import data, metrics
from leakgauge.adversary import Attack, models_defense
from leakgauge.defenses.protection import Protection
from leakgauge.errors import nearest
from leakgauge.expr import PATH, REGISTRY
from leakgauge.metrics.sign_flips import least_p
from leakgauge.storage.states import State, read_state, some
from leakgauge.study.attempts import Attempt, attempt, problems_of
from leakgauge.study.clients import encodes
from leakgauge.study.kinds import kinds
from leakgauge.study.sections import Attacks, Problem, Spec
from leakgauge.study.spec import brief
from leakgauge.task import Task
from leakgauge.types import Domain, Tree, matching

if TYPE_CHECKING:
    from leakgauge.study.draft import Draft

MOST_PARAMETERS = 2_000_000_000
Problems = Iterator[Problem]

# --- of a draft: texts, files, numbers


def check_model(draft: Draft) -> Problems:
    yield from problems_of(draft.network, str(draft.file), "task.model")
    yield from problems_of(draft.shapes, str(draft.file), "task.model")
    if (model := draft.shapes.value) is None:
        return
    count = sum(p.numel() for p in model.parameters())
    if count > MOST_PARAMETERS:
        what = f"{draft.spec.task.model!r} would have {count:,} parameters"
        yield Problem(str(draft.file), "task.model", what, "make it smaller")


def check_weights(draft: Draft) -> Problems:
    name, key, file = draft.spec.task.weights, "task.weights", str(draft.file)
    if name is None:
        return
    weights = _state(draft, name)
    yield from problems_of(weights, file, key)
    if weights.value is None:
        return
    state = weights.value
    kind = attempt(lambda: state.kind or "state")
    yield from problems_of(kind, file, key)
    if kind.value in ("gradient", "change"):
        yield Problem(file, key, f"{name!r} holds a {kind.value}, not weights", "give the weights")
    misfits = state.misfits(draft.shapes.value) if draft.shapes.value is not None else []
    if misfits:
        yield Problem(file, key, f"{name!r} does not fit the model: {some(misfits)}", "give this model's weights")


def _state(draft: Draft, name: str) -> Attempt[State]:
    return attempt(lambda: read_state(draft.home / name))


def check_loss(draft: Draft) -> Problems:
    text, file = draft.spec.task.loss, str(draft.file)
    if text.isidentifier() or ":" not in text:
        if text not in REGISTRY["loss"]:
            yield Problem(file, "task.loss", f"unknown loss {text!r}", nearest(text, REGISTRY["loss"]))
    elif not PATH.fullmatch(text):
        what = f"{brief(repr(text))} is no path of a loss"
        yield Problem(file, "task.loss", what, "write package.module:name")


def check_data(draft: Draft) -> Problems:
    yield from problems_of(draft.dataset, str(draft.file), "task.data")
    task = draft.spec.task
    if draft.dataset.value is None:
        return
    needed, there = task.records * task.recipe.batch, len(draft.dataset.value.labels("test"))
    if needed > there:
        yield Problem(
            str(draft.file),
            "task.records",
            f"{task.records} updates of a batch of {task.recipe.batch} need {needed} test records, {task.data} has "
            f"{there}",
            f"say at most records = {there // task.recipe.batch}"
            if there >= task.recipe.batch
            else f"say recipe.batch = {max(there, 1)} or less",
        )


def check_normalise(draft: Draft) -> Problems:
    task, domain = draft.spec.task, draft.domain
    if task.normalise is None:
        return
    mean, std, key = task.normalise.mean, task.normalise.std, "task.normalise"
    if len(mean) != len(std):
        yield Problem(str(draft.file), key, f"{len(mean)} means but {len(std)} deviations", "give one per channel")
    elif domain is not None and len(mean) != domain.shape[0]:
        yield Problem(
            str(draft.file),
            key,
            f"{len(mean)} channels, the records of {task.data} have {domain.shape[0]}",
            "give one mean and one deviation per channel",
        )


def check_recipe(draft: Draft) -> Problems:
    recipe, file = draft.spec.task.recipe, str(draft.file)
    if recipe.minibatch is not None and recipe.minibatch > recipe.batch:
        what = f"a minibatch of {recipe.minibatch} from a batch of {recipe.batch}"
        yield Problem(file, "task.recipe.minibatch", what, f"say at most {recipe.batch}")
    if recipe.shares == "gradient" and recipe.local_steps > 1:
        what = f"{recipe.local_steps} local steps have no single gradient"
        yield Problem(file, "task.recipe.shares", what, 'say "change"')


def check_replay(draft: Draft) -> Problems:
    replay, file = draft.spec.task.replay, str(draft.file)
    if replay is None:
        return
    before, after = _state(draft, replay.before), _state(draft, replay.after)
    yield from problems_of(before, file, "task.replay.before")
    if before.value is not None and draft.shapes.value is not None:
        misfits = before.value.misfits(draft.shapes.value)
        if misfits:
            what = f"does not fit the model: {some(misfits)}"
            yield Problem(file, "task.replay.before", what, "give this model's weights")
    yield from problems_of(after, file, "task.replay.after")
    batch = attempt(lambda: data.read_npz(draft.home / replay.batch))
    yield from problems_of(batch, file, "task.replay.batch")


def check_expressions(draft: Draft) -> Problems:
    file = str(draft.file)
    for name, reading in draft.defenses.items():
        yield from problems_of(reading, file, f"defenses.{name}")
    for name, settings in draft.adversaries.items():
        for reading in settings:
            yield from problems_of(reading, file, f"adversaries.{name}")
    if "leave_out" in draft.spec.adversaries:
        remedy = "write leave_out at the top, before any section"
        yield Problem(file, "adversaries.leave_out", "names no adversary", remedy)


CHECKS: tuple[Callable[[Draft], Problems], ...] = (
    check_model,
    check_weights,
    check_loss,
    check_data,
    check_normalise,
    check_recipe,
    check_replay,
    check_expressions,
)

# --- of values


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


EXAMPLES = {"defenses": "clip(norm=1.0) | gaussian(std=0.1)", "adversaries": "inverting_gradients()"}


def check_adversaries(values: Values) -> Problems:
    if not values.adversaries:
        example = EXAMPLES["adversaries"]
        yield values.problem("adversaries", "there is none", f"add one, for instance name = {example!r}")
    for name, settings in values.adversaries.items():
        key = f"adversaries.{name}"
        if not settings:
            yield values.problem(key, "there is no setting in the list", "give one, or several to be tuned")
        for attack in settings:
            fits = getattr(attack, "fits", None)
            if fits is not None and values.params is not None:
                yield from problems_of(attempt(partial(fits, values.params)), values.file, key)


_ARTICLES: dict[Attacks, str] = {"generic": "a", "adaptive": "an"}


def check_left_out(values: Values) -> Problems:
    modelled = [[None if a is None else models_defense(a) for a in s] for s in values.adversaries.values()]
    listed = set() if values.faulty_adversaries else kinds(modelled)
    for i, kind in enumerate(values.spec.leave_out):
        if kind in listed:
            what = f"adversaries lists {_ARTICLES[kind]} {kind} one"
            yield values.problem(f"leave_out.{i}", what, f"take it, or {kind!r} here, out")


def check_grants(values: Values) -> Problems:
    """What is granted must be there to grant, by an address that means one thing.

    Nothing is missed where a defense could not be read: it may have anything.
    """
    read = [values.addresses(protection) for protection in values.defenses.values() if protection is not None]
    here = {address for addresses in read for address in addresses}
    names = here | {address.rpartition(".")[2] for address in here}
    for i, grant in enumerate(values.spec.threat.grants):
        key = f"threat.grants.{i}"
        if not matching(grant, here) and len(read) == len(values.defenses):
            remedy = nearest(grant, names) if here else "take it out: there is nothing to grant"
            yield values.problem(key, f"no defense of this spec has a nuisance {grant!r}", remedy)
        for meant in (matching(grant, addresses) for addresses in read):
            if len(meant) > 1:
                yield values.problem(key, f"{grant!r} may mean {' or '.join(meant)}", f"say {meant[0]!r}")


def check_rounds(values: Values) -> Problems:
    task, bound = values.spec.task, values.spec.bound
    if bound.rounds is not None and bound.rounds < task.rounds:
        what = f"a bound over {bound.rounds} rounds, the adversary sees {task.rounds}"
        yield values.problem("bound.rounds", what, f"say at least {task.rounds}, or leave it out")


def check_clients(values: Values) -> Problems:
    task = values.spec.task
    if task.client_records is not None and task.client_records % task.recipe.batch:
        batch = task.recipe.batch
        what = f"{task.client_records} records do not make whole updates of {batch}"
        yield values.problem("task.client_records", what, f"give a multiple of {batch}")


def check_thresholds(values: Values) -> Problems:
    """Thresholds that a metric can reach, of metrics that fit the records; of one's own only the run can tell."""
    key, asked, domain = "verdict.recognisable", values.spec.verdict.recognisable, values.domain
    if any(PATH.search(name) for name in asked):
        return
    meanings = attempt(lambda: {name: metrics.named(name).meaning for name in asked})
    yield from problems_of(meanings, values.file, key)
    if not meanings.faults and domain is not None:
        yield from _without_place(attempt(lambda: metrics.of(domain, asked)), values.file, key)
    for name, meaning in (meanings.value or {}).items():
        if meaning.best is not None and asked[name] > meaning.best:
            what = f"must be at most {meaning.best:g}, got {asked[name]:g}"
            yield values.problem(f"{key}.{name}", what, "lower it")


def _without_place(tried: Attempt[Any], file: str, key: str) -> Problems:
    for fault in tried.faults:
        yield Problem(file, key, fault.what, fault.remedy or "see `leakgauge list metric`")


def check_verdict(values: Values) -> Problems:
    rules, task = values.spec.verdict, values.spec.task
    encoding = sum(p is not None and bool(p.input) for p in values.defenses.values())  # scored too: one more comparison
    tests = max(1, len(values.defenses) + encoding) * len(set(values.spec.checkpoints.train_steps))
    least = least_p(min(task.records, 10**6)) * 2 * tests
    if least > rules.significance:
        what = (
            f"{task.records} updates cannot reach {rules.significance:g}: the smallest p-value is "
            f"{min(least, 1):.2g}, corrected for {tests} comparisons"
        )
        yield values.problem("verdict.significance", what, _reachable(rules.significance, tests))


def _reachable(level: float, tests: int) -> str:
    enough = next((n for n in range(1, 18) if least_p(n) * 2 * tests <= level), None)
    lowest = least_p(10**6) * 2 * tests
    return f"take at least records = {enough}" if enough else f"say at least significance = {lowest:.2g}"


VALUE_CHECKS: tuple[Callable[[Values], Problems], ...] = (
    check_defenses,
    check_adversaries,
    check_left_out,
    check_grants,
    check_rounds,
    check_clients,
    check_thresholds,
    check_verdict,
)
