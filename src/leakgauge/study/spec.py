"""The spec of an audit, from TOML or from Python: problems of its form, in plain words, all at once."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from leakgauge.errors import nearest
from leakgauge.study.sections import LIST, TEXT, Problem, Spec, SpecError

__all__ = ["Problem", "Spec", "SpecError", "brief", "examined", "load", "of", "table"]

MOST_BYTES = 1 << 20
MOST_NESTING = 20
STAND_IN = "your.own:part"
"""An object about which nothing is known: stands where a part is not written as one."""


def load(path: Path) -> Spec:
    """Read a spec; a :class:`SpecError` holds every problem of its form."""
    return of(table(path), str(path))


def table(path: Path) -> dict[str, Any]:
    """The keys and values of a TOML file."""

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
        raise fail("syntax", brief(str(fault), 160), "mend the TOML; see `leakgauge init`") from None


def of(raw: dict[str, Any], file: str = "spec") -> Spec:
    """A spec from plain Python values."""
    spec, problems = examined(raw, file)
    if problems or spec is None:
        raise SpecError(problems)
    return spec


def examined(raw: dict[str, Any], file: str) -> tuple[Spec | None, list[Problem]]:
    """The spec and the problems of its form; with problems, the spec of what is left without the wrong keys.

    So the sense of the rest can be examined in the same go. None where nothing is left to examine.
    """
    if _nested(raw, MOST_NESTING):
        return None, [Problem(file, "syntax", "is nested too deeply", "mend the TOML; see `leakgauge init`")]
    rest, problems = copy.deepcopy(raw), list[Problem]()
    for _ in range(3):  # a section may lack a key that was taken out, and then goes as a whole
        try:
            return Spec.model_validate(rest), problems
        except ValidationError as fault:
            errors: list[dict[str, Any]] = [{**error, "loc": _place(error["loc"])} for error in fault.errors()]
        problems = problems or [_problem(file, error) for error in errors]
        for error in errors:
            _leave_out(rest, error["loc"][:-1] if error["type"] == "missing" else error["loc"])
        if isinstance(rest.setdefault("task", {}), dict):
            rest["task"].setdefault("model", STAND_IN)
    return None, problems


def _nested(value: Any, most: int) -> bool:
    """Whether tables and lists lie in each other more than ``most`` deep; level by level, since a file may nest so
    deeply that a recursion never returns."""
    level: list[Any] = [value]
    for _ in range(most):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [value for items in inner for value in items]
    return any(isinstance(item, dict | list) for item in level)


def _place(where: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(step for step in where if step not in (TEXT, LIST))


def _leave_out(raw: dict[str, Any], where: tuple[Any, ...]) -> None:
    """Take a wrong value out; a part becomes one of which nothing is known, a list goes as a whole."""
    if len(where) > 1 and where[0] in ("defenses", "adversaries"):
        raw[where[0]][where[1]] = STAND_IN
        return
    here: Any = raw
    for step in where[:-1]:
        if not isinstance(here.get(step), dict):
            here.pop(step, None)
            return
        here = here[step]
    if where and not (where == ("task",) and isinstance(raw.get("task"), dict)):  # its model is all it lacks
        here.pop(where[-1], None)


def brief(value: Any, most: int = 60) -> str:
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
    got = f", got {brief(repr(error['input']))}"
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
    sentence = _WORDS.get(kind, str(error["msg"]).lower())
    return Problem(file, key, sentence + got, f"write {_EXAMPLES.get(kind, f'another {name}')}; see `leakgauge init`")


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
