"""From what a notebook has at hand to the parts of a study: one's own module, tensors, defenses, attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import attacks, data, losses, models, priors
from leakgauge.adversary import Attack, models_defense
from leakgauge.client import Recipe
from leakgauge.data import Dataset
from leakgauge.defenses.protection import Protection, protection
from leakgauge.errors import DataError, ExpressionError
from leakgauge.expr import described, parse
from leakgauge.study.attempts import Attempt, attempt, problems_of
from leakgauge.study.kinds import missing
from leakgauge.study.sections import Problem, SpecError
from leakgauge.study.spec import examined
from leakgauge.study.starter import PRESETS
from leakgauge.study.study import Assembly, Work
from leakgauge.types import Domain, Records, Threat

Private = Records | Dataset | tuple[Any, Any]
"""Records as they are at hand: ``(inputs, labels)`` as tensors or arrays, Records, or a data set with two splits."""
Defenses = Mapping[str, Any] | Sequence[Any] | Protection | str
Adversaries = Mapping[str, Any]
WHERE = "Study"
MEMORY = "records in memory"
_PARTS = (attacks, losses, priors)
"""Rooms whose import registers the parts that an expression may name."""


def assembly(
    model: nn.Module | str,
    records: Private,
    *,
    defenses: Defenses | None,
    adversaries: Adversaries | None,
    reference: Private | None,
    recipe: Recipe | None,
    threat: Threat | None,
    updates: int | None,
    work: Work,
    task: Mapping[str, Any],
    rest: Mapping[str, Any],
) -> Assembly:
    """The parts of a study, or a :class:`SpecError` with every wrong argument."""
    recipe, threat = recipe if recipe is not None else Recipe(), threat if threat is not None else Threat()
    problems = [*_types(model, recipe, threat, work)]
    dataset = attempt(lambda: _dataset(model, records, reference))
    problems += problems_of(dataset, WHERE, "records")
    module = Attempt[nn.Module]()
    if isinstance(model, nn.Module):
        module = Attempt(model)
    elif isinstance(model, str) and dataset.value is not None:
        domain = dataset.value.domain
        module = attempt(lambda: models.build(model, domain, seed=rest["seed"]))
        problems += problems_of(module, WHERE, "model")
    protections = _each(_named_defenses(defenses), "defenses", _defense, problems)
    attacking = _each(_settings(adversaries), "adversaries", _attacks, problems)
    if not problems:
        added = missing([[models_defense(a) for a in settings] for settings in attacking.values()], rest["leave_out"])
        attacking |= {name: (parse(_default(text, work), "attack"),) for name, text in added.items()}
    raw = {
        "task": {
            "model": model if isinstance(model, str) else f"{type(model).__module__}:{type(model).__qualname__}",
            "data": dataset.value.name if isinstance(records, Dataset) and dataset.value else MEMORY,
            "records": _updates(updates, work, dataset.value, recipe),
            "recipe": _recipe(recipe),
            "loss": described(recipe.loss) if isinstance(recipe, Recipe) else "cross_entropy",
            **_there(task),
        },
        "defenses": {name: repr(how) for name, how in protections.items()},
        "adversaries": {name: _texts(settings) for name, settings in attacking.items()},
        "threat": _threat(threat),
        **_there(rest),
    }
    spec, form = examined(raw, WHERE)
    if problems or form or spec is None or dataset.value is None or module.value is None:
        raise SpecError([*problems, *form])
    return Assembly(spec, WHERE, Path(), module.value, dataset.value, recipe, protections, attacking)


def _types(model: object, recipe: object, threat: object, work: object) -> list[Problem]:
    """Arguments of the wrong type, each in one sentence."""
    wrong = []
    if not isinstance(model, nn.Module | str):
        remedy = "give an nn.Module, or the expression of a model"
        wrong.append(Problem(WHERE, "model", f"is {_a(model)}", remedy))
    if not isinstance(recipe, Recipe):
        wrong.append(Problem(WHERE, "recipe", f"is {_a(recipe)}", "give leakgauge.Recipe(batch=…, …)"))
    if not isinstance(threat, Threat):
        wrong.append(Problem(WHERE, "threat", f"is {_a(threat)}", "give leakgauge.Threat(labels=…, grants=…)"))
    if work not in PRESETS:
        wrong.append(Problem(WHERE, "work", f"is {work!r}", f"say one of {', '.join(PRESETS)}"))
    return wrong


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


# --- records


def _dataset(model: object, private: Private, reference: Private | None) -> Dataset:
    if isinstance(private, Dataset):
        if reference is not None:
            raise DataError("a data set brings its own", where="reference", remedy="leave reference out")
        return private
    records = _records(private, model, "records")
    others = None if reference is None else _records(reference, model, "reference", records.domain)
    if others is not None and others.domain != records.domain:
        raise DataError(
            f"has the domain {others.domain}, the records {records.domain}",
            where="reference",
            remedy="give records of the same kind, shape and classes",
        )
    return data.in_memory(records, others, name=MEMORY)


def _records(private: Private, model: object, where: str, domain: Domain | None = None) -> Records:
    if isinstance(private, Records):
        return private
    if isinstance(private, Dataset):
        return private.train
    if not isinstance(private, tuple | list) or len(private) != 2:
        raise DataError(
            f"is {_a(private)}", where=where, remedy="give (inputs, labels), leakgauge.Records or a data set"
        )
    inputs, labels = (torch.as_tensor(value).detach() for value in private)
    if not inputs.is_floating_point():
        raise DataError(f"inputs are {inputs.dtype}", where=where, remedy="give floating-point inputs")
    if labels.dim() != 1 or labels.is_floating_point():
        shape = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise DataError(f"labels are {shape}", where=where, remedy="give one class number per record")
    return Records(inputs, labels.long(), domain or _domain(inputs, labels, model, where))


def _domain(inputs: Tensor, labels: Tensor, model: object, where: str) -> Domain:
    """Images ``[n, C, H, W]`` or table rows ``[n, features]``; the model's outputs tell the number of classes."""
    kinds: dict[int, Any] = {4: "image", 2: "table"}
    if inputs.dim() not in kinds or not len(inputs):
        raise DataError(
            f"inputs have the shape {tuple(inputs.shape)}",
            where=where,
            remedy="give images [n, C, H, W], table rows [n, features], or leakgauge.Records with a Domain",
        )
    classes = int(labels.max()) + 1 if len(labels) else 1
    if isinstance(model, nn.Module):
        classes = max(classes, _columns(model, inputs))
    return Domain(kinds[inputs.dim()], tuple(inputs.shape[1:]), classes)


