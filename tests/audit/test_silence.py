"""Honesty of silence in whole audits: what is not modelled is never called safe, and no gate lets it pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import leakgauge as lg
from leakgauge.audit import audit
from leakgauge.audit.judge.words import fails
from leakgauge.defenses import clip
from leakgauge.testing import image_task
from tests.adversary import own_parts as own

pytestmark = pytest.mark.slow


def audited(part: Any, folder: Path, adversaries: dict[str, str], leave_out: str) -> lg.Result:
    study = lg.Study(
        model=image_task().model,
        records=lg.data.load("fashion_mnist_sample"),
        defenses={"own": part},
        adversaries=adversaries,
        leave_out=[leave_out],
        updates=6,
    )
    return audit(study, folder)


@pytest.mark.parametrize(
    ("part", "adversaries", "leave_out"),
    [
        (own.NumpySorted(), {"adaptive": "adaptive(steps=30)"}, "generic"),
        (clip(norm=1.0) | own.Negated(), {"generic": "inverting_gradients(steps=30, lr=0.3)"}, "adaptive"),
    ],
    ids=["a part that cannot be simulated", "an attack that ignores defenses"],
)
def test_silence_about_what_is_not_modelled_is_too_weak(
    part: Any, adversaries: dict[str, str], leave_out: str, tmp_path: Path
) -> None:
    result = audited(part, tmp_path, adversaries, leave_out)
    defense = result.checkpoints[0].defenses[0]
    assert defense.verdict == "too weak"
    assert fails(defense.verdict, "exact"), "a gate, and JUnit with it, must not pass it"
    assert "not modelled" in defense.attack.why
    if leave_out == "generic":
        assert "NumpySorted" in defense.attack.why
        assert any("NumpySorted" in line.assumes for line in result.ledger)


def test_what_is_modelled_is_found_and_the_ledger_says_how(tmp_path: Path) -> None:
    result = audited(own.Negated(), tmp_path, {"adaptive": "adaptive(steps=30)"}, "generic")
    assert result.checkpoints[0].defenses[0].verdict in ("exact", "recognisable")
    assert any("simulated" in line.assumes for line in result.ledger)
