"""A study: an audit as typed values. Text ends here; nothing after it parses an expression.

>>> import torch, leakgauge as lg
>>> x, y = torch.rand(60, 1, 28, 28), torch.arange(60) % 3
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))
>>> study = lg.Study(model, (x, y), defenses={"none": "identity()", "noisy": "gaussian(std=0.1)"})
>>> study
Study of 2 defenses x 2 adversaries on 10 updates of 1 record
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from leakgauge import metrics, models
from leakgauge.adversary import Attack
from leakgauge.attacks.choosing import Chooser
from leakgauge.client import LABELS, Recipe
from leakgauge.data import Dataset
from leakgauge.defenses.protection import Protection
from leakgauge.metrics import DomainMetrics
from leakgauge.study import own_code
from leakgauge.study.attempts import attempt, problems_of
from leakgauge.study.fits import Values, problems_of_values
from leakgauge.study.learned import problems_of_priors
from leakgauge.study.peers import peers
from leakgauge.study.roles import Roles, digest
from leakgauge.study.sections import Attacks, Checkpoints, Problem, Spec, SpecError, VerdictSpec
from leakgauge.study.skew import skew_problem
from leakgauge.task import Task
from leakgauge.threads import one_thread
from leakgauge.types import Records, Threat

if TYPE_CHECKING:
    from leakgauge.study.notebook import Adversaries, Defenses, Private

Work = Literal["quick", "standard", "thorough"]
"""How much work the default adversaries do, and on how many updates."""


@dataclass(frozen=True)
class Assembly:
    """What a study is made of, whether it came from a spec or from a notebook.

    ``module`` is the model as given, with its weights; the spec says how it normalises. ``file`` is named in problems.
    ``judged`` says whether its records must suffice for a verdict.
    """

    spec: Spec
    file: str
    home: Path
    module: nn.Module
    dataset: Dataset
    recipe: Recipe
    defenses: Mapping[str, Protection]
    adversaries: Mapping[str, tuple[Attack, ...]]
    judged: bool = True


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Study:
    """An audit as values: the client, records in their roles, protections and attacks by name, a threat, and numbers.

    ``records`` are ``(inputs, labels)``, :class:`~leakgauge.Records` or a data set. ``reference`` records are what
    anybody may know of such data: nulls, guesses and tuning use them and never the private ones. Without them half of
    the records of each class take that role. ``updates`` of the private records are attacked and reported.

    ``defenses`` maps names to protections, parts or expressions; ``adversaries`` maps names to attacks or expressions,
    or to lists of them, which are tuned. A generic and an adaptive adversary are added where none is listed, unless
    ``leave_out`` says so; ``work`` says how much the default ones do. ``class_counts`` skews the batches: ``[5, 1, 1,
    1]`` has one class five times. ``checkpoints``, ``verdict``, ``bound``, ``price`` and ``replay`` are sections as in
    a spec, given as mappings.

    All problems are raised at once, as a :class:`~leakgauge.study.SpecError`. Inside, ``adversaries`` maps every name
    to a tuple of settings, and ``spec`` is the text of it all, for people and for the run folder.
    """

    spec: Spec
    file: str
    home: Path
    module: nn.Module
    """The model as given: without normalisation, without a defense."""
    task: Task
    """The client without a defense."""
    roles: Roles
    defenses: Mapping[str, Protection]
    adversaries: Mapping[str, tuple[Attack, ...]]
    threat: Threat
    metrics: DomainMetrics
    """How near a reconstruction is to a record, and from where on it counts."""
    _tasks: dict[str, Task] = field(default_factory=dict)
    _prints: dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        model: nn.Module | str,
        records: Private,
        *,
        defenses: Defenses | None = None,
        adversaries: Adversaries | None = None,
        reference: Private | None = None,
        recipe: Recipe | None = None,
        threat: Threat | None = None,
        updates: int | None = None,
        rounds: int = 1,
        client_records: int | None = None,
        class_counts: Sequence[int] | None = None,
        work: Work = "quick",
        leave_out: Sequence[Attacks] = (),
        checkpoints: Mapping[str, Any] | None = None,
        tuning: int = 8,
        verdict: Mapping[str, Any] | None = None,
        bound: Mapping[str, Any] | None = None,
        price: Mapping[str, Any] | None = None,
        replay: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        from leakgauge.study.notebook import assembly  # it assembles what this class holds

        sections = {"checkpoints": checkpoints, "verdict": verdict, "bound": bound, "price": price}
        self._fill(
            assembly(
                model,
                records,
                defenses=defenses,
                adversaries=adversaries,
                reference=reference,
                recipe=recipe,
                threat=threat,
                updates=updates,
                work=work,
                task={
                    "rounds": rounds,
                    "client_records": client_records,
                    "class_counts": None if class_counts is None else list(class_counts),
                    "replay": replay,
                },
                rest={"leave_out": list(leave_out), "tuning": {"records": tuning}, "seed": seed, **sections},
            )
        )

    @classmethod
    def of(cls, spec: Spec, home: Path | str = ".") -> Study:
        """The study of a spec; relative paths start at ``home``. Imports the user's code that the spec names."""
        from leakgauge.study.draft import Draft  # a draft becomes a study

        return Draft.of(spec, Path(home) / "spec").study()

    @classmethod
    def load(cls, path: Path | str) -> Study:
        """The study of a TOML file. Imports the user's code that the spec names."""
        from leakgauge.study.draft import sound

        return sound(Path(path)).study()

    @classmethod
    def assembled(cls, parts: Assembly) -> Study:
        """The study of parts that are already values."""
        study = cls.__new__(cls)
        study._fill(parts)
        return study

    def _fill(self, parts: Assembly) -> None:
        spec = parts.spec
        threat = Threat(frozenset(spec.threat.grants), spec.threat.labels, spec.threat.learning_rate)
        tuned = any(len(settings) > 1 for settings in parts.adversaries.values())
        _check_counts(parts)
        firsts = [one for settings in parts.adversaries.values() for one in settings[:1]]
        wanted = max((one.reference for one in firsts if isinstance(one, Chooser)), default=0)
        roles = attempt(
            lambda: Roles.of(
                parts.dataset,
                updates=spec.task.records,
                batch=parts.recipe.batch,
                tuning=spec.tuning.records if tuned else 0,
                wanted=wanted,
                labels_granted=threat.knows(LABELS),
                seed=spec.seed,
                counts=spec.task.class_counts,
            )
        )
        task = attempt(lambda: Task(_normalised(parts.module, spec), parts.dataset.domain, parts.recipe))
        if task.value is None:
            raise SpecError(
                [*problems_of(roles, parts.file, "task.data"), *problems_of(task, parts.file, "task.model")]
            )
        if task.value.domain.kind == "tokens":
            remedy = "ask leakgauge.preflight.preflight(task) which tokens an update names"
            raise SpecError([Problem(parts.file, "task.data", "holds tokens, which are not attacked", remedy)])
        scoring = attempt(partial(_metrics, parts, task.value))
        values = {
            "spec": spec,
            "file": parts.file,
            "home": parts.home,
            "module": parts.module,
            "task": task.value,
            "roles": roles.value,
            "defenses": dict(parts.defenses),
            "adversaries": dict(parts.adversaries),
            "threat": threat,
            "metrics": scoring.value,
            "_tasks": {},
            "_prints": {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        problems = problems_of_values(
            Values(
                spec,
                parts.file,
                self.task.domain,
                self.task.params,
                self.under,
                self.defenses,
                self.adversaries,
                judged=parts.judged,
            )
        )
        if not any(problem.key.startswith("verdict.") for problem in problems):  # else it says the same
            problems += problems_of(scoring, parts.file, "verdict.also" if spec.verdict.also else "verdict")
        if roles.value is not None:
            problems = [*problems, *problems_of_priors(self.adversaries, self.roles.reported, parts.file)]
        elif not problems:
            raise roles.faults[0]
        if problems:
            raise SpecError([*problems_of(roles, parts.file, "task.data"), *problems])

    def __repr__(self) -> str:
        many = [(len(self.defenses), "defense"), (len(self.adversaries), "adversary"), (self.updates, "update")]
        defenses, adversaries, updates = (_many(count, word) for count, word in many)
        return f"Study of {defenses} x {adversaries} on {updates} of {_many(self.task.recipe.batch, 'record')}"

    def __getstate__(self) -> dict[str, Any]:
        """Worker processes get the values; each builds the tasks it needs."""
        return {**self.__dict__, "_tasks": {}}

    def under(self, protection: Protection) -> Task:
        """The client under a protection, at the weights as given; built once per process."""
        key = repr(protection)
        if key == repr(self.task.protection):
            return self.task
        if key not in self._tasks:
            self._tasks[key] = replace(self.task, protection=protection)
        return self._tasks[key]

    def in_private_order(self) -> Study:
        """The same study with its records in an order that does not follow from the seed; see :class:`Roles`."""
        study = copy(self)
        for name in ("peers", "content"):  # computed of the other order
            study.__dict__.pop(name, None)
        object.__setattr__(study, "roles", self.roles.in_private_order(self.task.recipe.batch))
        return study

    # --- records in their roles

    @property
    def records(self) -> Records:
        """The records that are reported."""
        return self.roles.reported

    @property
    def others(self) -> Records:
        return self.roles.others

    @property
    def tuning(self) -> Records:
        return self.roles.tuning

    @property
    def reference(self) -> Records:
        return self.roles.reference

    @property
    def train(self) -> Records:
        return self.roles.train

    @property
    def test(self) -> Records:
        return self.roles.test

    @property
    def labels_granted(self) -> bool:
        return self.threat.knows(LABELS)

    @cached_property
    def peers(self) -> Records:
        """The reported records, then others that could have stood in their place."""
        return peers(self.roles, labels_granted=self.labels_granted, seed=self.seed)

    @property
    def peer_groups(self) -> Tensor:
        """Peers of a group are each other's: those of a class where labels are granted, else all."""
        return self.peers.labels if self.labels_granted else torch.zeros_like(self.peers.labels)

    def guess(self) -> Tensor:
        """The best guess without an update, for every reported record."""
        return self.roles.guess(self.labels_granted)

    # --- numbers

    @property
    def updates(self) -> int:
        """How many updates are attacked and reported."""
        return self.spec.task.records

    @property
    def rounds(self) -> int:
        """In how many rounds each update is observed."""
        return self.spec.task.rounds

    @property
    def bound_rounds(self) -> int:
        """The rounds that bounds are about."""
        return self.spec.bound.rounds or self.spec.task.rounds

    @property
    def checkpoints(self) -> Checkpoints:
        return self.spec.checkpoints

    @property
    def verdict(self) -> VerdictSpec:
        return self.spec.verdict

    @property
    def seed(self) -> int:
        return self.spec.seed

    @property
    def notes(self) -> list[str]:
        """What a reader has to know about who attacked."""
        return self.spec.notes()

    def fingerprint(self, defense: Protection) -> str:
        """What a defense with the user's own code does, beside what its text says; empty of ours."""
        if not own_code.has_own_code(defense):
            return ""
        key = repr(defense)
        if key not in self._prints:
            self._prints[key] = own_code.fingerprint(self.under(defense))
        return self._prints[key]

    @cached_property
    def content(self) -> str:
        """What the task computes, by content: its state, and its outputs and gradient on a seeded probe."""
        probe = self.reference[:2]
        with one_thread():
            update = self.task.update(probe)
            with torch.no_grad():
                outputs = self.task.working(probe.inputs.to(next(iter(self.task.params.values()))))
        return digest(
            {**self.task.params, **self.task.buffers, **{f"∇{n}": v for n, v in update.items()}, "h": outputs}
        )


def _check_counts(parts: Assembly) -> None:
    """Records are chosen by these counts, so that what is wrong with them is said before."""
    domain, spec = parts.dataset.domain, parts.spec
    problem = skew_problem(spec.task.class_counts, spec.task.recipe.batch, domain.classes)
    if problem is not None:
        raise SpecError([Problem(parts.file, "task.class_counts", *problem)])


def _metrics(parts: Assembly, task: Task) -> DomainMetrics:
    """How records are scored: what the domain says, what the spec asks for, through the model as the client begins."""
    rules = parts.spec.verdict
    return metrics.of(task.domain, rules.recognisable, exact=rules.exact, also=rules.also, model=task.model)


def _normalised(module: nn.Module, spec: Spec) -> nn.Module:
    norm = spec.task.normalise
    return module if norm is None else models.normalised(module, norm.mean, norm.std)


def _many(count: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word if count == 1 else plural}"
