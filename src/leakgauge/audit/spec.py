"""The spec of an audit: one validated model, from TOML or from Python.

Every problem is found before anything runs, and all of them are listed at once: file, key, what, remedy. Nothing here
imports the user's code: a ``package.module:name`` is checked for its form only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leakgauge.errors import LeakgaugeError, nearest

STRANGER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(\(.*\))?")


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
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


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
    """Steps of training at which the client is audited; 0 is the model as given."""

    train_steps: list[Annotated[int, Field(ge=0)]] = [0]


class ThreatSpec(_Section):
    """What the adversary knows: how labels are known, and which nuisances are granted."""

    labels: Literal["known", "inferred", "joint"] = "known"
    grants: list[str] = []
    learning_rate: Literal["known", "unknown"] = "known"


class Recognisable(_Section):
    """The leak threshold: a reconstruction at least this good counts as recognisable."""

    ssim: Annotated[float, Field(gt=0, le=1)] | None = None
    psnr: Annotated[float, Field(gt=0)] | None = None


class VerdictSpec(_Section):
    """How verdicts are reached."""

    recognisable: Recognisable = Recognisable(ssim=0.5)
    exact: Annotated[float, Field(gt=0)] = 60.0
    significance: Annotated[float, Field(gt=0, lt=1)] = 0.05


class Spec(_Section):
    """A whole audit."""

    task: TaskSpec
    checkpoints: Checkpoints = Checkpoints()
    defenses: dict[str, str] = {"none": "identity()"}
    adversaries: dict[str, str] = {"generic": "inverting_gradients()", "adaptive": "adaptive()"}
    threat: ThreatSpec = ThreatSpec()
    verdict: VerdictSpec = VerdictSpec()
    preset: Literal["quick", "standard", "thorough"] = "standard"
    seed: int = 0


def load(path: Path) -> Spec:
    """Read a spec; a :class:`SpecError` holds every problem of its form."""
    try:
        text = path.read_bytes().decode()
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise SpecError(
            [Problem(str(path), "file", "there is no such file", "write one with `leakgauge init`")]
        ) from None
    except (OSError, UnicodeDecodeError) as fault:
        raise SpecError([Problem(str(path), "file", f"cannot be read ({fault})", "save it as UTF-8 text")]) from None
    except tomllib.TOMLDecodeError as fault:
        raise SpecError([Problem(str(path), "syntax", str(fault), "mend the TOML; see `leakgauge init`")]) from None
    return of(raw, str(path))


def of(raw: dict[str, Any], file: str = "spec") -> Spec:
    """A spec from plain Python values."""
    try:
        return Spec.model_validate(raw)
    except ValidationError as fault:
        raise SpecError(_problem(file, error) for error in fault.errors()) from None


def _problem(file: str, error: Any) -> Problem:
    where = error["loc"]
    key = ".".join(map(str, where))
    if error["type"] == "extra_forbidden":
        return Problem(file, key, "there is no such key", nearest(str(where[-1]), _keys(where[:-1])))
    if error["type"] == "missing":
        return Problem(file, key, "is missing", f"add {where[-1]} = …; see `leakgauge init`")
    return Problem(file, key, f"{error['msg'].lower()}, got {error['input']!r}"[:200], "see the reference of the spec")


def _keys(where: tuple[Any, ...]) -> list[str]:
    section: Any = Spec
    for step in where:
        annotation = section.model_fields[step].annotation
        section = next(
            (
                a
                for a in (annotation, *getattr(annotation, "__args__", ()))
                if isinstance(a, type) and issubclass(a, BaseModel)
            ),
            section,
        )
    return list(section.model_fields)
