"""The spec of an audit: one validated model, from TOML or from Python.

Every problem is found before anything runs, and all of them are listed at once: file, key, what, remedy. Nothing here
imports the user's code: a ``package.module:name`` is checked for its form only.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from leakgauge.errors import LeakgaugeError, nearest

MOST_BYTES = 1 << 20
Attacks = Literal["generic", "adaptive"]
BOTH: dict[Attacks, str] = {"generic": "inverting_gradients()", "adaptive": "adaptive()"}
"""The two adversaries that every audit runs, as they are added where a spec lists none of that kind."""
ADDED = "{} (added)"
_INFORMED = re.compile(r"\s*(adaptive|bayes|drop_layer)\b")
"""Attacks that look at the defense; of these only ``adaptive`` follows whatever it is."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a spec: where it stands, what it is, how to mend it."""

    file: str
    key: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.what}; {self.remedy}"


class SpecError(LeakgaugeError):
    """A spec that cannot be run, with all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Normalise(_Section):
    """Mean and standard deviation per channel, applied inside the model."""

    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]


class Replay(_Section):
    """What the user's real client did: weights before and after, and the batch it used."""

    before: str
    after: str
    batch: str


class RecipeSpec(_Section):
    """How a client trains (see :class:`leakgauge.Recipe`)."""

    batch: Annotated[int, Field(ge=1)] = 1
    local_steps: Annotated[int, Field(ge=1)] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    mode: Literal["train", "eval"] = "eval"
    reduction: Literal["mean", "sum"] = "mean"
    shares: Literal["gradient", "change"] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    minibatch: Annotated[int, Field(ge=1)] | None = None


class TaskSpec(_Section):
    """The user's client: model, weights, loss, data, recipe."""

    model: str
    weights: str | None = None
    loss: str = "cross_entropy"
    data: str = "fashion_mnist_sample"
    normalise: Normalise | None = None
    records: Annotated[int, Field(ge=1)] = 20
    recipe: RecipeSpec = RecipeSpec()
    replay: Replay | None = None


class Checkpoints(_Section):
    """Steps of training at which the client is audited; 0 is the model as given.

    Training is plain SGD on the train split. ``defended`` trains once per defense, with it, so that its price in
    accuracy is known; else one training without a defense serves all. ``seeds`` trainings of each show how much of a
    difference is chance; the first of them is attacked.
    """

    train_steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    batch: Annotated[int, Field(ge=1)] = 64
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    defended: bool = False
    seeds: Annotated[int, Field(ge=1)] = 1


class Tuning(_Section):
    """Updates of reference records on which the best of several settings of an adversary is chosen."""

    records: Annotated[int, Field(ge=1)] = 8


class ThreatSpec(_Section):
    """What the adversary knows: how labels are known, and which nuisances are granted."""

    labels: Literal["known", "inferred", "joint"] = "known"
    grants: list[str] = []
    learning_rate: Literal["known", "unknown"] = "known"


class Recognisable(_Section):
    """The leak threshold: a reconstruction at least this good counts as recognisable."""

    ssim: Annotated[float, Field(gt=0, le=1)] | None = None
    psnr: Annotated[float, Field(gt=0)] | None = None


class BoundSpec(_Section):
    """What bounds are about: the rounds in which the same records take part, and the δ of ε."""

    rounds: Annotated[int, Field(ge=1)] = 1
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class PriceSpec(_Section):
    """What the price of a record is about where clients mix records: how many one holds, and for how many epochs."""

    records: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)] = 50


class VerdictSpec(_Section):
    """How verdicts are reached."""

    recognisable: Recognisable = Recognisable(ssim=0.5)
    exact: Annotated[float, Field(gt=0)] = 60.0
    significance: Annotated[float, Field(gt=0, lt=1)] = 0.05


