"""What is wrong with a well-formed spec: expressions, names, files, and numbers that cannot work together.

Nothing of the user's is imported: a ``package.module:name`` is checked for its form only, and what depends on it is
left to the run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

import leakgauge
from leakgauge import data, models
from leakgauge.client import Recipe
from leakgauge.defenses.protection import Protection, protection
from leakgauge.errors import LeakgaugeError, nearest
from leakgauge.expr import PATH, REGISTRY, paths, plugins
from leakgauge.metrics.sign_flips import least_p
from leakgauge.storage.states import read_state, some
from leakgauge.study.clients import encodes
from leakgauge.study.spec import Problem, Spec, kinds, shown
from leakgauge.task import Task
from leakgauge.types import Domain, matching

KINDS = {
    "defenses": (("defense",), "a defense", "leakgauge list defense"),
    "adversaries": (("attack", "adversary"), "an attack", "leakgauge list attack"),
    "task.model": (("model",), "a model", "leakgauge list model"),
    "task.loss": (("loss",), "a loss", "leakgauge list loss"),
}
MOST_PARAMETERS = 2_000_000_000
SMALLEST_SSIM = 11


@dataclass
class Checks:
    """One spec under examination; ``problems()`` returns everything it found."""

    spec: Spec
    file: Path
    found: list[Problem] = field(default_factory=list)
    protections: list[Protection] = field(default_factory=list)
    """The defenses that could be read without the user's code."""

    def problems(self) -> list[Problem]:
        """Every problem, in the order of the file."""
        leakgauge.parse("identity()")  # registers every part
        self._model()
        self._loss()
        self._data()
        self._recipe()
        self._replay()
        self._parts("defenses", self.spec.defenses)
        self._parts("adversaries", self.spec.adversaries)
        self._left_out()
        self._grants()
        self._threat()
        self._verdict()
        return self.found

    def _threat(self) -> None:
        threat = self.spec.threat
        given = [text for name in self.spec.adversaries for text in self.spec.settings(name)]
        if threat.labels == "joint" and any("adaptive" in text for text in given):
            self.add(
                "threat.labels",
                "adaptive() does not search for labels",
                'say "inferred", or leave_out = ["adaptive"] at the top of the spec',
            )

    def add(self, key: str, what: str, remedy: str) -> None:
        self.found.append(Problem(str(self.file), key, what, remedy))

    def tried(self, key: str, work: Callable[..., Any], *given: Any) -> Any:
        """What ``work`` returns, or None and a problem that says why not."""
        try:
            return work(*given)
        except LeakgaugeError as fault:
            what = f"{fault.where}: {fault.what}" if fault.where and fault.where not in _said(key) else fault.what
            self.add(key, shown(what, 300), fault.remedy or "see `leakgauge list`")
        except (OSError, ValueError, MemoryError, RuntimeError) as fault:
            self.add(key, shown(f"cannot be used ({fault or type(fault).__name__})", 200), "check it")
        return None

    # --- expressions

    def part(self, key: str, text: str, group: str) -> Any:
        """The part of an expression, None if it is a stranger's or has problems, all of which are added."""
        before = len(self.found)
        kinds, called, listing = KINDS[group]
        known = {name for kind in kinds for name in REGISTRY.get(kind, {})}
        hidden, strangers = paths.hidden(text)
        others = set(plugins())  # names only: nothing is loaded
        for stranger in strangers.values():
            if stranger.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
                self.add(key, f"{stranger!r} is in the standard library", "name an object of a package of your own")
        try:
            tree = ast.parse(hidden.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            self.add(key, f"cannot read {shown(repr(text))}", f"write it like {_example(kinds)}")
            return None
        every = {name for by in REGISTRY.values() for name in by}
        for name in dict.fromkeys(paths.names(tree)):
            if name not in every and name not in strangers and name not in others:
                self.add(key, f"unknown name {name!r} in {shown(repr(text))}", nearest(name, known))
        for name in paths.outermost(tree):
            if name in every and name not in known:
                self.add(key, f"{name!r} is not {called}", f"see `{listing}`")
        if len(self.found) > before:
            return None
        others = (set(strangers) | others) - every
        if others & set(paths.names(tree)):
            for piece in paths.pieces(tree):
                if not others & set(paths.names(piece)):
                    self.tried(key, _parse, ast.unparse(piece), kinds[0], key)
            return None
        return self.tried(key, _parse, text, kinds[0], key)

    def _parts(self, group: str, given: Mapping[str, str | list[str]]) -> None:
        if not given:
            self.add(group, "there is none", f"add one, for instance name = {_example(KINDS[group][0])!r}")
        for name, texts in given.items():
            if not texts:
                self.add(f"{group}.{name}", "there is no setting in the list", "give one, or several to be tuned")
            for text in [texts] if isinstance(texts, str) else texts:
                made = self.part(f"{group}.{name}", text, group)
                if made is not None and group == "defenses":
                    self._defense(f"{group}.{name}", self.tried(f"{group}.{name}", protection, made))
                if hasattr(made, "fits") and group == "adversaries" and self._bare is not None:
                    self.tried(f"{group}.{name}", made.fits, self._bare.params)

    def _left_out(self) -> None:
        listed = kinds(self.spec.adversaries)
        for i, kind in enumerate(self.spec.leave_out):
            if kind in listed:
                self.add(f"leave_out.{i}", f"adversaries lists a {kind} one", f"take it, or {kind!r} here, out")
        if "leave_out" in self.spec.adversaries:
            self.add("adversaries.leave_out", "names no adversary", "write leave_out at the top, before any section")

    def _defense(self, key: str, made: Protection | None) -> None:
        """Whether it can do its work here: encode so few records, change such a model, find its layer."""
        if made is None:
            return
        self.protections.append(made)
        for part in made.input if self._domain is not None else ():
            self.tried(key, encodes, part, self._domain, self.spec)
        if self._bare is not None:
            self.tried(key, self._task, made)

    def _task(self, made: Protection) -> Task:
        """The client under a defense, without memory: shapes only."""
        assert self._built is not None
        assert self._domain is not None
        given = self.spec.task.recipe.model_dump(exclude={"shares"}, exclude_none=True)
        shares: Any = "change" if self.spec.task.recipe.local_steps > 1 else "gradient"
        with torch.device("meta"):
            return Task(self._built, self._domain, Recipe(shares=shares, **given), made)

    @cached_property
    def _bare(self) -> Task | None:
        """The client without a defense; None where it is the user's, or has problems of its own."""
        recipe = self.spec.task.recipe
        if self._built is None or (recipe.minibatch or 1) > recipe.batch:
            return None
        found: Task | None = self.tried("task.model", self._task, Protection())
        return found

    # --- model, loss, data

    def _model(self) -> None:
        text, task = self.spec.task.model, self.spec.task
        if text.isidentifier():
            if text not in REGISTRY["model"]:
                self.add("task.model", f"unknown model {text!r}", nearest(text, REGISTRY["model"]))
                self._weights(None)
                return
        elif self.part("task.model", text, "task.model") is None:
            self._weights(None)
            return
        model = self._built
        if model is not None and sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
            count = sum(p.numel() for p in model.parameters())
            self.add("task.model", f"{text!r} would have {count:,} parameters", "make it smaller")
        if task.weights is not None:
            self._weights(model)

    @cached_property
    def _built(self) -> nn.Module | None:
        """A model of ours without memory: shapes only. None for the user's, or where the records are not known."""
        domain = self._domain
        known = any(problem.key == "task.model" for problem in self.found)
        if domain is None or known or PATH.search(self.spec.task.model):
            return None

        def build() -> nn.Module:
            with torch.device("meta"):
                return models.build(self.spec.task.model, domain)

        made: nn.Module | None = self.tried("task.model", build)
        return made

    def _weights(self, model: nn.Module | None) -> None:
        given = self.spec.task.weights
        if given is None:
            return
        state = self.tried("task.weights", read_state, self.file.parent / given)
        if state is None:
            return
        if self.tried("task.weights", lambda: state.kind or "state") in ("gradient", "change"):
            self.add("task.weights", f"{given!r} holds a {state.kind}, not weights", "give the weights")
        misfits = state.misfits(model) if model is not None else []
        if misfits:
            self.add("task.weights", f"{given!r} does not fit the model: {some(misfits)}", "give this model's weights")

    def _loss(self) -> None:
        text = self.spec.task.loss
        if text.isidentifier() or ":" not in text:
            if text not in REGISTRY["loss"]:
                self.add("task.loss", f"unknown loss {text!r}", nearest(text, REGISTRY["loss"]))
        elif not PATH.fullmatch(text):
            self.add("task.loss", f"{shown(repr(text))} is no path of a loss", "write package.module:name")

    @cached_property
    def _dataset(self) -> data.Dataset | None:
        text = self.spec.task.data
        if PATH.fullmatch(text):
            return None

        def look() -> data.Dataset:
            near = self.file.parent / text
            return data.load(str(near) if near.exists() else text)

        found: data.Dataset | None = self.tried("task.data", look)
        return found

    @property
    def _domain(self) -> Domain | None:
        return None if self._dataset is None else self._dataset.domain

    def _data(self) -> None:
        task, found, domain = self.spec.task, self._dataset, self._domain
        if task.normalise is not None:
            mean, std = task.normalise.mean, task.normalise.std
            if len(mean) != len(std):
                self.add("task.normalise", f"{len(mean)} means but {len(std)} deviations", "give one per channel")
            elif domain is not None and len(mean) != domain.shape[0]:
                self.add(
                    "task.normalise",
                    f"{len(mean)} channels, the records of {task.data} have {domain.shape[0]}",
                    "give one mean and one deviation per channel",
                )
        if found is None:
            return
        needed, there = task.records * task.recipe.batch, len(found.labels("test"))
        if needed > there:
            self.add(
                "task.records",
                f"{task.records} updates of a batch of {task.recipe.batch} need {needed} test records, {task.data} has "
                f"{there}",
                f"say at most records = {there // task.recipe.batch}"
                if there >= task.recipe.batch
                else f"say recipe.batch = {max(there, 1)} or less",
            )

    # --- numbers that must fit together

    def _recipe(self) -> None:
        recipe = self.spec.task.recipe
        if recipe.minibatch is not None and recipe.minibatch > recipe.batch:
            self.add(
                "task.recipe.minibatch",
                f"a minibatch of {recipe.minibatch} from a batch of {recipe.batch}",
                f"say at most {recipe.batch}",
            )
        if recipe.shares == "gradient" and recipe.local_steps > 1:
            self.add("task.recipe.shares", f"{recipe.local_steps} local steps have no single gradient", 'say "change"')

    def _replay(self) -> None:
        replay = self.spec.task.replay
        if replay is None:
            return
        for name, given in (("before", replay.before), ("after", replay.after)):
            state = self.tried(f"task.replay.{name}", read_state, self.file.parent / given)
            if state is not None and name == "before" and self._built is not None:
                misfits = state.misfits(self._built)
                if misfits:
                    self.add(
                        "task.replay.before", f"does not fit the model: {some(misfits)}", "give this model's weights"
                    )
        self.tried("task.replay.batch", data.read_npz, self.file.parent / replay.batch)

    def _grants(self) -> None:
        """What is granted must be there to grant; a defense of the user's own may have anything."""
        here = {address for one in self.protections for address in one.nuisances}
        unread = len(self.protections) < len(self.spec.defenses)
        for i, name in enumerate(self.spec.threat.grants):
            if not matching(name, here) and not unread:
                remedy = nearest(name, here) if here else "take it out: there is nothing to grant"
                self.add(f"threat.grants.{i}", f"no defense of this spec has a nuisance {name!r}", remedy)
            for one in self.protections:
                meant = matching(name, one.nuisances)
                if len(meant) > 1:
                    self.add(f"threat.grants.{i}", f"{name!r} may mean {' or '.join(meant)}", f"say {meant[0]!r}")

    def _verdict(self) -> None:
        rules, task = self.spec.verdict, self.spec.task
        asked = rules.recognisable
        if asked.ssim is None and asked.psnr is None:
            self.add("verdict.recognisable", "there is no leak threshold", "say { ssim = 0.5 } or { psnr = 20.0 }")
        elif asked.psnr is None and self._domain is not None and min(self._domain.shape[-2:]) < SMALLEST_SSIM:
            self.add(
                "verdict.recognisable",
                f"SSIM needs images of {SMALLEST_SSIM}x{SMALLEST_SSIM}, these are {self._domain.shape}",
                "say { psnr = 20.0 }",
            )
        encoding = sum(bool(made.input) for made in self.protections)  # scored too: a comparison of their own
        tests = max(1, len(self.spec.defenses) + encoding) * len(set(self.spec.checkpoints.train_steps))
        least = least_p(min(task.records, 10**6)) * 2 * tests
        if least > rules.significance:
            self.add(
                "verdict.significance",
                f"{task.records} updates cannot reach {rules.significance:g}: the smallest p-value is "
                f"{min(least, 1):.2g}, corrected for {tests} comparisons",
                _reachable(rules.significance, tests),
            )


def _said(key: str) -> tuple[str, ...]:
    """The places that a key names already."""
    return (key, key.rpartition(".")[2], "model")


def _parse(text: str, kind: str, where: str) -> Any:
    return leakgauge.parse(text, kind, where=where)


def _reachable(level: float, tests: int) -> str:
    enough = next((n for n in range(1, 18) if least_p(n) * 2 * tests <= level), None)
    lowest = least_p(10**6) * 2 * tests
    return f"take at least records = {enough}" if enough else f"say at least significance = {lowest:.2g}"


def _example(kinds: tuple[str, ...]) -> str:
    return {"defense": "clip(norm=1.0) | gaussian(std=0.1)", "attack": "inverting_gradients()"}.get(
        kinds[0], "mlp(width=100)"
    )
