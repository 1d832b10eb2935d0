"""The demo's spec: sound, small enough for a demo, and about the set-ups it promises."""

from __future__ import annotations

from pathlib import Path

import leakgauge as lg
from leakgauge.audit import load
from leakgauge.study import problems

DEMO = Path(__file__).parents[1] / "examples" / "demo.toml"


def test_the_demo_is_a_sound_audit_of_bundled_data() -> None:
    spec = load(DEMO)
    assert problems(spec, DEMO) == []
    assert spec.task.data == "fashion_mnist_sample"


def test_the_demo_trains_first_and_shows_noise_pruning_and_clipping() -> None:
    spec = load(DEMO)
    assert min(spec.checkpoints.train_steps) >= 100
    texts = list(spec.defenses.values())
    assert texts[0] == "identity()"
    assert any(text.startswith("gaussian") for text in texts)
    assert any(text.startswith("prune") for text in texts)
    assert any("clip" in text and "gaussian" in text for text in texts)


def test_one_protection_of_the_demo_has_a_bound_that_binds() -> None:
    """With a best guess that succeeds for one record in ten, no adversary succeeds for half of them."""
    spec = load(DEMO)
    domain = lg.data.load(spec.task.data).domain
    task = lg.Task(lg.models.build(spec.task.model, domain), domain).protect(spec.defenses["proven"])
    ceiling = lg.bounds.bound_of_task(task, guess=0.1).ceiling.value
    assert ceiling is not None
    assert ceiling < 0.5


def test_make_demo_runs_it() -> None:
    made = (DEMO.parents[1] / "Makefile").read_text()
    assert "leakgauge audit examples/demo.toml" in made