class Spec(_Section):
    """A whole audit. Of its adversaries one is generic and one adaptive, added where none is listed or left out."""

    leave_out: list[Attacks] = []
    task: TaskSpec
    checkpoints: Checkpoints = Checkpoints()
    defenses: dict[str, str] = {"none": "identity()"}
    adversaries: Annotated[dict[str, str | list[str]], Field(validate_default=True)] = {}
    tuning: Tuning = Tuning()
    threat: ThreatSpec = ThreatSpec()
    verdict: VerdictSpec = VerdictSpec()
    bound: BoundSpec = BoundSpec()
    price: PriceSpec = PriceSpec()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @field_validator("adversaries")
    @classmethod
    def _with_both(cls, given: dict[str, str | list[str]], info: ValidationInfo) -> dict[str, str | list[str]]:
        """A defense is judged by an adversary that ignores it and by one that models it."""
        missing = [kind for kind in BOTH if kind not in (*kinds(given), *info.data.get("leave_out", ()))]
        return {**given, **{ADDED.format(kind) if given else kind: BOTH[kind] for kind in missing}}

    def settings(self, adversary: str) -> list[str]:
        """The expressions of an adversary: several are tuned, per defense, on reference records."""
        return _texts(self.adversaries[adversary])

    def notes(self) -> list[str]:
        """What a reader of the audit has to know about who attacked."""
        added = [name for name in self.adversaries if name in map(ADDED.format, BOTH)]
        said = [f"{name}: {self.adversaries[name]}, since the spec lists no such adversary" for name in added]
        return [*said, *(f"LEFT OUT: the {kind} attack. {_UNTESTED[kind]}" for kind in self.leave_out)]


_UNTESTED: dict[Attacks, str] = {
    "generic": "Whether an adversary who ignores the defense succeeds was not tried",
    "adaptive": "No adversary modelled the defense: a verdict says little about one who does",
}


def kinds(adversaries: Mapping[str, str | list[str]]) -> set[Attacks]:
    """Which of the two kinds are listed; a list of settings is of a kind if all of them are.

    Adaptive is ``adaptive(…)``; generic is what does not look at the defense, one's own attacks among them.
    """
    found: set[Attacks] = set()
    for texts in map(_texts, adversaries.values()):
        informed = [match.group(1) if (match := _INFORMED.match(text)) else "" for text in texts]
        if informed and not any(informed):
            found.add("generic")
        if informed and set(informed) == {"adaptive"}:
            found.add("adaptive")
    return found


def _texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def load(path: Path) -> Spec:
    """Read a spec; a :class:`SpecError` holds every problem of its form."""
    return of(_table(path), str(path))


def _table(path: Path) -> dict[str, Any]:
    def fail(key: str, what: str, remedy: str) -> SpecError:
        return SpecError([Problem(str(path), key, what, remedy)])

    try:
        if path.exists() and not path.is_file():  # reading a device may never end
            raise fail("file", "is no regular file", "give a TOML file")
        if path.stat().st_size > MOST_BYTES:
            raise fail("file", f"has more than {MOST_BYTES} bytes", "a spec is a page of text; give that file")
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise fail("file", "there is no such file", "write one with `leakgauge init`") from None
    except UnicodeDecodeError as fault:
        raise fail("file", f"is not UTF-8 text (byte {fault.start})", "save it as UTF-8 text") from None
    except OSError as fault:
        raise fail("file", f"cannot be read ({fault.strerror})", "check the path") from None
    except RecursionError:
        raise fail("syntax", "is nested too deeply", "mend the TOML; see `leakgauge init`") from None
    except ValueError as fault:  # a TOMLDecodeError, a number of too many digits, a path with a NUL
        raise fail("syntax", shown(str(fault), 160), "mend the TOML; see `leakgauge init`") from None


def of(raw: dict[str, Any], file: str = "spec") -> Spec:
    """A spec from plain Python values."""
    try:
        return Spec.model_validate(raw)
    except ValidationError as fault:
        raise SpecError(_problem(file, error) for error in _single(fault.errors())) from None


def _single(errors: list[Any]) -> Iterable[Any]:
    """One error per value: a text that may also be a list fails as both, and is meant as what it looks like."""
    for error in errors:
        *outer, last = error["loc"] or (None,)
        if last == "str" and not isinstance(error["input"], list):
            yield {**error, "loc": tuple(outer)}
        elif "list[str]" in error["loc"]:
            if isinstance(last, int):
                yield {**error, "loc": tuple(step for step in error["loc"] if step != "list[str]")}
        elif last != "str":
            yield error


def problems(spec: Spec, file: str | Path) -> list[Problem]:
    """Everything else that is wrong with a well-formed spec, all at once; imports none of the user's code.

    Expressions, names, files and numbers that cannot work together. ``file`` is named in the problems, and relative
    paths start at its folder.
    """
    from leakgauge.study.checks import Checks  # the registries need torch; a spec does not

    return Checks(spec, Path(file)).problems()


def sound(path: Path) -> Spec:
    """The spec of a file, or a :class:`SpecError` with all its problems, of form and of sense."""
    raw, form = _table(path), list[Problem]()
    try:
        spec: Spec | None = of(raw, str(path))
    except SpecError as fault:
        spec, form = _rest(raw), list(fault.problems)
    wrong = {problem.key for problem in form}
    sense = problems(spec, path) if spec is not None else []
    found = [*form, *(p for p in sense if not any(_within(p.key, key) or _within(key, p.key) for key in wrong))]
    if spec is None or found:
        raise SpecError(found)
    return spec


