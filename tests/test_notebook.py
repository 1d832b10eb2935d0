"""The notebook in examples/ runs from a clean start, and says what its stored outputs say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"
NUMBER = re.compile(r"-?\d[\d.]*(e-?\d+)?")
PATH = re.compile(r"(/home|/root|/tmp|/work|/Users|[A-Z]:\\)")


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebook", NOTEBOOK.parent / "run_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(notebook: dict[str, Any]) -> list[str]:
    """What the cells print, without numbers, which may differ from processor to processor."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    texts = ["".join(one.get("text") or one["data"]["text/plain"]) for one in outputs]
    return [NUMBER.sub("0", text) for text in texts]


def test_it_runs_and_says_what_it_said() -> None:
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    anew = runner().executed(json.loads(json.dumps(stored)))
    assert words(anew) == words(stored)
    assert "Result(none: exact, flips: exact, private: no evidence)" in words(anew)
    assert any("text/html" in output.get("data", {}) for cell in anew["cells"] for output in cell.get("outputs", ()))


def test_it_is_small_and_names_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 30_000
    assert not PATH.search(text)
