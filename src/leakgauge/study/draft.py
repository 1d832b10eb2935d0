"""A spec as far as it can be read without the user's code: every expression is read here, once.

``leakgauge check`` examines a draft; :meth:`Draft.study` imports the user's code and makes the study.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from leakgauge import attacks, data, losses, models, priors
from leakgauge.adversary import Attack, models_defense
from leakgauge.client import Recipe
from leakgauge.defenses.protection import Protection, protection
from leakgauge.expr import PATH, Reading, read
from leakgauge.losses import loss_named
from leakgauge.models.base import Network
from leakgauge.storage.states import read_state
from leakgauge.study.attack_texts import read_attack
from leakgauge.study.attempts import Attempt, attempt, problems_of
from leakgauge.study.checks import CHECKS
from leakgauge.study.fits import Values, problems_of_values
from leakgauge.study.kinds import Settings, missing
from leakgauge.study.sections import Problem, RecipeSpec, Spec, SpecError
from leakgauge.study.spec import examined, table
from leakgauge.study.study import Assembly, Study
from leakgauge.task import Task
from leakgauge.types import Domain, Loss

_PARTS = (attacks, losses, priors)
"""Rooms whose import registers the parts that an expression may name."""


@dataclass(frozen=True)
class Draft:
    """A spec with its parts as values; a part of the user's own is None until :meth:`study` reads it."""

    spec: Spec
    """As it is run: with the adversaries that were added."""
    file: Path
    network: Reading
    defenses: Mapping[str, Reading]
    adversaries: Mapping[str, tuple[Reading, ...]]
    judged: bool = True
    """Whether verdicts are wanted: only then must the records suffice to reach the level."""

    @classmethod
    def of(cls, spec: Spec, file: Path, *, judged: bool = True) -> Draft:
        """Read the expressions of a spec; relative paths start at the folder of ``file``."""
        model = spec.task.model
        named = model.isidentifier() or PATH.fullmatch(model) is not None  # a name needs no parentheses here
        adversaries = {name: tuple(_attack(name, text) for text in spec.settings(name)) for name in spec.adversaries}
        added = missing(map(_models, adversaries.values()), spec.leave_out)
        return cls(
            spec.model_copy(update={"adversaries": {**spec.adversaries, **added}}),
            file,
            read(f"{model}()" if named else model, "model", where="task.model", own_code=False),
            {name: _defense(name, text) for name, text in spec.defenses.items()},
            {**adversaries, **{name: (_attack(name, text),) for name, text in added.items()}},
            judged,
        )

    @property
    def home(self) -> Path:
        return self.file.parent

    @property
    def own_code(self) -> list[str]:
        """The user's own objects that the spec names: an audit imports them."""
        readings = [
            self.network,
            *self.defenses.values(),
            *(r for settings in self.adversaries.values() for r in settings),
        ]
        task, verdict = self.spec.task, self.spec.verdict
        named = (task.loss, task.data, *verdict.recognisable, *verdict.also)
        texts = [path for text in named for path in PATH.findall(text)]
        return list(dict.fromkeys([*self.network.own, *texts, *(path for reading in readings for path in reading.own)]))

    # --- what is built without the user's code

    @cached_property
    def dataset(self) -> Attempt[data.Dataset]:
        return Attempt() if PATH.fullmatch(self.spec.task.data) else attempt(self._data)

    def _data(self) -> data.Dataset:
        near = self.home / self.spec.task.data
        return data.load(str(near) if near.exists() else self.spec.task.data)

    @property
    def domain(self) -> Domain | None:
        return None if self.dataset.value is None else self.dataset.value.domain

    @cached_property
    def shapes(self) -> Attempt[nn.Module]:
        """A model of ours without memory: shapes only. None for the user's, or where the records are not known."""
        domain, network = self.domain, self.network.value
        if domain is None or not isinstance(network, Network):
            return Attempt()

        def build() -> nn.Module:
            with torch.device("meta"):
                return models.build(network, domain)

        return attempt(build)

    @cached_property
    def bare(self) -> Attempt[Task]:
        """The client without a defense, without memory."""
        recipe = self.spec.task.recipe
        if self.shapes.value is None or (recipe.minibatch or 1) > recipe.batch // recipe.clients:
            return Attempt()
        if recipe.batch % recipe.clients or (recipe.optimiser, recipe.shares) == ("adam", "gradient"):
            return Attempt()
        return attempt(lambda: self._bare_under(Protection()))

    def _bare_under(self, how: Protection) -> Task:
        assert self.shapes.value is not None
        assert self.domain is not None
        with torch.device("meta"):
            return Task(self.shapes.value, self.domain, _recipe(self.spec.task.recipe, losses.CrossEntropy()), how)

    # --- problems

    def problems(self) -> list[Problem]:
        """Everything that is wrong, in the order of the file as far as possible; imports none of the user's code."""
        return [*self._text_problems(), *self._value_problems()]

    def _text_problems(self) -> list[Problem]:
        return [problem for check in CHECKS for problem in check(self)]

    def _value_problems(self) -> list[Problem]:
        bare = self.bare.value
        values = problems_of_values(
            Values(
                self.spec,
                str(self.file),
                self.domain,
                None if bare is None else bare.params,
                None if bare is None else self._bare_under,
                {name: reading.value for name, reading in self.defenses.items()},
                {name: tuple(reading.value for reading in settings) for name, settings in self.adversaries.items()},
                faulty_adversaries=any(r.faults for settings in self.adversaries.values() for r in settings),
                judged=self.judged,
            )
        )

        return [*problems_of(self.bare, str(self.file), "task.model"), *values]

    def found_early(self, otherwise_wrong: bool) -> list[Problem]:
        """All problems, if there are any in the texts, or if the user's code is needed to look further.

        Else whoever makes the study finds the others, and builds every task only once.
        """
        texts = self._text_problems()
        return [*texts, *self._value_problems()] if texts or otherwise_wrong or self.own_code else []

    # --- the study

    def study(self) -> Study:
        """The study, with everything the spec names; imports the user's code. All problems are raised at once."""
        if wrong := self._text_problems():
            raise SpecError([*wrong, *self._value_problems()])
        defenses = {name: _with_own_code(reading, _defense, name) for name, reading in self.defenses.items()}
        adversaries = {
            name: tuple(_with_own_code(reading, _attack, name) for reading in settings)
            for name, settings in self.adversaries.items()
        }
        dataset = self._data() if self.dataset.value is None else self.dataset.value
        loss = attempt(lambda: loss_named(self.spec.task.loss))
        module = attempt(lambda: self._module(dataset.domain))
        wrong = [
            *self._told("task.model", module),
            *self._told("task.loss", loss),
            *(problem for name, reading in defenses.items() for problem in self._told(f"defenses.{name}", reading)),
            *(
                problem
                for name, settings in adversaries.items()
                for reading in settings
                for problem in self._told(f"adversaries.{name}", reading)
            ),
        ]
        if wrong or module.value is None or loss.value is None:
            raise SpecError(wrong)
        protections: dict[str, Protection] = {name: reading.value for name, reading in defenses.items()}
        attacking: dict[str, tuple[Attack, ...]] = {
            name: tuple(reading.value for reading in settings) for name, settings in adversaries.items()
        }
        recipe = _recipe(self.spec.task.recipe, loss.value)
        return Study.assembled(
            Assembly(
                self.spec,
                str(self.file),
                self.home,
                module.value,
                dataset,
                recipe,
                protections,
                attacking,
                judged=self.judged,
            )
        )

    def _told(self, key: str, tried: Reading | Attempt[nn.Module] | Attempt[Loss]) -> list[Problem]:
        return list(problems_of(tried, str(self.file), key))

    def _module(self, domain: Domain) -> nn.Module:
        task, network = self.spec.task, self.network.value
        how = network if isinstance(network, Network) else task.model
        module = models.build(how, domain, seed=self.spec.seed)
        if task.weights:
            read_state(self.home / task.weights).into(module)
        return module


