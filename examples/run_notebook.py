"""Run a notebook's cells and store what they print: ``python examples/run_notebook.py`` renews ``notebook.ipynb``.

Plain Python and JSON, no kernel: cells run in one fresh module, in order. The text of a cell's last expression is
stored, and its HTML form where it has one.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"
NAME = "notebook_under_test"
"""Classes of a notebook belong to a module that can be found, as they do under a kernel."""


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of this run; an error in a cell is raised as it is."""
    module = ModuleType(NAME)
    sys.modules[NAME] = module
    try:
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for count, cell in enumerate(code, 1):
            cell |= {"execution_count": count, "outputs": _outputs("".join(cell["source"]), vars(module), count)}
    finally:
        del sys.modules[NAME]
    return notebook


def _outputs(source: str, space: dict[str, Any], count: int) -> list[dict[str, Any]]:
    cell = ast.parse(source, f"cell {count}")
    space["_"] = None
    if cell.body and isinstance(cell.body[-1], ast.Expr):
        target = ast.Name("_", ast.Store())
        cell.body[-1] = ast.Assign([target], cell.body[-1].value)
        ast.fix_missing_locations(cell)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(cell, f"cell {count}", "exec", dont_inherit=True), space)
    value, text = space["_"], printed.getvalue().splitlines(keepends=True)
    outputs: list[dict[str, Any]] = []
    if text:
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return outputs


if __name__ == "__main__":
    notebook = executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
