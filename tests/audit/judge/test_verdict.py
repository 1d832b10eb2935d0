"""The words of a verdict, from scores made by hand: each rule, and that silence is never taken for safety."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from leakgauge.audit.judge.arms import Arms, Encodings
from leakgauge.audit.judge.verdict import Finding, Rules, Verdict, find, judge, verdicts
from leakgauge.meaning import PSNR, SSIM
from tests.audit.judge.lineups import summary

N = 12
RULES = Rules(SSIM, 0.5, PSNR, 60.0)
GROUPS = np.zeros(200, np.int64)
"""Records and their peers, which may all stand for each other."""


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
    table = generator.normal(0, 0.02, (N, len(GROUPS)))
    table[np.arange(leaks), np.arange(leaks)] += gain
    prior_scores = {"ssim": np.full(N, prior), "psnr": np.full(N, 11.0)}
    alike = np.ones((N, N), dtype=bool)
    return Arms(scores, cross, alike, prior_scores, nearness={"a": summary(table, GROUPS)}, groups=GROUPS)


def word(real: Arms, control: Arms | None = None) -> Verdict:
    return verdicts({"d": real}, {"d": arms(0.8) if control is None else control}, RULES)["d"]


def test_every_word_where_it_belongs() -> None:
    assert word(arms(0.8, psnr=75.0)).word == "exact"
    assert word(arms(0.8)).word == "recognisable"
    assert word(arms(0.1)).word == "detectable"
    assert word(arms()).word == "no evidence"
    assert word(arms(), control=arms(seed=1)).word == "too weak"


def test_one_leaking_record_among_many_is_recognisable() -> None:
    said = word(arms(0.8, leaks=1))
    assert said.word == "recognisable"
    assert said.finding is not None
    assert said.finding.recognised == 1
    assert said.finding.gains["another"].p > 0.05  # the mean is blind to it


def test_a_guess_from_the_prior_that_is_as_good_is_no_recognition() -> None:
    said = word(arms(0.8, prior=0.95))
    assert said.word == "detectable"


def test_a_leak_is_reported_although_the_control_failed() -> None:
    assert word(arms(0.8), control=arms(seed=1)).word == "recognisable"


def test_an_exact_null_is_no_exact_recovery() -> None:
    black = arms(psnr=75.0)
    black = replace(black, prior={**black.prior, "psnr": np.full(N, 80.0)})
    assert word(black).word == "no evidence"


def test_an_adversary_that_does_not_work_is_named() -> None:
    good, idle = arms(0.8), arms(seed=3)
    both = Arms(
        {arm: {"a": good.scores[arm]["a"], "idle": idle.scores[arm]["a"]} for arm in good.scores},
        {"a": good.cross["a"], "idle": idle.cross["a"]},
        good.alike,
        good.prior,
        nearness={"a": good.nearness["a"], "idle": idle.nearness["a"]},
        groups=GROUPS,
    )
    said = word(arms(), control=both)
    assert said.word == "no evidence"
    assert "idle did not, and adds nothing" in said.why


def test_records_of_a_batch_count_as_one_update() -> None:
    """Four copies of a record's luck are one piece of evidence."""
    few = arms(0.05, seed=5)
    assert replace(few, batch=4).excess("ssim").n == N // 4
    assert replace(few, batch=4).excess("ssim").p >= 2.0**-3


def test_a_control_that_beats_its_null_without_recognising_anything_is_too_weak() -> None:
    said = word(arms(), control=arms(0.1))
    assert said.control is not None
    assert said.control.together.p < 0.05
    assert said.word == "too weak"
    assert f"recognise none of {N} records either (the best ssim is 0." in said.why
    assert "more steps" in said.why


def test_the_null_that_stood_in_the_way_is_named() -> None:
    said = word(arms(), control=arms(0.45, prior=0.61))
    assert said.word == "too weak"
    assert "and the guess without an update has 0.61 there" in said.why
    traced = word(arms(0.45, prior=0.95))
    assert traced.word == "detectable"
    assert "and the guess without an update has 0.95 there" in traced.why
    assert "has" not in word(arms(0.1, prior=-1.0)).why.partition("every null: ")[2]  # it beats its nulls, and is low


def test_wrong_labels_are_not_mended_by_more_steps() -> None:
    weak = replace(arms(0.1), labels={"a": 2})
    why = word(arms(), control=weak).why
    assert f"their labels are wrong (2 of {N} are right)" in why
    assert "give them more steps" not in why
    assert "labels are wrong" not in word(arms(), control=replace(weak, labels={"a": N})).why


def test_a_trace_that_nobody_finds_without_the_defense_is_chance() -> None:
    assert word(arms(0.1), control=arms(seed=1)).word == "too weak"