def sound(path: Path, *, judged: bool = True) -> Draft:
    """The draft of a file, or a :class:`SpecError` with all its problems, of form and of sense.

    What remains, whether parts and numbers fit together, is found where the study is made. Commands that reach no
    verdict say ``judged=False``: how many records a verdict needs is no problem of theirs.
    """
    spec, form = examined(table(path), str(path))
    draft = None if spec is None else Draft.of(spec, path, judged=judged)
    sense = [] if draft is None else draft.found_early(bool(form))
    wrong = [problem.key for problem in form]
    beside = [p for p in sense if not any(_within(p.key, key) or _within(key, p.key) for key in wrong)]
    if draft is None or form or beside:
        raise SpecError([*form, *beside])
    return draft


def problems(spec: Spec, file: str | Path) -> list[Problem]:
    """Everything that is wrong with a well-formed spec, all at once; imports none of the user's code.

    ``file`` is named in the problems, and relative paths start at its folder.
    """
    return Draft.of(spec, Path(file)).problems()


def _within(key: str, outer: str) -> bool:
    return f"{key}.".startswith(f"{outer}.")


class _Reader(Protocol):
    def __call__(self, name: str, text: str, *, own_code: bool = False) -> Reading: ...


def _defense(name: str, text: str, *, own_code: bool = False) -> Reading:
    reading = read(text, "defense", where=f"defenses.{name}", own_code=own_code)
    if reading.value is None:
        return reading
    whole = attempt(lambda: protection(reading.value))
    return replace(reading, value=whole.value, faults=whole.faults)


def _attack(name: str, text: str, *, own_code: bool = False) -> Reading:
    return read_attack(text, f"adversaries.{name}", own_code=own_code)


def _with_own_code(reading: Reading, reader: _Reader, name: str) -> Reading:
    """The same reading where it is complete; else read again, now with the user's code."""
    return reading if reading.value is not None else reader(name, reading.text, own_code=True)


def _models(settings: tuple[Reading, ...]) -> Settings:
    """What each setting models. The user's own attack counts as generic; of a faulty expression nothing is known."""
    return [
        None if reading.faults else "none" if reading.value is None else models_defense(reading.value)
        for reading in settings
    ]


def _recipe(section: RecipeSpec, loss: Loss) -> Recipe:
    numbers = section.model_dump(exclude={"shares"})
    trains = section.local_steps > 1 or section.optimiser == "adam"
    shares = section.shares or ("change" if trains else "gradient")
    return Recipe(shares=shares, loss=loss, **numbers)
