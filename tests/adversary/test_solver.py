"""The batched solver on problems whose answers are known, and the independence of the N problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from scipy import stats
from torch import Tensor

from leakgauge.adversary.solver import (
    Ball,
    Problem,
    Solution,
    Solver,
    adam,
    ball,
    cma,
    constant,
    cosine_decay,
    exponential,
    gauss_newton,
    lbfgs,
    momentum,
    ramp,
    signed_adam,
    step_decay,
    warmup,
)
from leakgauge.adversary.solver.problem import Value, draw, spread, sweep
from leakgauge.errors import DomainError
from leakgauge.expr import REGISTRY, parse, read
from leakgauge.testing import attack_reaches_map
from leakgauge.types import Tree

# every optimiser with a setting that converges on a quadratic; the law fails while a registered solver has no row
SOLVERS: dict[str, list[Solver]] = {
    "adam": [adam(lr=0.1, steps=400, schedule=cosine_decay())],
    "signed_adam": [
        signed_adam(lr=0.2, steps=250, schedule=exponential(rate=0.93)),
        signed_adam(lr=0.3, steps=300, schedule=exponential(rate=0.94), sign="soft"),
    ],
    "momentum": [momentum(lr=0.03, steps=60, beta=0.3), momentum(lr=0.035, steps=100, beta=0.0)],
    "lbfgs": [lbfgs(steps=40)],
    "gauss_newton": [gauss_newton(steps=5)],
    "cma": [cma(sigma=0.5, steps=300)],
}
WITHOUT_CMA = pytest.mark.skipif(find_spec("cma") is None, reason="type: pip install 'leakgauge[cma]'")
EVERY = [
    pytest.param(solver, marks=[WITHOUT_CMA, pytest.mark.slow] if name == "cma" else [])
    for name in REGISTRY["solver"]
    for solver in SOLVERS.get(name, [])
]


def test_every_registered_solver_is_put_through_the_law() -> None:
    assert set(SOLVERS) == set(REGISTRY["solver"])


@pytest.mark.parametrize("solver", EVERY, ids=repr)
def test_every_optimiser_reaches_the_closed_form_map(solver: Solver) -> None:
    assert attack_reaches_map(solver, tolerance=1e-6) <= 1e-6


def test_the_law_fails_a_solver_that_stops_too_early() -> None:
    with pytest.raises(AssertionError, match="from the closed-form MAP"):
        attack_reaches_map(adam(steps=20))


# --- problems of our own ---------------------------------------------------------------------------------------------


def rosenbrock(start: Tensor, seeds: Sequence[int] | None = None) -> Problem:
    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        x = unknowns["inputs"]
        value = (100 * (x[:, 1:] - x[:, :-1].square()).square() + (1 - x[:, :-1]).square()).sum(1)
        return Value(-value, torch.zeros_like(value))

    return Problem({"inputs": start}, evaluate, tuple(seeds or range(len(start))))


def bowls(count: int = 8, dimension: int = 6, *, coupled: bool = False, **options: object) -> tuple[Problem, Tensor]:
    """Quadratic bowls, each with its own centre and curvatures: ``(problem, centres)``."""
    generator = torch.Generator().manual_seed(11)
    centres = torch.rand(count, dimension, generator=generator, dtype=torch.float64)
    curves = torch.rand(count, dimension, generator=generator, dtype=torch.float64) + 0.5

    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        gap = unknowns["inputs"] - centres[which]
        likelihood = -(curves[which] * gap.square()).sum(1)
        return Value(likelihood, -1e-3 * unknowns["inputs"].square().sum(1))

    start = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    return Problem({"inputs": start}, evaluate, tuple(range(100, 100 + count)), **options), centres  # type: ignore[arg-type]


def alone(problem: Problem, n: int) -> Problem:
    """Problem n as if there were no others."""

    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        return problem.evaluate(unknowns, which + n)

    start = {name: value[n : n + 1] for name, value in problem.start.items()}
    return replace(problem, start=start, evaluate=evaluate, seeds=problem.seeds[n : n + 1])


def assert_same(one: Solution, other: Solution, n: int, tolerance: float = 1e-12) -> None:
    """Solution ``one`` of a problem alone equals place n of ``other``, up to the order of sums.

    On the bowls that is a few eps ≈ 1e-15 (six terms each), which no walk here stretches more than ten times.
    """
    torch.testing.assert_close(one.unknowns["inputs"][0], other.unknowns["inputs"][n], rtol=0, atol=tolerance)
    assert one.status[0] == other.status[n]
    own, its = one.trace[:, 0], other.trace[:, n]
    torch.testing.assert_close(own[~own.isnan()], its[~its.isnan()], rtol=1e-12, atol=tolerance)


@pytest.mark.parametrize("dimension", [2, 5])
def test_lbfgs_solves_rosenbrock_from_many_starts_at_once(dimension: int) -> None:
    generator = torch.Generator().manual_seed(4)
    random = torch.randn(12, dimension, generator=generator, dtype=torch.float64) * 1.5
    classic = torch.tensor([[-1.2] + [1.0] * (dimension - 1)], dtype=torch.float64)
    start = torch.cat([random, classic])
    solution = lbfgs(steps=600, history=10).solve(rosenbrock(start))
    if dimension == 2:  # a single minimum; in more dimensions a second one exists
        assert float((solution.unknowns["inputs"] - 1).abs().max()) < 1e-8
    assert float(solution.objective.min()) < 1e-16
    for n in (0, 5, 12):
        # on the way through the bent valley an error of one eps grows to 1e-8 (2e7 times, measured)
        assert_same(lbfgs(steps=600, history=10).solve(rosenbrock(start[n : n + 1], [n])), solution, n, 1e-6)


def test_lbfgs_survives_walls_of_nan_and_steps_back() -> None:
    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        x = unknowns["inputs"]
        value = (x - x.log()).sum(1)  # minimum at 1, NaN left of 0
        return Value(-value, torch.zeros_like(value))

    start = torch.tensor([[3.0, 0.01], [8.0, 2.0]], dtype=torch.float64)
    solution = lbfgs(steps=100).solve(Problem({"inputs": start}, evaluate, (0, 1)))
    torch.testing.assert_close(solution.unknowns["inputs"], torch.ones(2, 2, dtype=torch.float64), rtol=0, atol=1e-7)


def test_lbfgs_and_annealing_do_not_go_together() -> None:
    problem, _ = bowls(2, anneal=ramp(start=0.1))
    with pytest.raises(DomainError, match="changes the objective between two trials of a line search; use adam"):
        lbfgs(steps=5).solve(problem)


INDEPENDENT: list[Solver] = [
    adam(steps=30),
    adam(steps=30, langevin=0.01),
    signed_adam(steps=30),
    signed_adam(steps=30, sign="soft"),
    momentum(steps=30, lr=0.05),
    lbfgs(steps=20),
    adam(steps=60, patience=5, tolerance=1e-2),
    lbfgs(steps=60, target=1e-2),
]


@pytest.mark.parametrize("solver", INDEPENDENT, ids=repr)
def test_a_problem_among_others_ends_as_it_does_alone(solver: Solver) -> None:
    problem, _ = bowls()
    together = solver.solve(problem)
    for n in range(problem.size):
        assert_same(solver.solve(alone(problem, n)), together, n)


def test_points_in_the_ball_do_not_depend_on_neighbours_either() -> None:
    problem, _ = bowls(ball=ball(points=3, delta=0.3))
    together = adam(steps=20).solve(problem)
    for n in (0, 3, 7):
        assert_same(adam(steps=20).solve(alone(problem, n)), together, n)


@pytest.mark.parametrize("solver", [adam(steps=25), momentum(steps=25, lr=0.05), lbfgs(steps=25)], ids=repr)
@pytest.mark.parametrize("when", ["value", "slope"])
def test_nan_in_one_problem_leaves_the_others_alone(solver: Solver, when: str) -> None:
    problem, _ = bowls()

    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        value = problem.evaluate(unknowns, which)
        far = (which == 3) & (unknowns["inputs"].detach()[:, 0] < 10)
        if when == "value":
            return Value(torch.where(far, torch.nan, value.likelihood), value.prior)
        wall = torch.where(far, unknowns["inputs"][:, 0] * 0, 1.0).sqrt()  # at zero, a finite value without a slope
        return Value(value.likelihood + torch.where(far, wall, 0.0), value.prior)

    sick = solver.solve(replace(problem, evaluate=evaluate))
    well = solver.solve(problem)
    assert sick.status[3] == "diverged"
    assert sick.unknowns["inputs"].isfinite().all()
    others = [n for n in range(8) if n != 3]
    torch.testing.assert_close(sick.unknowns["inputs"][others], well.unknowns["inputs"][others], rtol=0, atol=1e-12)
    assert [sick.status[n] for n in others] == [well.status[n] for n in others]


def test_retirement_by_plateau_and_by_target() -> None:
    problem, _ = bowls()
    free = adam(steps=200).solve(problem)
    flat = adam(steps=200, patience=10, tolerance=1e-3).solve(problem)
    assert set(flat.status) == {"plateau"}
    assert flat.evaluations < free.evaluations / 2
    for n in range(8):
        ran = ~flat.trace[:, n].isnan()
        assert 10 < int(ran.sum()) < 200
        # until a problem retires, it walks exactly as without retirement
        torch.testing.assert_close(flat.trace[ran, n], free.trace[: int(ran.sum()), n], rtol=1e-12, atol=1e-12)
    hit = adam(steps=200, target=0.05).solve(problem)
    assert set(hit.status) == {"target"}
    for n in range(8):
        trace = hit.trace[~hit.trace[:, n].isnan(), n]
        assert float(trace[-1]) <= 0.05 < float(trace[:-1].min())


def test_the_best_iterate_is_returned_not_the_last() -> None:
    problem, _ = bowls()
    wild = momentum(steps=40, lr=0.9, beta=0.0).solve(problem)  # steps too long: the objective grows
    last = torch.stack([wild.trace[~wild.trace[:, n].isnan(), n][-1] for n in range(8)])
    assert bool((wild.objective < last).any())
    best = torch.stack([wild.trace[~wild.trace[:, n].isnan(), n].min() for n in range(8)])
    torch.testing.assert_close(wild.objective, best)
    value = problem.evaluate(wild.unknowns, torch.arange(8))
    torch.testing.assert_close(-(value.likelihood + value.prior), wild.objective)


def test_annealing_weighs_the_likelihood_and_the_best_iterate_is_judged_without_it() -> None:
    problem, _ = bowls(anneal=exponential(rate=0.0))  # 0 ** step: the likelihood counts at step 0 only
    solution = momentum(steps=3, lr=1e-3, beta=0.0).solve(problem)
    value = problem.evaluate(solution.unknowns, torch.arange(8))
    torch.testing.assert_close(solution.objective, -(value.likelihood + value.prior))
    plain, _ = bowls()
    start = plain.flat(plain.start)
    _, slope = problem.slope(start, torch.arange(8), 1, 3)
    torch.testing.assert_close(slope, 2e-3 * start)  # of the prior alone


def test_the_box_holds_after_every_step_and_only_where_there_is_one() -> None:
    problem, _ = bowls(box={"inputs": (0.0, 0.25)})
    seen: list[Tensor] = []

    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        seen.append(unknowns["inputs"].detach())
        return problem.evaluate(unknowns, which)

    adam(steps=10).solve(replace(problem, evaluate=evaluate))
    assert all(float(x.min()) >= 0 and float(x.max()) <= 0.25 for x in seen[1:])
    seen.clear()
    adam(steps=10, box=False).solve(replace(problem, evaluate=evaluate))
    assert float(seen[-1].max()) > 0.25


def test_several_unknowns_and_the_sign_of_the_inputs_alone() -> None:
    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        value = (unknowns["inputs"] - 3).square().flatten(1).sum(1) + 1e-3 * (unknowns["labels"] + 2).square().sum(1)
        return Value(-value, torch.zeros_like(value))

    start = {"inputs": torch.zeros(2, 2, 2, dtype=torch.float64), "labels": torch.zeros(2, 3, dtype=torch.float64)}
    problem = Problem(start, evaluate, (1, 2))
    step = momentum(lr=0.5, steps=1, beta=0.0, sign="hard").solve(problem).unknowns
    torch.testing.assert_close(step["inputs"], torch.full((2, 2, 2), 0.5, dtype=torch.float64))
    torch.testing.assert_close(step["labels"], torch.full((2, 3), -0.002, dtype=torch.float64))


def test_adam_is_torchs() -> None:
    problem, _ = bowls(3)
    ours = adam(lr=0.07, steps=40, betas=(0.8, 0.95), epsilon=1e-3).solve(problem)
    x = problem.start["inputs"].clone().requires_grad_()
    theirs = torch.optim.Adam([x], lr=0.07, betas=(0.8, 0.95), eps=1e-3)
    trace = []
    for _ in range(41):
        value = problem.evaluate({"inputs": x}, torch.arange(3))
        trace.append(-(value.likelihood + value.prior).detach())
        theirs.zero_grad()
        (-(value.likelihood + value.prior).sum()).backward()
        theirs.step()
    torch.testing.assert_close(ours.trace, torch.stack(trace), rtol=1e-10, atol=1e-12)


def test_momentum_is_torchs() -> None:
    problem, _ = bowls(3)
    ours = momentum(lr=0.02, steps=20, beta=0.9).solve(problem)
    x = problem.start["inputs"].clone().requires_grad_()
    theirs = torch.optim.SGD([x], lr=0.02, momentum=0.9)
    trace = []
    for _ in range(21):
        value = problem.evaluate({"inputs": x}, torch.arange(3))
        trace.append(-(value.likelihood + value.prior).detach())
        theirs.zero_grad()
        (-(value.likelihood + value.prior).sum()).backward()
        theirs.step()
    torch.testing.assert_close(ours.trace, torch.stack(trace), rtol=1e-10, atol=1e-12)


def test_langevin_noise_has_its_size_and_its_seed() -> None:
    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        zero = unknowns["inputs"].sum(1) * 0
        return Value(zero - unknowns["inputs"].detach()[:, 0] * 0, zero)

    start = torch.zeros(2, 20_000, dtype=torch.float64)
    last: list[Tensor] = []

    def watched(unknowns: Tree, which: Tensor) -> Value:
        last.append(unknowns["inputs"].detach().clone())
        return evaluate(unknowns, which)

    solver = momentum(lr=0.08, steps=1, langevin=0.25, beta=0.0)
    solver.solve(Problem({"inputs": start}, watched, (5, 6)))
    assert float(last[-1].std()) == pytest.approx(math.sqrt(2 * 0.08 * 0.25), rel=0.02)
    assert stats.kstest(last[-1].flatten().numpy(), "norm", args=(0, math.sqrt(2 * 0.08 * 0.25))).pvalue > 1e-4
    first = last[-1]
    solver.solve(Problem({"inputs": start}, watched, (5, 7)))
    assert torch.equal(last[-1][0], first[0])
    assert not torch.equal(last[-1][1], first[1])


def test_progress_is_told_about_every_evaluation() -> None:
    problem, _ = bowls()
    calls: list[tuple[int, int, float]] = []
    adam(steps=7).solve(problem, lambda done, total, best: calls.append((done, total, best)))
    assert [done for done, _, _ in calls] == list(range(8))
    assert {total for _, total, _ in calls} == {7}
    bests = [best for _, _, best in calls]
    assert bests == sorted(bests, reverse=True)


# --- the ball --------------------------------------------------------------------------------------------------------


def ball_points(dimension: int, count: int, delta: float, dtype: torch.dtype = torch.float64) -> Tensor:
    start = {"inputs": torch.zeros(1, dimension, dtype=dtype)}
    problem = Problem(start, lambda unknowns, which: Value(which * 0.0, which * 0.0), (17,))
    return Ball(points=count, delta=delta).sample(problem, torch.tensor([0]), dimension, 0)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dimension", [1, 2, 784])
def test_radii_follow_r_to_the_d_and_directions_are_uniform(dimension: int, dtype: torch.dtype) -> None:
    points = ball_points(dimension, 3_000, 2.5, dtype).double()
    radii = points.norm(dim=1) / 2.5
    assert float(radii.max()) <= 1 + 1e-6
    assert stats.kstest((radii**dimension).numpy(), "uniform").pvalue > 1e-3
    direction = points / points.norm(dim=1, keepdim=True)
    # for a uniform direction (1 + x_1)/2 is Beta((d−1)/2, (d−1)/2); two orthogonal ones are uncorrelated
    if dimension > 1:
        half = (dimension - 1) / 2
        for axis in (0, dimension // 2, dimension - 1):
            share = (1 + direction[:, axis]) / 2
            assert stats.kstest(share.numpy(), "beta", args=(half, half)).pvalue > 1e-3
    assert float(direction.mean(0).norm()) < 4 / math.sqrt(3_000)
    assert abs(stats.pearsonr(radii.numpy(), direction[:, 0].numpy()).statistic) < 0.08


def test_the_ball_moves_inputs_only_and_averages_the_objective() -> None:
    def evaluate(unknowns: Tree, which: Tensor) -> Value:
        assert torch.equal(unknowns["labels"].detach(), torch.ones(len(which), 2, dtype=torch.float64))
        seen.append((unknowns["inputs"].detach().clone(), which.clone()))
        return Value(-unknowns["inputs"].square().sum(1), torch.zeros(len(which), dtype=torch.float64))

    seen: list[tuple[Tensor, Tensor]] = []
    start = {"inputs": torch.rand(2, 5, dtype=torch.float64), "labels": torch.ones(2, 2, dtype=torch.float64)}
    problem = Problem(start, evaluate, (1, 2), ball=ball(points=4, delta=0.5))
    value, slope = problem.slope(problem.flat(start), torch.arange(2), 0, 10)
    points, which = seen[0]
    assert which.tolist() == [0] * 4 + [1] * 4
    distance = (points - start["inputs"].repeat_interleave(4, 0)).norm(dim=1)
    assert float(distance.max()) <= 0.5
    assert float(distance.min()) > 0
    wanted = points.unflatten(0, (2, 4))
    torch.testing.assert_close(value.likelihood, -wanted.square().sum(2).mean(1))
    torch.testing.assert_close(slope[:, :5], 2 * wanted.mean(1))
    _, again = problem.slope(problem.flat(start), torch.arange(2), 1, 10)
    assert not torch.equal(again, slope)  # new points at every step


@pytest.mark.parametrize("options", [{"points": 0}, {"delta": -0.1}])
def test_the_ball_guards_its_domain(options: dict[str, float]) -> None:
    with pytest.raises(DomainError, match=f"ball: {next(iter(options))} must"):
        ball(**options)  # type: ignore[arg-type]


# --- schedules, draws, domains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (constant(), {0: 1.0, 50: 1.0, 100: 1.0}),
        (step_decay(), {0: 1.0, 37: 1.0, 38: 0.1, 62: 0.1, 63: 0.01, 87: 0.01, 88: 0.001, 99: 0.001}),
        (step_decay(factor=0.5, at=(0.5,)), {49: 1.0, 50: 0.5}),
        (cosine_decay(), {0: 1.0, 25: (1 + math.sqrt(0.5)) / 2, 50: 0.5, 100: 0.0}),
        (cosine_decay(floor=0.2), {0: 1.0, 50: 0.6, 100: 0.2}),
        (exponential(rate=0.9), {0: 1.0, 1: 0.9, 10: 0.9**10}),
        (warmup(length=4), {0: 0.25, 1: 0.5, 3: 1.0, 50: 1.0}),
        (ramp(start=0.01, length=10), {0: 0.01, 5: 0.1, 10: 1.0, 50: 1.0}),
        (warmup(length=4) * exponential(rate=0.5), {0: 0.25, 1: 0.25, 4: 0.0625}),
    ],
    ids=repr,
)
def test_schedules_have_their_values(schedule: object, wanted: dict[int, float]) -> None:
    for step, factor in wanted.items():
        assert schedule(step, 100) == pytest.approx(factor, rel=1e-12, abs=1e-15)  # type: ignore[operator]


def test_draws_depend_on_their_own_seed_and_key_alone() -> None:
    like = torch.zeros(0, dtype=torch.float64)
    rows = draw([3, 4, 5], (7,), 1, 2, like=like)
    assert torch.equal(rows[1:2], draw([4], (7,), 1, 2, like=like))
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows, draw([3, 4, 5], (7,), 1, 3, like=like))
    uniform = draw([3], (10_000,), 1, like=like, law="uniform")
    assert stats.kstest(uniform.flatten().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: adam(lr=0.0), "adam: lr must lie in (0, ∞), got 0.0"),
        (lambda: adam(lr=math.nan), "adam: lr must lie in (0, ∞), got nan"),
        (lambda: momentum(steps=0), "momentum: steps must be an integer ≥ 1, got 0"),
        (lambda: parse("signed_adam(sign='loud')"), "signed_adam: sign must be one of none, hard, soft, got 'loud'"),
        (lambda: lbfgs(steps=0), "lbfgs: steps must be an integer ≥ 1, got 0"),
        (lambda: lbfgs(wolfe=(0.9, 0.1)), "lbfgs: wolfe must be 0 < c1 < c2 < 1, got (0.9, 0.1)"),
        (lambda: warmup(length=0), "warmup: length must be an integer ≥ 1, got 0"),
    ],
)
def test_solvers_guard_their_domain(make: object, what: str) -> None:
    with pytest.raises(DomainError) as raised:
        make()  # type: ignore[operator]
    assert f"{raised.value.where}: {raised.value.what}" == what
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("adam(schedule=cosine())", ("schedule",)),
        ("adam(schedule=3, target='x', patience='x')", ("schedule", "target", "patience")),
        ("adam(lr='0.1', tolerance='q', langevin='a', betas=(2, 3))", ("lr", "tolerance", "langevin", "betas")),
        ("adam(betas=0.9, epsilon=-1, box=3, patience=-1)", ("betas", "epsilon", "box", "patience")),
        ("adam(betas=(0.9,), target=1e999)", ("betas", "target")),
        ("signed_adam(sign='loud', epsilon=0)", ("sign", "epsilon")),
        ("momentum(beta='x', steps=0)", ("beta", "steps")),
        ("momentum(beta=1)", ("beta",)),
        ("lbfgs(lr='a', gradient_tolerance='x', searches=0, wolfe='a')", ("lr", "gradient_tol", "searches", "wolfe")),
        ("lbfgs(wolfe=(0.9, 0.1), history=0, tolerance=-1)", ("wolfe", "history", "tolerance")),
        ("gauss_newton(steps=0, inner=0, box=1, patience=0)", ("steps", "inner", "box", "patience")),
        ("cma(sigma=0, steps=0, population='many')", ("sigma", "steps", "population")),
        ("step_decay(factor='x', at=3)", ("factor", "at")),
        ("step_decay(at=('x',))", ("at",)),
        ("ramp(start=0, length=0)", ("start", "length")),
        ("cosine_decay(floor='a')", ("floor",)),
        ("exponential(rate=True)", ("rate",)),
        ("ball(points=0.5, delta='a')", ("points", "delta")),
    ],
)
def test_every_wrong_setting_is_named_at_once(text: str, settings: tuple[str, ...]) -> None:
    faults = read(text).faults
    assert all(isinstance(fault, DomainError) and fault.remedy for fault in faults)
    assert len(faults) == len(settings)
    for name in settings:
        assert any(name in fault.what for fault in faults)


def test_a_sweep_of_settings_is_no_fault() -> None:
    parts = [adam(lr=rate, schedule=exponential(rate=rate)) for rate in (0.1, 0.2)]
    spread(sweep(parts), torch.tensor([1, 0]))
    with pytest.raises(DomainError, match="lr must lie"):
        adam(lr=torch.tensor([0.1, 0.2]))  # type: ignore[arg-type]
