"""A spec as TOML text, so that a report says how to run the audit again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump(value: Mapping[str, Any]) -> str:
    """TOML of plain values; ``None`` means the default and is left out."""
    return "\n".join(_section(value, ())).strip() + "\n"


def _section(value: Mapping[str, Any], at: tuple[str, ...]) -> list[str]:
    plain = {k: v for k, v in value.items() if v is not None and not isinstance(v, Mapping)}
    lines = [f"\n[{'.'.join(map(_key, at))}]"] if at and (plain or not value) else []
    lines += [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            lines += _section(inner, (*at, key))
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value if v is not None)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items() if v is not None)} }}"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return _text(str(value))


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which JSON leaves bare and TOML forbids
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
