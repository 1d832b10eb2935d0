"""Parts against closed forms, slow oracles and their own fine print."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from leakgauge.defenses import UpdatePart, clip, gaussian, laplace, protection, prune, random_prune, smallest_survivor
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.expr import parse
from leakgauge.testing import example_update
from leakgauge.types import Threat
from leakgauge.updates import Batch, Stack


def released(part: UpdatePart, update: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    return part.release(update, None, generator=torch.Generator().manual_seed(seed)).observed


def log_density(
    part: UpdatePart, observed: list[float], update: list[float], known: dict[str, list[float]] | None = None
) -> float:
    """Of one update of a few entries; ``known`` by address."""
    o, u = (torch.tensor([values], dtype=torch.float64) for values in (observed, update))
    granted = {address: {"w": torch.tensor([v], dtype=torch.float64)} for address, v in (known or {}).items()}
    return float(part.log_density(Stack({"w": o}), Batch.of({"w": u}), known=granted))


def test_noise_densities_are_scipys() -> None:
    o, u = [0.3, -2.0, 0.0], [0.1, 0.5, 0.0]
    pairs = list(zip(o, u, strict=True))
    assert log_density(gaussian(std=0.7), o, u) == pytest.approx(sum(stats.norm.logpdf(a, b, 0.7) for a, b in pairs))
    assert log_density(laplace(scale=0.7), o, u) == pytest.approx(
        sum(stats.laplace.logpdf(a, b, 0.7) for a, b in pairs)
    )


def test_a_hidden_mask_is_the_mixture_and_a_granted_one_the_noise_at_the_masked_update() -> None:
    part, o, u = random_prune(p=0.3) | gaussian(std=0.5), [0.3, -2.0], [0.1, -1.5]
    pairs = list(zip(o, u, strict=True))
    mixed = sum(math.log(0.7 * stats.norm.pdf(a, b, 0.5) + 0.3 * stats.norm.pdf(a, 0, 0.5)) for a, b in pairs)
    assert log_density(part, o, u) == pytest.approx(mixed, rel=1e-12)
    granted = stats.norm.logpdf(0.3, 0.1, 0.5) + stats.norm.logpdf(-2.0, 0.0, 0.5)
    assert log_density(part, o, u, {"random_prune.mask": [1.0, 0.0]}) == pytest.approx(granted, rel=1e-12)


@pytest.mark.parametrize(("granted", "hidden"), [("random_prune.mask", 0.2), ("random_prune#2.mask", 0.3)])
def test_either_of_two_masks_may_be_granted(granted: str, hidden: float) -> None:
    """Masks commute: noise on the granted one, mixed by the share of the hidden one, in whatever order they acted."""
    part = parse("random_prune(p=0.3) | identity() | random_prune(p=0.2) | gaussian(std=0.5)")
    pairs = [(0.3, 0.1), (-2.0, 0.0)]  # the second entry is dropped by the granted mask
    wanted = sum(
        math.log((1 - hidden) * stats.norm.pdf(a, b, 0.5) + hidden * stats.norm.pdf(a, 0, 0.5)) for a, b in pairs
    )
    assert log_density(part, [0.3, -2.0], [0.1, -1.5], {granted: [1.0, 0.0]}) == pytest.approx(wanted, rel=1e-12)
    assert all(protection(part).chain.sums_out(a) for a in ("random_prune.mask", "random_prune#2.mask"))
    assert not protection("random_prune(p=0.3) | prune(p=0.5) | gaussian(std=0.5)").chain.sums_out("random_prune.mask")


def test_a_pruned_zero_is_an_interval_and_a_survivor_the_noise() -> None:
    part, t = gaussian(std=0.5) | prune(p=0.5), 0.4
    inside = stats.norm.cdf(t, 0.2, 0.5) - stats.norm.cdf(-t, 0.2, 0.5)
    wanted = math.log(inside) + stats.norm.logpdf(-0.9, 0.2, 0.5)
    assert log_density(part, [0.0, -0.9], [0.2, 0.2], {"prune.threshold": [t]}) == pytest.approx(wanted, rel=1e-12)
    assert log_density(part, [0.3], [0.2], {"prune.threshold": [t]}) == -math.inf  # nothing smaller than τ survives


def test_zeros_of_two_prunings_add_up() -> None:
    twice = gaussian(std=0.5) | random_prune(p=0.4) | random_prune(p=0.3)
    assert log_density(twice, [0.0], [1.0]) == pytest.approx(math.log(1 - 0.6 * 0.7), rel=1e-12)
    both, t = gaussian(std=0.5) | prune(p=0.5) | random_prune(p=0.3), 0.4
    inside = stats.norm.cdf(t, 0.2, 0.5) - stats.norm.cdf(-t, 0.2, 0.5)
    assert log_density(both, [0.0], [0.2], {"prune.threshold": [t]}) == pytest.approx(
        math.log(0.3 + 0.7 * inside), rel=1e-12
    )


def test_without_anything_left_to_prune_a_zero_is_what_it_was() -> None:
    part = gaussian(std=0.5) | random_prune(p=0.8) | prune(p=0.3)
    assert log_density(part, [0.0], [1.0], {"prune.threshold": [0.0]}) == pytest.approx(math.log(0.8), rel=1e-12)


@pytest.mark.parametrize("text", ["gaussian(std=0.001) | prune(p=0.5)", "laplace(scale=0.001) | prune(p=0.5)"])
@pytest.mark.parametrize("threshold", [1e-6, 1e-3, 1e-1])
def test_interval_likelihood_and_its_slope_are_right_far_out_in_float32(text: str, threshold: float) -> None:
    part, levels = parse(text), [-4.0, -0.3, -0.02, 0.0, 0.004, 0.3, 1.0, 10.0]
    u = torch.tensor(levels).unsqueeze(1).requires_grad_()
    known = {"prune.threshold": {"w": torch.full((len(levels), 1), threshold)}}
    value = part.log_density(Stack({"w": torch.zeros(len(levels), 1)}), Batch.of({"w": u}), known=known)
    (slope,) = torch.autograd.grad(value.sum(), u)
    for level, found, found_slope in zip(levels, value.tolist(), slope.flatten().tolist(), strict=True):
        wanted, wanted_slope = _interval(text.startswith("gaussian"), level, threshold)
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-3)
        assert found_slope == pytest.approx(wanted_slope, rel=2e-2, abs=1.0)


def _interval(normal: bool, u: float, t: float) -> tuple[float, float]:
    """``log P(−t < O < t)`` and its slope in u for noise of scale 0.001, by 60-digit arithmetic in the left tail."""
    with mpmath.workdps(60):
        scale, root = mpmath.mpf("0.001"), mpmath.sqrt(2)

        def log_mass(at: mpmath.mpf) -> mpmath.mpf:
            low, high = ((sign * mpmath.mpf(t) - abs(at)) / scale for sign in (-1, 1))
            if normal:
                return mpmath.log((mpmath.erfc(-high / root) - mpmath.erfc(-low / root)) / 2)
            below, above = (mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2 for z in (low, high))
            return mpmath.log(above - below)

        at, step = mpmath.mpf(u), mpmath.mpf("1e-9")
        return float(log_mass(at)), float((log_mass(at + step) - log_mass(at - step)) / (2 * step))


@given(st.floats(0.01, 10), st.sampled_from(["update", "layer"]), st.floats(0.001, 100))
def test_clip_scales_down_to_the_norm_and_never_up(norm: float, per: str, scale: float) -> None:
    update = {name: scale * value for name, value in example_update().items()}
    observed = released(clip(norm=norm, per=per), update)  # type: ignore[arg-type]
    groups = [list(update)] if per == "update" else [["first.weight", "first.bias"], ["last.weight", "last.bias"]]
    for names in groups:
        before, after = (math.sqrt(sum(float(t[n].square().sum()) for n in names)) for t in (update, observed))
        assert after == pytest.approx(min(before, norm), rel=1e-9)
        for name in names:
            torch.testing.assert_close(observed[name] * before, update[name] * after)


def test_clip_of_an_update_of_zeros_is_finite_with_a_finite_slope() -> None:
    part = clip(norm=1.0) | gaussian(std=0.1)
    u = torch.zeros(2, 3, requires_grad=True)
    value = part.log_density(Stack({"w": torch.ones(2, 3)}), Batch.of({"w": u}), known={})
    (slope,) = torch.autograd.grad(value.sum(), u)
    assert slope.isfinite().all()


def test_clip_treats_the_candidate_as_it_treated_the_victim() -> None:
    update = example_update()
    for part in (clip(norm=0.5), clip(norm=0.5, per="layer")):
        moved = part.apply(Batch.of({name: value.unsqueeze(0) for name, value in update.items()}), {})
        assert isinstance(moved, Batch)
        for name, value in released(part, update).items():
            torch.testing.assert_close(moved.dense()[name][0], value)


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 0.9, 0.999])
def test_magnitude_pruning_keeps_the_largest_of_each_tensor(p: float) -> None:
    signs = torch.tensor([1.0, -1.0]).repeat(50)
    update = {"a": (torch.randperm(100) + 1.0) * signs, "b": torch.tensor([3.0])}
    out = prune(p=p).release(update, None, generator=torch.Generator())
    kept = out.observed["a"] != 0
    assert int(kept.sum()) == 100 - min(math.ceil(p * 100), 99)
    assert float(update["a"][kept].abs().min()) >= float(update["a"][~kept].abs().max()) if p else True
    assert torch.equal(out.observed["a"][kept], update["a"][kept])
    assert torch.equal(out.observed["b"], update["b"])  # one entry always survives
    if p:
        # the threshold is a survivor, so that anybody can read it off
        seen = prune(p=p).visible(Stack({name: value.unsqueeze(0) for name, value in out.observed.items()}))
        for name, threshold in seen["threshold"].items():
            assert float(threshold) == float(out.drawn["threshold"][name])


def test_ties_at_the_threshold_survive() -> None:
    assert released(prune(p=0.5), {"w": torch.tensor([1.0, -1.0, 1.0, 1.0])})["w"].ne(0).all()


def test_random_pruning_drops_the_fraction_and_says_which() -> None:
    update = {"w": torch.ones(200_000)}
    out = random_prune(p=0.3).release(update, None, generator=torch.Generator().manual_seed(0))
    dropped = float((out.observed["w"] == 0).double().mean())
    assert dropped == pytest.approx(0.3, abs=5 * math.sqrt(0.3 * 0.7 / 200_000))
    assert torch.equal(out.observed["w"], out.drawn["mask"]["w"])


def test_smallest_survivor_of_each_row_and_zero_where_there_is_none() -> None:
    rows = torch.tensor([[[0.0, -0.5], [2.0, 0.7]], [[0.0, 0.0], [0.0, 0.0]]])
    assert smallest_survivor(rows).tolist() == [[[0.5]], [[0.0]]]


def test_what_is_visible_is_what_nothing_covers_up() -> None:
    observed = Stack({"w": torch.tensor([[0.0, 0.4, -0.2]])})
    assert set(parse("random_prune(p=0.5) | gaussian(std=0.1)").visible(observed)) == set()
    assert set(parse("gaussian(std=0.1) | prune(p=0.5)").visible(observed)) == {"prune.threshold", "prune.kept"}
    assert set(parse("prune(p=0.5) | clip(norm=1.0)").visible(observed)) == set()
    assert set(parse("prune(p=0.5) | identity()").visible(observed)) == {"prune.threshold", "prune.kept"}
    mask = parse("gaussian(std=0.1) | random_prune(p=0.5)").visible(observed)["random_prune.mask"]["w"]
    assert mask.tolist() == [[0.0, 1.0, 1.0]]


def test_a_threat_grants_by_name_whatever_the_place_in_the_chain() -> None:
    part = parse("random_prune(p=0.5) | gaussian(std=0.1) | prune(p=0.5)")
    out = part.release(example_update(), None, generator=torch.Generator().manual_seed(0))
    addresses = [nuisance.name for nuisance in part.nuisances]
    assert addresses == list(out.drawn) == ["random_prune.mask", "prune.threshold"]
    for name in ("mask", "random_prune.mask"):
        knows = Threat(grants=frozenset({name})).mapping(addresses)
        assert knows == {"random_prune.mask": "granted", "prune.threshold": "hidden"}
    assert set(Threat().mapping(addresses).values()) == {"hidden"}


def test_a_part_alone_has_bare_names_and_equal_parts_in_a_chain_are_numbered() -> None:
    alone, update, generator = random_prune(p=0.5), example_update(), torch.Generator().manual_seed(0)
    assert [nuisance.name for nuisance in alone.nuisances] == ["mask"]
    assert set(alone.release(update, None, generator=generator).drawn) == {"mask"}
    twice = random_prune(p=0.5) | random_prune(p=0.2) | gaussian(std=0.1)
    out = twice.release(update, None, generator=generator)
    assert list(out.drawn) == ["random_prune.mask", "random_prune#2.mask"]
    first, second = out.drawn.values()
    assert not all(torch.equal(first[name], second[name]) for name in update)
    # each mask is used at its own part: the noise is at both of them times the update
    o, u, known = [0.4, 0.4], [1.0, 1.0], {"random_prune.mask": [1.0, 1.0], "random_prune#2.mask": [1.0, 0.0]}
    wanted = stats.norm.logpdf(0.4, 1.0, 0.1) + stats.norm.logpdf(0.4, 0.0, 0.1)
    assert log_density(twice, o, u, known) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("identity()", "identity() alone has no density", "attack with a matching loss"),
        ("clip(norm=1.0) | prune(p=0.5)", "has no noise", "add gaussian(), laplace() or vmf()"),
        ("gaussian(std=0.1) | laplace(scale=0.1)", "is random twice", "merge noises into one part"),
        (
            "gaussian(std=0.1) | clip(norm=1.0)",
            "part 2, clip(norm=1.0), acts on the noise of part 1, gaussian(std=0.1)",
            "put clip(norm=1.0) first",
        ),
        (
            "prune(p=0.5) | gaussian(std=0.1)",
            "the threshold of prune(p=0.5) is hidden by the noise after it",
            "grant its threshold",
        ),
        (
            "random_prune(p=0.5) | clip(norm=1.0) | gaussian(std=0.1)",
            "part 2, clip(norm=1.0), acts after the hidden choice of random_prune(p=0.5)",
            "put random_prune(p=0.5) right before the noise, or grant its mask",
        ),
        ("gaussian(std=0.0)", "gaussian(std=0.0) adds no noise", "use a positive scale"),
        ("laplace(scale=0.0) | random_prune(p=0.5)", "laplace(scale=0.0) adds no noise", "use a positive scale"),
    ],
)
def test_a_density_that_does_not_exist_names_the_part_and_the_remedy(text: str, what: str, remedy: str) -> None:
    with pytest.raises(NoDensityError) as raised:
        log_density(parse(text), [0.1], [0.2])
    assert what in str(raised.value)
    assert remedy in str(raised.value)


def test_a_threshold_that_is_not_given_is_asked_for() -> None:
    with pytest.raises(NoDensityError, match="acts on the noise of part 1"):
        log_density(gaussian(std=0.1) | prune(p=0.5), [0.1], [0.2])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gaussian(std=-0.1)", "gaussian: std must lie in [0, ∞), got -0.1"),
        ("gaussian(std=1e999)", "gaussian: std must lie in [0, ∞), got inf"),
        ("laplace(scale=-1.0)", "laplace: scale must lie in [0, ∞), got -1.0"),
        ("clip(norm=0.0)", "clip: norm must lie in (0, ∞), got 0.0"),
        ("clip(norm=1.0, per='tensor')", "clip: per must be one of update, layer, example, got 'tensor'"),
        ("random_prune(p=1.0)", "random_prune: p must lie in [0, 1), got 1.0"),
        ("prune(p=-0.1)", "prune: p must lie in [0, 1), got -0.1"),
    ],
)
def test_parts_guard_their_domain(text: str, what: str) -> None:
    with pytest.raises(DomainError) as raised:
        parse(text)
    assert f"{raised.value.where}: {raised.value.what}" == what
    assert raised.value.remedy


@pytest.mark.parametrize("make", [gaussian, laplace, random_prune, prune, clip])
def test_nan_is_in_no_domain(make: type[UpdatePart]) -> None:
    with pytest.raises(DomainError, match="got nan"):
        make(math.nan)  # type: ignore[call-arg]


def test_a_part_chains_with_parts_only() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        gaussian(std=0.1) | 3