def _within(key: str, outer: str) -> bool:
    return f"{key}.".startswith(f"{outer}.")


_STAND_IN = "your.own:part"
"""Of what nothing is known: takes the place of a part that is not written as one."""


def _rest(raw: dict[str, Any]) -> Spec | None:
    """The spec without what is wrong in its form, so that the sense of the rest can be examined."""
    rest = copy.deepcopy(raw)
    for _ in range(3):  # a section that lacks a key, or has lost it, goes as a whole
        try:
            return Spec.model_validate(rest)
        except ValidationError as fault:
            for error in _single(fault.errors()):
                _take_out(rest, error["loc"][: -1 if error["type"] == "missing" else None] or ("task",))
    return None


def _take_out(raw: dict[str, Any], where: tuple[Any, ...]) -> None:
    group, *inner = where
    if where in (("task",), ("task", "model")):
        raw["task"] = {**(raw["task"] if isinstance(raw.get("task"), dict) else {}), "model": _STAND_IN}
    elif group in ("defenses", "adversaries") and inner:
        raw[group][inner[0]] = _STAND_IN
    else:
        here = raw
        for step in where[:-1]:
            if not isinstance(here.get(step), dict):  # a list, or gone with another key
                here.pop(step, None)
                return
            here = here[step]
        here.pop(where[-1], None)


def shown(value: Any, most: int = 60) -> str:
    """A value on one line of an error message."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= most else f"{text[:most]}…"


_WORDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list, [ … ]",
    "dict_type": "must be a table of names and texts",
    "model_type": "must be a table of its own",
    "finite_number": "must be a finite number",
    "too_short": "must not be empty",
}
_BOUNDS = {
    "greater_than": ("gt", "must be above"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}


def _problem(file: str, error: Any) -> Problem:
    where, kind, context = error["loc"], error["type"], error.get("ctx", {})
    key, name = ".".join(map(str, where)), str(where[-1]) if where else "spec"
    if kind == "extra_forbidden":
        return Problem(file, key, "there is no such key", nearest(name, _keys(where[:-1])))
    if kind == "missing":
        return Problem(file, key, "is missing", f"add {name} = …; see `leakgauge init`")
    got = f", got {shown(repr(error['input']))}"
    if kind == "literal_error":
        allowed = [str(a) for a in _allowed(where)]
        known = nearest(error["input"], allowed) if isinstance(error["input"], str) else f"one of {', '.join(allowed)}"
        remedy = _MEANT.get((key, str(error["input"])), known)
        return Problem(file, key, f"must be one of {context['expected']}{got}", remedy)
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return Problem(
            file, key, f"{words} {context[bound]}{got}", f"give a number that is {words[8:]} {context[bound]}"
        )
    said = _WORDS.get(kind, str(error["msg"]).lower())
    return Problem(file, key, said + got, f"write {_EXAMPLES.get(kind, f'another {name}')}; see `leakgauge init`")


_MEANT = {
    ("threat.labels", "unknown"): 'say "inferred" (read off the update) or "joint" (searched with the record)',
    ("threat.learning_rate", "hidden"): 'say "unknown"',
}
"""Values that look like a word we know and mean another."""
_EXAMPLES = {
    "string_type": 'it like "this"',
    "int_type": "it like 3",
    "int_from_float": "it like 3",
    "float_type": "it like 0.1",
    "bool_type": "true or false",
    "list_type": "it like [0, 100]",
    "dict_type": 'it like name = "identity()"',
    "model_type": "a section [name] with keys below it",
    "finite_number": "it like 0.1",
    "too_short": "at least one",
}


def _annotation(where: tuple[Any, ...]) -> Any:
    """What stands at a place of the spec: an annotation, or the whole spec."""
    here: Any = Spec
    for step in where:
        section = next((a for a in _inner(here) if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if section is None or step not in section.model_fields:
            return None
        here = section.model_fields[step].annotation
    return here


def _inner(annotation: Any) -> list[Any]:
    return [annotation, *(a for arg in getattr(annotation, "__args__", ()) for a in _inner(arg))]


def _allowed(where: tuple[Any, ...]) -> list[Any]:
    return [a for a in _inner(_annotation(where)) if isinstance(a, str)]


def _keys(where: tuple[Any, ...]) -> list[str]:
    sections = [a for a in _inner(_annotation(where)) if isinstance(a, type) and issubclass(a, BaseModel)]
    return list(sections[0].model_fields) if sections else []
