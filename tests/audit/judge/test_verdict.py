"""The words of a verdict, from scores made by hand: each rule, and that silence is never taken for safety."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from leakgauge.audit.judge.verdict import (
    Arms,
    Encodings,
    Finding,
    Verdict,
    _verdict,
    contradictions,
    failing,
    find,
    verdicts,
)
from leakgauge.study.spec import Recognisable, VerdictSpec

N = 12
RULES = VerdictSpec(recognisable=Recognisable(ssim=0.5))


def arms(gain: float = 0.0, *, leaks: int = N, psnr: float = 12.0, prior: float = 0.1, seed: int = 0) -> Arms:
    """One adversary that gains ``gain`` SSIM over an unrelated update, on the first ``leaks`` records."""
    generator = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return generator.normal(0.1, 0.02, shape)

    real = drawn(N) + gain * (np.arange(N) < leaks)
    flat = {"psnr": np.full(N, 12.0)}
    scores = {
        "real": {"a": {"ssim": real, "psnr": np.where(np.arange(N) < leaks, psnr, 12.0)}},
        "another": {"a": {"ssim": drawn(N), **flat}},
        "noise": {"a": {"ssim": drawn(N), **flat}},
    }
    cross = {"a": {"ssim": drawn(N, N), "psnr": np.full((N, N), 12.0)}}
    return Arms(scores, cross, np.ones((N, N), dtype=bool), {"ssim": np.full(N, prior), "psnr": np.full(N, 11.0)})


def word(real: Arms, control: Arms | None = None) -> Verdict:
    return verdicts({"d": real}, {"d": arms(0.8) if control is None else control}, RULES, "ssim")["d"]


def test_every_word_where_it_belongs() -> None:
    assert word(arms(0.8, psnr=75.0)).attack == "exact"
    assert word(arms(0.8)).attack == "recognisable"
    assert word(arms(0.1)).attack == "detectable"
    assert word(arms()).attack == "no evidence"
    assert word(arms(), control=arms(seed=1)).attack == "too weak"


def test_one_leaking_record_among_many_is_recognisable() -> None:
    said = word(arms(0.8, leaks=1))
    assert said.attack == "recognisable"
    assert said.finding is not None
    assert said.finding.recognised == 1
    assert said.finding.gains["another"].p > 0.05  # the mean is blind to it


def test_a_guess_from_the_prior_that_is_as_good_is_no_recognition() -> None:
    said = word(arms(0.8, prior=0.95))
    assert said.attack == "detectable"


def test_a_leak_is_reported_although_the_control_failed() -> None:
    assert word(arms(0.8), control=arms(seed=1)).attack == "recognisable"


def test_an_exact_null_is_no_exact_recovery() -> None:
    black = arms(psnr=75.0)
    black = replace(black, prior={**black.prior, "psnr": np.full(N, 80.0)})
    assert word(black).attack == "no evidence"


def test_an_adversary_that_does_not_work_is_named() -> None:
    good, idle = arms(0.8), arms(seed=3)
    both = Arms(
        {arm: {"a": good.scores[arm]["a"], "idle": idle.scores[arm]["a"]} for arm in good.scores},
        {"a": good.cross["a"], "idle": idle.cross["a"]},
        good.alike,
        good.prior,
    )
    said = word(arms(), control=both)
    assert said.attack == "no evidence"
    assert "idle did not, and adds nothing" in said.why


def test_records_of_a_batch_count_as_one_update() -> None:
    """Four copies of a record's luck are one piece of evidence."""
    few = arms(0.05, seed=5)
    assert replace(few, batch=4).excess("ssim").n == N // 4
    assert replace(few, batch=4).excess("ssim").p >= 2.0**-3


@pytest.mark.parametrize("attack", ["too weak", "incomplete", "invalid", "recognisable", "exact"])
def test_a_gate_fails_on_what_leaks_and_on_what_cannot_be_judged(attack: str) -> None:
    made = {"checkpoints": [{"defenses": [{"name": "d", "attack": {"verdict": attack, "why": "because"}}]}]}
    assert failing(made, "recognisable") == [f"d: {attack}: because"]
    made["checkpoints"][0]["defenses"][0]["attack"]["verdict"] = "detectable"
    assert failing(made, "recognisable") == []


@pytest.mark.parametrize(("state", "lines"), [("contradiction", ["d: too good"]), ("open", [])])
def test_contradictions_name_the_defense(state: str, lines: list[str]) -> None:
    bound = {"corridor": {"state": state, "sentence": "too good"}}
    made = {"checkpoints": [{"defenses": [{"name": "d", "bound": bound}, {"name": "e", "bound": {"corridor": None}}]}]}
    assert contradictions(made) == lines


def test_a_control_that_beats_its_null_without_recognising_anything_is_too_weak() -> None:
    said = word(arms(), control=arms(0.1))
    assert said.control is not None
    assert said.control.together.p < 0.05
    assert said.attack == "too weak"
    assert "recognise no record" in said.why


def test_a_trace_that_nobody_finds_without_the_defense_is_chance() -> None:
    assert word(arms(0.1), control=arms(seed=1)).attack == "too weak"


def test_a_trace_behind_a_defense_is_never_silence_while_one_adversary_works() -> None:
    """All together the control may miss its level although one of them works: the trace still counts."""
    together = word(arms(0.1)).control
    assert together is not None
    said = _verdict(
        "d", arms(0.1), find(arms(0.1), 0.5, "ssim"), 0.001, replace(together, together=_blind()), RULES, "ssim"
    )
    assert said.attack == "detectable"


def _blind() -> Finding:
    found = find(arms(seed=1), 0.5, "ssim")
    assert found.p > RULES.significance
    return found


@pytest.mark.parametrize(
    ("gain", "lone", "said"),
    [(0.8, True, "recognisable"), (0.8, False, "detectable"), (0.1, True, "detectable"), (0.0, True, "no evidence")],
)
def test_an_encoding_that_was_found_is_no_silence(gain: float, lone: bool, said: str) -> None:
    found = verdicts({"d": arms()}, {"d": arms(0.8)}, RULES, "ssim", {"d": Encodings(arms(gain, seed=7), lone)})["d"]
    assert found.attack == said
    assert found.seen is not None
    assert found.seen.recognised == (N if gain == 0.8 else 0)
    if gain:
        assert "of the records themselves: not above the null" in found.why
    assert word(arms(0.8, psnr=75.0)).attack == "exact"


def test_an_encoding_takes_nothing_back_and_needs_adversaries_that_work() -> None:
    early = {"d": Encodings(arms(0.1, seed=7), True)}
    assert verdicts({"d": arms(0.8)}, {"d": arms(0.8)}, RULES, "ssim", early)["d"].attack == "recognisable"
    assert verdicts({"d": arms()}, {"d": arms(seed=1)}, RULES, "ssim", early)["d"].attack == "too weak"


def test_an_encoding_counts_as_a_comparison_of_its_own() -> None:
    alone = verdicts({"d": arms(0.05)}, {"d": arms(0.8)}, RULES, "ssim")["d"]
    both = verdicts({"d": arms(0.05)}, {"d": arms(0.8)}, RULES, "ssim", {"d": Encodings(arms(seed=7), True)})["d"]
    assert alone.p is not None
    assert both.p == pytest.approx(2 * alone.p)