def test_a_trace_behind_a_defense_is_never_silence_while_one_adversary_works() -> None:
    """All together the control may miss its level although one of them works: the trace still counts."""
    together = word(arms(0.1)).control
    assert together is not None
    said = judge(arms(0.1), find(arms(0.1), RULES), 0.001, replace(together, together=_blind()), RULES)
    assert said.word == "detectable"


def _blind() -> Finding:
    found = find(arms(seed=1), RULES)
    assert found.p > RULES.significance
    return found


@pytest.mark.parametrize(
    ("gain", "lone", "said"),
    [(0.8, True, "recognisable"), (0.8, False, "detectable"), (0.1, True, "detectable"), (0.0, True, "no evidence")],
)
def test_an_encoding_that_was_found_is_no_silence(gain: float, lone: bool, said: str) -> None:
    found = verdicts({"d": arms()}, {"d": arms(0.8)}, RULES, {"d": Encodings(arms(gain, seed=7), lone)})["d"]
    assert found.word == said
    assert found.encoded is not None
    assert found.encoded.recognised == (N if gain == 0.8 else 0)
    if gain:
        assert "of the records themselves: not above the null" in found.why
    assert word(arms(0.8, psnr=75.0)).word == "exact"


def test_an_encoding_takes_nothing_back_and_needs_adversaries_that_work() -> None:
    early = {"d": Encodings(arms(0.1, seed=7), True)}
    assert verdicts({"d": arms(0.8)}, {"d": arms(0.8)}, RULES, early)["d"].word == "recognisable"
    assert verdicts({"d": arms()}, {"d": arms(seed=1)}, RULES, early)["d"].word == "too weak"


def test_an_encoding_counts_as_a_comparison_of_its_own() -> None:
    alone = verdicts({"d": arms(0.05)}, {"d": arms(0.8)}, RULES)["d"]
    both = verdicts({"d": arms(0.05)}, {"d": arms(0.8)}, RULES, {"d": Encodings(arms(seed=7), True)})["d"]
    assert alone.p is not None
    assert both.p == pytest.approx(2 * alone.p)


def two_adversaries(seed: int) -> Arms:
    """Nothing leaks: one adversary always answers with the same picture, the other with noise."""
    generator = np.random.default_rng(seed)
    both = {"still": np.full((N, 60), 0.2), "noisy": generator.normal(0.02, 0.02, (N, 60))}
    groups = np.zeros(60, np.int64)
    return Arms({}, {}, np.ones((N, N), dtype=bool), {}, 1, {k: summary(t, groups) for k, t in both.items()}, groups)


def test_an_adversary_that_never_moves_makes_no_alarm_of_another() -> None:
    audits = 100
    p = [two_adversaries(seed).single() for seed in range(audits)]
    assert sum(one <= 0.05 for one in p) <= stats.binom.isf(1e-4, audits, 0.05)


def test_of_equal_scores_the_one_that_is_nearer_by_the_other_metric_wins() -> None:
    scores = {"real": {"near": {"ssim": [1.0], "psnr": [150.0]}, "rough": {"ssim": [1.0], "psnr": [40.0]}}}
    both = Arms(scores, {}, np.ones((1, 1), dtype=bool), {})  # type: ignore[arg-type]
    assert both.winner("real", "ssim", 0) == "near"


@pytest.mark.parametrize("gain", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("control", [0.0, 0.8])
@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("psnr", [12.0, 75.0])
@pytest.mark.parametrize("seed", range(3))
def test_no_evidence_needs_an_adversary_that_models_the_defense_and_works(
    gain: float, control: float, modelled: bool, psnr: float, seed: int
) -> None:
    real = replace(arms(gain, psnr=psnr, seed=seed), unmodelled={} if modelled else {"a": "a ignores defenses"})
    verdict = word(real, control=arms(control, seed=seed + 10))
    if verdict.word == "no evidence":
        assert modelled
        assert control == 0.8
    if not modelled and verdict.finding is not None and verdict.p is not None and verdict.p > 0.05 and psnr < 60:
        assert verdict.word == "too weak"
        assert "not modelled" in verdict.why or not control


def test_one_adversary_that_models_the_defense_is_enough() -> None:
    good = arms(0.8)

    def both(one: Arms) -> Arms:
        scores = {arm: {"a": by["a"], "b": by["a"]} for arm, by in one.scores.items()}
        near = {"a": one.nearness["a"], "b": one.nearness["a"]}
        return replace(one, scores=scores, cross={"a": one.cross["a"], "b": one.cross["a"]}, nearness=near)

    silent = both(arms())
    assert word(replace(silent, unmodelled={"a": "x"}), control=both(good)).word == "no evidence"
    assert word(replace(silent, unmodelled={"a": "x", "b": "y"}), control=both(good)).word == "too weak"
