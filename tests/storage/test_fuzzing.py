"""Every reader on files that were changed at random: an answer or one clear error, soon, within memory, and no code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.fuzzing import READERS, Reader, fuzz, reader, scratch, tried
from evidence.fuzzing.watching import WATCH

INPUTS = 1000
FEW = {"checked spec": 100, "report": 60, "resumed run": 200, "result": 300, "app": 300, "learned prior": 500}
"""Readers that need several milliseconds per file get fewer in the normal tests: a checked spec is a task per defense,
a report a page, and the others go through every cell. The slow test gives all of them as many."""


@pytest.mark.parametrize("name", READERS)
def test_changed_files(name: str) -> None:
    with scratch() as folder:
        failures = fuzz(reader(name), range(FEW.get(name, INPUTS)), folder)
    assert not failures, "\n".join(map(str, failures[:5]))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_very_many_changed_files(name: str) -> None:
    """A hundred thousand per reader, an hour of one core in all; ``LEAKGAUGE_FUZZ`` says another number."""
    count = int(os.environ.get("LEAKGAUGE_FUZZ", "100000"))
    with scratch() as folder:
        failures = fuzz(reader(name), range(INPUTS, INPUTS + count), folder)
    assert not failures, "\n".join(map(str, failures[:20]))


# --- expressions and JSON made from a grammar, which Hypothesis can shrink

names = st.sampled_from(["clip", "gaussian", "mixup", "tv", "bayes", "adam", "dlg", "no", "os:system", "a.b:C"])
literals = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=8).map(repr),
    st.sampled_from(["None", "True", "()", "[1, 2]", "{'a': 1}", "-1", "1j", "b''", "...", "x", "9" * 500]),
)


def _longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keys = st.sampled_from(["std", "norm", "k", "steps", "prior", "solver", "lr", "p", "*", "**", ""])
    arguments = st.lists(st.tuples(keys, inner).map(lambda pair: "=".join(filter(None, pair))), max_size=3)
    calls = st.tuples(names, arguments).map(lambda call: f"{call[0]}({', '.join(call[1])})")
    chains = st.tuples(inner, st.sampled_from(["|", "+", "*", "**", "-", "if"]), inner).map(" ".join)
    return calls | chains | inner.map(lambda text: f"({text})")


@given(text=st.recursive(literals, _longer, max_leaves=12))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_expressions_of_a_grammar(text: str, tmp_path: Path) -> None:
    assert tried(reader("expression"), text.encode("utf-8", errors="replace"), tmp_path) == []


# --- the fuzzer itself notices what it is for


def _evil(path: Path) -> None:
    if b"x" in path.read_bytes():
        os.system("true")


def test_the_fuzzer_notices(tmp_path: Path) -> None:
    def crash(path: Path) -> None:
        if len(path.read_bytes()) > 3:
            raise KeyError("x")

    def writes(path: Path) -> None:
        (tmp_path / "elsewhere").write_text("x")

    def imports(path: Path) -> None:
        sys.modules.pop("this_is_no_module", None)
        with pytest.raises(ImportError):
            __import__("this_is_no_module")

    for read, what in ((crash, "KeyError"), (writes, "writes"), (imports, "imports this_is"), (_evil, "os.system")):
        failures = fuzz(Reader("bad", {"a": b"xxxxxxxx"}, read), range(40), tmp_path / "work")
        assert any(what in failure.what for failure in failures), what
    assert WATCH.folder is None
