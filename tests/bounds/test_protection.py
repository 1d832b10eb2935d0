"""The bounds of a protection: what carries over, what does not, and the corridor between attack and bound."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

import leakgauge as lg
from leakgauge import bounds
from leakgauge.bounds import bound_of, bound_of_task
from leakgauge.defenses import Gaussian, Protection, UpdatePart, protection
from leakgauge.defenses.update.vmf_sample import sample_gaps
from leakgauge.errors import DomainError
from leakgauge.testing import small_task
from leakgauge.types import Context, Nuisance, Release, Tree

SIZES = {"first.weight": 300, "first.bias": 20, "last.weight": 180}


def of(text: str, **options: object) -> bounds.Bound:
    return bound_of(protection(text), SIZES, **options)  # type: ignore[arg-type]


def test_clipped_gaussian_noise_has_all_three() -> None:
    found = of("clip(norm=2.0) | gaussian(std=0.5)", delta=1e-5, guess=0.01, rounds=3)
    assert found.log_capacity.value == pytest.approx(3 * bounds.log_capacity_gaussian(500, 2.0, 0.5))
    wanted = bounds.epsilon_of(0.25, delta=1e-5, steps=3, unit="client")
    assert found.epsilon.value == pytest.approx(wanted.epsilon)
    assert found.epsilon.sentence == str(wanted)
    mu = 4 * math.sqrt(3)
    assert found.ceiling.value == pytest.approx(float(stats.norm.cdf(stats.norm.ppf(0.01) + mu)))
    assert found.unit == "client"
    assert found.protection == "clip(norm=2.0) | gaussian(std=0.5)"
    assert all("noise is drawn as stated" in figure.assumptions[0] for figure in (found.log_capacity, found.ceiling))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("identity()", "adds no noise"),
        ("clip(norm=1.0) | prune(p=0.9)", "adds no noise"),
        ("clip(norm=1.0) | gaussian(std=0.0)", "adds no noise"),
        ("gaussian(std=0.1)", r"nothing clips the update before gaussian\(std=0.1\)"),
        ("gaussian(std=0.1) | clip(norm=1.0)", "nothing clips the update before"),
        ("clip(norm=1e999) | laplace(scale=0.1)", "nothing clips the update before"),
    ],
)
def test_where_nothing_is_proven_a_sentence_says_why(text: str, why: str) -> None:
    found = of(text, delta=1e-5, guess=0.01)
    for figure in (found.log_capacity, found.epsilon, found.ceiling):
        assert figure.value is None
        assert re.search(why, figure.sentence)
    assert found.unit is None


def test_what_is_not_asked_for_says_what_it_needs() -> None:
    found = of("clip(norm=1.0) | gaussian(std=0.5)")
    assert found.log_capacity.value is not None
    assert (found.epsilon.value, found.ceiling.value) == (None, None)
    assert "δ" in found.epsilon.sentence
    assert "best guess" in found.ceiling.sentence


def test_pre_and_post_processing_raise_nothing() -> None:
    plain = of("clip(norm=1.0) | gaussian(std=0.5)", delta=1e-5, guess=0.1)
    for text in (
        "prune(p=0.5) | clip(norm=1.0) | gaussian(std=0.5)",
        "clip(norm=1.0) | prune(p=0.5) | gaussian(std=0.5)",
        "clip(norm=1.0) | gaussian(std=0.5) | prune(p=0.9)",
        "clip(norm=3.0) | clip(norm=1.0) | gaussian(std=0.5) | clip(norm=0.1)",
        "gaussian(std=0.1) | clip(norm=1.0) | gaussian(std=0.5)",
    ):
        found = of(text, delta=1e-5, guess=0.1)
        for name in ("log_capacity", "epsilon", "ceiling"):
            assert getattr(found, name).value == pytest.approx(getattr(plain, name).value), (text, name)
    pruned = of("clip(norm=1.0) | random_prune(p=0.9) | gaussian(std=0.5)", guess=0.1)
    assert pruned.log_capacity.value == pytest.approx(bounds.log_capacity_pruned(500, 1.0, 0.5, 0.1))
    assert pruned.ceiling.value == pytest.approx(plain.ceiling.value)


def test_layers_are_a_product_and_need_their_sizes() -> None:
    found = of("clip(norm=1.0, per='layer') | gaussian(std=0.5)", guess=0.1)
    assert found.log_capacity.value == pytest.approx(bounds.log_capacity_layers([320, 180], 1.0, 0.5).product)
    ceiling = bounds.gaussian_ceiling(0.1, clip=math.sqrt(2), sigma=0.5)
    assert found.ceiling.value == pytest.approx(ceiling.value)
    unknown = bound_of(protection("clip(norm=1.0, per='layer') | gaussian(std=0.5)"), 500)
    assert "sizes by tensor name" in unknown.log_capacity.sentence


def test_laplace_noise_on_an_l2_ball() -> None:
    found = of("clip(norm=0.1) | laplace(scale=2.0)", guess=0.1, rounds=2)
    r1 = 0.1 * math.sqrt(500)
    assert found.log_capacity.value == pytest.approx(2 * bounds.log_capacity_laplace(500, r1, 2.0))
    assert found.epsilon.value == pytest.approx(2 * r1 / 2)
    assert found.ceiling.value == pytest.approx(
        min(
            bounds.epsilon_ceiling(0.1, r1).value,
            bounds.capacity_ceiling(0.1, 2 * bounds.log_capacity_laplace(500, r1, 2.0)).value,
        )
    )


def test_directions_need_no_clipping() -> None:
    found = of("vmf(kappa=30.0)", guess=0.1)
    assert found.log_capacity.value == pytest.approx(bounds.log_capacity_vmf(500, 30.0))
    assert found.epsilon.value == pytest.approx(60.0)
    assert found.ceiling.value == pytest.approx(bounds.vmf_ceiling(0.1, dim=500, concentration=30.0).value)
    twice = of("vmf(kappa=30.0)", guess=0.1, rounds=2)
    assert found.ceiling.value <= twice.ceiling.value  # type: ignore[operator]
    assert of("vmf(kappa=0.0)", guess=0.1, rounds=9).ceiling.value == pytest.approx(0.1)


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("concentration", [0.1, 1.0, 5.0])
def test_rounds_of_directions_are_above_one_round_of_more(rounds: int, concentration: float) -> None:
    """T observations of one direction are as one with concentration below T times as large: the ceiling covers it."""
    found = bounds.vmf_rounds(0.05, 3, concentration, rounds)
    assert found.value >= bounds.vmf_ceiling(0.05, dim=3, concentration=concentration).value - 1e-12
    assert 0.05 <= found.value <= 1


@pytest.mark.parametrize(("dim", "concentration", "rounds"), [(3, 1.0, 2), (3, 4.0, 3), (500, 20.0, 4)])
def test_rounds_of_directions_are_above_the_best_test(dim: int, concentration: float, rounds: int) -> None:
    """The likeliest test of T directions against uniform ones sums the cosines: its power stays below the ceiling."""
    rng, draws, level = np.random.default_rng(0), 100_000, 0.05
    blind, seen = (
        (1 - sample_gaps(dim, c, rounds * draws, rng)).reshape(draws, rounds).sum(1) for c in (0.0, concentration)
    )
    power = float((seen > np.quantile(blind, 1 - level)).mean())
    found = bounds.vmf_rounds(level, dim, concentration, rounds).value
    assert power - 0.01 <= found <= 1
    assert found < 1.0 or power > 0.7, "a limit that says something wherever the noise does"


def test_many_rounds_at_the_size_of_a_network() -> None:
    found = of_size("vmf(kappa=100.0)", 13_700, guess=0.01, rounds=3).ceiling.value
    assert found is not None
    assert 0.05 < found < 0.4


def of_size(text: str, size: int, **options: object) -> bounds.Bound:
    return bound_of(protection(text), size, **options)  # type: ignore[arg-type]


def test_what_is_granted_may_go_around_the_noise() -> None:
    text = "clip(norm=1.0) | prune(p=0.5) | gaussian(std=0.5)"
    told = of(text, guess=0.1, grants={"threshold"})
    assert told.ceiling.value is None
    assert "the granted threshold of prune(p=0.5)" in told.ceiling.sentence
    after = of("clip(norm=1.0) | gaussian(std=0.5) | prune(p=0.5)", guess=0.1, grants={"threshold"})
    assert after.ceiling.value is not None, "of the noisy update the threshold is post-processing"
    mask = of("clip(norm=1.0) | random_prune(p=0.5) | gaussian(std=0.5)", guess=0.1, grants={"mask"})
    assert mask.ceiling.value is not None, "a mask is drawn without a look at the record"


@dataclass(frozen=True, repr=False)
class Peeking(UpdatePart):
    """Promises nothing."""

    nuisances: ClassVar[tuple[Nuisance, ...]] = ()

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        return Release(dict(update))


def test_a_part_that_promises_nothing_gets_no_bound() -> None:
    clip, noise = lg.parse("clip(norm=1.0)"), Gaussian(0.5)
    assert bound_of(Peeking() | clip | noise, 10, guess=0.1).ceiling.value is not None
    between = bound_of(clip | Peeking() | noise, 10, guess=0.1)
    assert "may increase the norm of the update" in between.ceiling.sentence
    after = bound_of(clip | noise | Peeking(), 10, guess=0.1)
    assert "it may use the record" in after.ceiling.sentence
    assert (between.ceiling.value, after.ceiling.value) == (None, None)


def test_two_clippings_of_records_leave_a_diameter() -> None:
    """Without one record the others still send: within a ball of radius R the update moves by up to 2R, not R."""
    clipped = "clip(norm=1.0, per='example') | clip(norm=0.2) | gaussian(std=1.0)"
    assert of(clipped, guess=0.1, batch=4).ceiling.value == pytest.approx(bounds.mu_ceiling(0.4, 0.25).value)
    tight = "clip(norm=1.0, per='example') | clip(norm=0.1) | gaussian(std=1.0)"
    assert of(tight, guess=0.1, batch=4).ceiling.value == pytest.approx(bounds.mu_ceiling(0.4, 0.2).value)
    alone = of(tight, guess=0.1, batch=1).ceiling
    assert alone.value == pytest.approx(bounds.mu_ceiling(0.1, 0.1).value), "without its only record: zeros"


def test_a_batch_has_as_many_guesses() -> None:
    one, four = (of("clip(norm=1.0) | gaussian(std=1.0)", guess=0.1, batch=b).ceiling for b in (1, 4))
    assert one.value == pytest.approx(bounds.mu_ceiling(0.1, 1.0).value)
    assert four.value == pytest.approx(bounds.mu_ceiling(0.4, 1.0).value)
    assert "best guess counts 4 times" in four.assumptions[-1]


def test_the_upper_limit_of_the_best_guess_is_used_and_its_conditions_are_said() -> None:
    guess = bounds.best_guess([[0.1, 0.9, 0.8, 0.7]], 0.2)
    found = of("clip(norm=1.0) | gaussian(std=1.0)", guess=guess).ceiling
    assert found.value == pytest.approx(bounds.mu_ceiling(guess.upper, 1.0).value)
    assert any("reference records" in a for a in found.assumptions)
    assert any("tried" in a for a in found.assumptions)


def test_of_a_task() -> None:
    task = small_task().protect("clip(norm=1.0) | gaussian(std=1.0)")
    entries = sum(p.numel() for p in task.params.values())
    found = bound_of_task(task, guess=0.1, delta=1e-3)
    assert found.log_capacity.value == pytest.approx(bounds.log_capacity_gaussian(entries, 1.0, 1.0))
    assert found == bound_of(task.protection, {n: p.numel() for n, p in task.params.items()}, guess=0.1, delta=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "batch must be an integer ≥ 1, got 0"),
        ({"rounds": 0}, "rounds must be an integer ≥ 1, got 0"),
        ({"guess": 1.5}, r"guess must lie in \[0, 1\], got 1.5"),
        ({"delta": 0.0}, r"delta must lie in \(0, 1\), got 0.0"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(DomainError, match=said):
        of("clip(norm=1.0) | gaussian(std=1.0)", **options)


def test_the_corridor_says_how_attack_and_bound_stand() -> None:
    states = {ceiling: bounds.corridor(50, 100, ceiling).state for ceiling in (None, 0.9, 0.55, 0.5, 0.3)}
    assert states == {None: "no bound", 0.9: "open", 0.55: "tight", 0.5: "tight", 0.3: "contradiction"}
    found = bounds.corridor(50, 100, 0.9)
    assert found.low < found.success < found.high
    assert found.risk == 0.5
    assert "open" in found.sentence
    assert "assumption" in bounds.corridor(50, 100, 0.3).sentence
    with pytest.raises(DomainError, match="ceiling must lie in"):
        bounds.corridor(1, 2, 1.5)


def test_a_right_bound_is_rarely_contradicted() -> None:
    """At the ceiling itself, contradictions are as rare as the confidence says."""
    tail = sum(
        float(stats.binom.pmf(k, 60, 0.2)) for k in range(61) if bounds.corridor(k, 60, 0.2).state == "contradiction"
    )
    assert 0 < tail <= 0.01


def test_the_best_guess_from_reference_records() -> None:
    domain = lg.Domain("image", (1, 2, 2), 2)
    labels = torch.arange(400) % 2
    inputs = labels.float().view(-1, 1, 1, 1).expand(400, 1, 2, 2) * 0.8 + 0.1
    records = lg.Records(inputs.clone(), labels, domain)

    def score(guess: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        return 1 - (guess - truth).abs().flatten(1).amax(1)

    known = bounds.measured_guess(records, score, 0.95)
    hidden = bounds.measured_guess(records, score, 0.95, labels=False)
    assert known.estimate == 1.0, "the class is the record"
    assert 0.4 < hidden.estimate < hidden.upper < 0.65, "half of them are one of two images"
    assert bounds.measured_guess(records, score, 1.5).estimate == 0
    assert hidden == bounds.measured_guess(records, score, 0.95, labels=False)
    with pytest.raises(DomainError, match="give at least four"):
        bounds.measured_guess(records[:3], score, 0.5)


def test_other_stages_come_before_the_noise() -> None:
    @dataclass(frozen=True)
    class Early:
        stage: ClassVar[str] = "training"
        nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("scale", "update"),)

    whole = Protection(training=(Early(),), update=lg.parse("clip(norm=1.0) | gaussian(std=1.0)"))
    plain = bound_of(whole.update, 10, guess=0.1)
    assert bound_of(whole, 10, guess=0.1).ceiling == plain.ceiling
    assert bound_of(whole, 10, guess=0.1, grants={"scale"}).ceiling.value is None
