"""What is wrong with the texts, files and numbers of a draft: small checks, each of which yields problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from leakgauge import data
from leakgauge.errors import nearest
from leakgauge.expr import PATH, REGISTRY, read
from leakgauge.storage.states import State, read_state, some
from leakgauge.study.attempts import Attempt, attempt, problems_of
from leakgauge.study.sections import Problem
from leakgauge.study.skew import skew_problem
from leakgauge.study.spec import brief

if TYPE_CHECKING:
    from leakgauge.study.draft import Draft

MOST_PARAMETERS = 2_000_000_000
Problems = Iterator[Problem]


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
    if "(" in text:
        yield from problems_of(read(text, "loss", where="task.loss", own_code=False), file, "task.loss")
    elif ":" not in text:
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


def check_class_counts(draft: Draft) -> Problems:
    task, domain = draft.spec.task, draft.domain
    problem = skew_problem(task.class_counts, task.recipe.batch, None if domain is None else domain.classes)
    if problem is not None:
        yield Problem(str(draft.file), "task.class_counts", *problem)


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
    own = recipe.batch // recipe.clients
    if recipe.batch % recipe.clients:
        what = f"{recipe.batch} examples are not shared equally by {recipe.clients} clients"
        yield Problem(file, "task.recipe.clients", what, f"say batch = {(own + 1) * recipe.clients}")
    elif recipe.minibatch is not None and recipe.minibatch > own:
        what = f"a minibatch of {recipe.minibatch} from a batch of {own}"
        yield Problem(file, "task.recipe.minibatch", what, f"say at most {own}")
    if recipe.shares == "gradient" and recipe.optimiser == "adam":
        yield Problem(file, "task.recipe.shares", "Adam takes steps, it shares no gradient", 'say "change"')
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
    if replay.defense is not None and replay.defense not in draft.spec.defenses:
        what = f"{replay.defense!r} is none of [defenses]"
        yield Problem(file, "task.replay.defense", what, nearest(replay.defense, draft.spec.defenses))


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
    check_class_counts,
    check_normalise,
    check_recipe,
    check_replay,
    check_expressions,
)