def _columns(model: nn.Module, inputs: Tensor) -> int:
    """How many scores the model gives; 0 where it does not take such inputs, which its task will say."""
    like = next(model.parameters(), inputs)
    training = model.training
    try:
        with torch.no_grad():
            outputs = model.eval()(inputs[:2].to(like))
    except Exception:
        return 0
    finally:
        model.train(training)
    return int(outputs.shape[1]) if isinstance(outputs, Tensor) and outputs.dim() == 2 else 0


def _updates(updates: int | None, work: Work, dataset: Dataset | None, recipe: Recipe) -> int:
    """As many as asked for; by default those of the preset, or as many as there are."""
    if updates is not None or dataset is None or not isinstance(recipe, Recipe):
        return updates if updates is not None else 1
    there = len(dataset.labels("test")) // recipe.batch
    return max(1, min(int(PRESETS.get(work, PRESETS["quick"])[0]), there))


# --- defenses and adversaries


def _named_defenses(defenses: Defenses | None) -> Mapping[str, Any]:
    if defenses is None:
        return {"none": Protection()}
    if isinstance(defenses, list | tuple):  # each under its own text
        return {repr(how) if not isinstance(how, str) else how: how for how in defenses}
    return defenses if isinstance(defenses, Mapping) else {"defense": defenses}


def _settings(adversaries: Adversaries | None) -> Mapping[str, Any]:
    if adversaries is None:
        return {}
    return adversaries if isinstance(adversaries, Mapping) else {"adversary": adversaries}


def _each(listed: Mapping[str, Any], group: str, read: Callable[[Any], Any], problems: list[Problem]) -> dict[str, Any]:
    """Name → value; what cannot be read becomes a problem."""
    values: dict[str, Any] = {}
    for name, how in listed.items():
        tried = attempt(lambda how=how: read(how))  # type: ignore[misc]
        problems += problems_of(tried, WHERE, f"{group}.{name}")
        if not tried.faults:
            values[str(name)] = tried.value
    return values


def _defense(how: Any) -> Protection:
    return protection(how)


def _attacks(how: Any) -> tuple[Attack, ...]:
    settings = how if isinstance(how, list | tuple) else [how]
    return tuple(parse(one, "attack", where="adversary") if isinstance(one, str) else _attack(one) for one in settings)


def _attack(one: Any) -> Attack:
    if isinstance(one, type) or not isinstance(one, Attack):
        raise ExpressionError(
            f"{one!r} is not an attack",
            where="adversary",
            remedy="give an attack such as leakgauge.attacks.adaptive(steps=100), its expression, or a callable "
            "(task, observations, *, seed, progress)",
        )
    return one


def _default(text: str, work: Work) -> str:
    """The preset's form of a default adversary."""
    _, *presets = PRESETS[work]
    return next(preset for preset in presets if preset.partition("(")[0] == text.partition("(")[0])


def _texts(settings: Sequence[Attack]) -> str | list[str]:
    texts = [described(attack) for attack in settings]
    return texts[0] if len(texts) == 1 else texts


# --- the same as a spec


def _recipe(recipe: Recipe) -> dict[str, Any]:
    if not isinstance(recipe, Recipe):
        return {}
    names = ["batch", "local_steps", "learning_rate", "mode", "reduction", "shares", "momentum", "weight_decay"]
    names += ["optimiser", "shuffle", "clients", "shares_buffers"]
    numbers = {name: getattr(recipe, name) for name in names}
    return numbers | ({} if recipe.minibatch is None else {"minibatch": recipe.minibatch})


def _threat(threat: Threat) -> dict[str, Any]:
    if not isinstance(threat, Threat):
        return {}
    return {"labels": threat.labels, "learning_rate": threat.learning_rate, "grants": sorted(threat.grants)}


def _there(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section without what was not said."""
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in section.items() if v is not None}
