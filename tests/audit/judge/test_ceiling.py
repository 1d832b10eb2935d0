"""The risk corridor of an audit: bounds above attacks, and what happens when an attack is above its bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leakgauge.audit.judge.ceiling import Ceilings, ceilings
from leakgauge.audit.judge.model import Result
from leakgauge.audit.judge.values import Bound
from leakgauge.defenses.protection import protection
from leakgauge.errors import ExitCode
from leakgauge.study import Study, of
from tests.report.samples import frame

PROVEN = "clip(norm=1.0) | gaussian(std=100.0)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ceilings:
    home = tmp_path_factory.mktemp("ceiling")
    spec = of({"task": {"model": "logistic", "records": 40}, "defenses": {"proven": PROVEN}})
    return ceilings(Study.of(spec, home))


def reached(score: float, n: int = 40) -> dict[str, dict[str, Any]]:
    return {"weak": {"ssim": np.zeros(n)}, "strong": {"ssim": np.full(n, score)}}


def test_noise_without_a_clip_and_a_clip_without_noise_prove_nothing(made: Ceilings) -> None:
    for text, said in (("gaussian(std=1.0)", "nothing clips"), ("clip(norm=1.0)", "no noise"), ("identity()", "noise")):
        bound = made.of(protection(text), reached(1.0))
        assert bound.ceiling is None
        assert said in bound.why
        assert bound.corridor.state == "no bound"


def test_much_noise_proves_that_little_more_than_guessing_is_left(made: Ceilings) -> None:
    assert made.guess is not None
    bound = made.of(protection(PROVEN), reached(0.0))
    assert made.guess.upper <= bound.ceiling <= made.guess.upper + 0.01
    assert bound.corridor.state == "open"
    guessing = {"strong": {"ssim": (np.arange(40) < 15).astype(float)}}
    assert made.of(protection(PROVEN), guessing).corridor.state == "tight"
    assert bound.epsilon.value < 0.1


def test_an_attack_above_its_bound_is_a_contradiction_with_a_code_of_its_own(made: Ceilings) -> None:
    bound = made.of(protection(PROVEN), reached(1.0))
    assert bound.corridor.state == "contradiction"
    assert exit_code("recognisable", bound) == ExitCode.CONTRADICTION
    assert exit_code("recognisable", bound, "recognisable") == ExitCode.CONTRADICTION
    below = made.of(protection(PROVEN), reached(0.0))
    assert exit_code("recognisable", below, "recognisable") == ExitCode.GATE_FAILED
    assert exit_code("recognisable", below, "exact") == ExitCode.DONE
    assert exit_code("incomplete", below) == ExitCode.INCOMPLETE
    assert exit_code("invalid", bound) == ExitCode.INVALID


def exit_code(word: str, bound: Bound, fail_on: Any = None) -> ExitCode:
    entry = {"name": "proven", "expression": PROVEN, "attack": {"verdict": word, "why": "x"}, "bound": bound}
    return Result.of_json({**frame([]), "checkpoints": [{"step": 0, "defenses": [entry]}]}).exit_code(fail_on)


def test_the_least_noise_that_proves_a_half_does_so_and_a_little_less_does_not(made: Ceilings) -> None:
    enough = made.of(protection("clip(norm=1.0) | gaussian(std=0.001)"), None).enough
    assert made.of(protection(enough.expression), None).ceiling <= 0.5
    std = float(enough.expression.partition("std=")[2].rstrip(")"))
    assert made.of(protection(f"clip(norm=1.0) | gaussian(std={0.97 * std})"), None).ceiling > 0.5
    assert made.of(protection("gaussian(std=1.0)"), None).enough is None
