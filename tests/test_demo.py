"""The demo's spec: sound, small enough for a demo, and about the set-ups it promises."""

from __future__ import annotations

from pathlib import Path

from leakgauge.audit import load
from leakgauge.study import problems

DEMO = Path(__file__).parents[1] / "examples" / "demo.toml"


def test_the_demo_is_a_sound_audit_of_bundled_data() -> None:
    spec = load(DEMO)
    assert problems(spec, DEMO) == []
    assert spec.task.data == "fashion_mnist_sample"


def test_the_demo_shows_noise_at_two_levels_pruning_and_clipping() -> None:
    given = list(load(DEMO).defenses.values())
    assert given[0] == "identity()"
    assert sum(text.startswith("gaussian") for text in given) == 2
    assert any(text.startswith("prune") for text in given)
    assert any("clip" in text and "gaussian" in text for text in given)


def test_make_demo_runs_it() -> None:
    made = (DEMO.parents[1] / "Makefile").read_text()
    assert "leakgauge audit examples/demo.toml" in made
