"""Search spaces: ranges inside expressions, and clear words for what is no space."""

from __future__ import annotations

import pytest

from leakgauge.errors import DomainError, ExpressionError
from leakgauge.tune import Choice, Linear, Log, Space, Whole, bayes
from leakgauge.tune.searching import problems


def test_a_range_beside_an_attack_becomes_its_argument() -> None:
    space = Space.of("adaptive(steps=30)", ["tv_weight = log(1e-5, 1e-1)"])
    assert space.ranges == {"tv_weight": Log(1e-5, 1e-1)}
    assert space.plain == "adaptive(steps=30)"
    assert space.at({"tv_weight": 0.00123456}) == "adaptive(steps=30, tv_weight=0.001235)"


def test_ranges_stand_anywhere_and_are_named_by_their_arguments() -> None:
    space = Space.of(
        "adversary(likelihood=choice(l2(), cosine()), prior=log(0.001, 1)*tv(), "
        "solver=adam(lr=linear(-0.5, 0.5), steps=whole(2, 9)))"
    )
    assert space.ranges == {
        "likelihood": Choice(("l2()", "cosine()")),
        "prior": Log(0.001, 1),
        "solver.lr": Linear(-0.5, 0.5),
        "solver.steps": Whole(2, 9),
    }
    assert space.plain is None
    text = space.at({"likelihood": "cosine()", "prior": 0.5, "solver.lr": -0.25, "solver.steps": 3})
    assert text == "adversary(likelihood=cosine(), prior=0.5 * tv(), solver=adam(lr=-0.25, steps=3))"


def test_your_own_attack_keeps_its_path() -> None:
    space = Space.of("my_package.attacks:Mine(weight=log(1, 10), how=choice('a', 'b'))")
    assert space.at({"weight": 2.0, "how": "'b'"}) == "my_package.attacks:Mine(weight=2.0, how='b')"


def test_a_value_never_leaves_its_range_by_rounding() -> None:
    within = Log(1.23456e-3, 9.87654e-1)
    assert within.rounded(9.87654e-1) == within.high  # 0.9877 would lie outside
    assert all(within.low <= value <= within.high for value in within.points(5))


def test_a_grid_holds_every_combination_and_its_ends_are_examined() -> None:
    space = Space.of("adaptive(tv_weight=log(0.001, 0.1), latent=choice('joint', 'before'), steps=whole(1, 3))")
    assert len(space.grid(3)) == 3 * 2 * 3
    assert len(space.corners()) == 4  # one dimension at a time, and the first point once


@pytest.mark.parametrize(
    ("attack", "dimensions", "words"),
    [
        ("", [], "no attack"),
        ("adaptive(", [], "cannot read"),
        ("adaptive()", [], "nothing in"),
        ("adaptive()", ["tv_weight"], "gives no range"),
        ("adaptive()", ["tv_weight = "], "cannot read"),
        ("adaptive()", ["tv_weight = 3"], "gives no range"),
        ("adaptive()", ["tv_weight = lgo(1, 2)"], "did you mean 'log'"),
        ("adaptive()", ["tv_weight = log(2, 1)"], "is empty"),
        ("adaptive()", ["tv_weight = log(0, 1)"], "begin above 0"),
        ("adaptive()", ["tv_weight = log(1)"], "two numbers"),
        ("adaptive()", ["tv_weight = log(1, 1e999)"], "is empty"),
        ("adaptive()", ["steps = whole(1.5, 2)"], "not whole"),
        ("adaptive()", ["latent = choice('joint')"], "two different"),
        ("adaptive()", ["tv_weight = log(low=1, high=2)"], "names its arguments"),
        ("adaptive(tv_weight=1)", ["tv_weight = log(1, 2)"], "given twice"),
        ("1*tv()", ["weight = log(1, 2)"], "takes no arguments"),
        ("adaptive", ["tv_weight = log(1, 2)"], "'adaptive' is not called"),
        ("adaptive()", ["steps = whole(1, 1" + 30 * "0" + ")"], "reaches beyond"),
        ("adaptive()", ["tv_weight = log(1, 1" + 400 * "0" + ")"], "is empty"),
        ("adaptive()", "tv_weight = log(1, 2)", "a list of texts"),
        ("adaptive()", [3], "a list of texts"),
        (3, [], "no text"),
    ],
)
def test_what_is_no_space_is_refused_with_a_remedy(attack: str, dimensions: list[str], words: str) -> None:
    with pytest.raises(ExpressionError, match=words) as raised:
        Space.of(attack, dimensions)
    assert raised.value.remedy


def test_a_budget_that_tries_too_little_is_refused() -> None:
    space = Space.of("adaptive(tv_weight=log(0.001, 0.1))")
    assert not problems(space, "tpe", 2)
    for sampler, trials, words in (
        ("tpe", 1, ["trials must be an integer ≥ 2, got 1"]),
        ("grid", 4, ["grid has 5 points"]),
        ("magic", 0, ["sampler must be one of tpe, random, grid", "trials must be an integer ≥ 2, got 0"]),
        (None, "2", ["sampler must be one of", "trials must be an integer ≥ 2, got '2'"]),
    ):
        told = problems(space, sampler, trials)  # type: ignore[arg-type]
        assert len(told) == len(words)
        assert all(word in fault.what and fault.remedy for word, fault in zip(words, told, strict=True))


@pytest.mark.parametrize("points", [0, 1, 2.5])
def test_a_grid_of_less_than_two_points_is_refused(points: int) -> None:
    (told,) = problems(Space.of("adaptive(tv_weight=log(0.001, 0.1))"), "grid", 4, points)
    assert "points must be an integer ≥ 2" in told.what


def test_the_size_of_a_grid_is_known_before_it_is_made() -> None:
    text = "adaptive(tv_weight=log(0.001, 0.1), tv_density=linear(0, 1), latent=choice('joint', 'before'))"
    for space in (Space.of(text), *(Space.of(f"adaptive(steps=whole(1, {high}))") for high in (2, 3, 10, 100))):
        assert [space.size(points) for points in range(2, 13)] == [len(space.grid(points)) for points in range(2, 13)]
    (told,) = problems(Space.of(text), "grid", 40, points=10**9)
    assert "the grid has 2000000000000000000 points" in told.what


def test_a_space_is_written_as_it_is_read() -> None:
    text = "mine.attacks:A(a=log(1e-05, 0.1), b=linear(-1, 2.5), c=whole(1, 3), d=choice(l2(), cosine(), 'x'))"
    assert Space.of(text).written == text
    beside = Space.of("adaptive(steps=30)", ["tv_weight = log(1e-5, 1e-1)"])
    assert Space.of(beside.written).ranges == beside.ranges


def test_a_point_has_a_value_for_every_range_and_no_other() -> None:
    space = Space.of("adaptive(tv_weight=log(0.001, 0.1))")
    with pytest.raises(DomainError, match="no value for 'tv_weight'"):
        space.at({})
    with pytest.raises(DomainError, match="no range 'tv_wait'; did you mean 'tv_weight'"):
        space.at({"tv_weight": 0.1, "tv_wait": 0.1})


def test_the_preset_of_the_bayes_paper_lays_a_grid_around_the_best_weight() -> None:
    preset = bayes()
    assert preset.first.ranges == {"prior": Log(1e-7, 1e5)}
    assert preset.first.grid(preset.points)[1] == {"prior": 1e-6}
    second = preset.then({"prior": 10.0})
    assert second.ranges["prior"] == Choice(("5", "10", "20"))
    assert preset.trials == 13 + 27
