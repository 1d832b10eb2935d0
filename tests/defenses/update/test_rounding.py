"""Signs and stochastic quantisation: values, probabilities, slopes, and what they refuse."""

from __future__ import annotations

import math
from itertools import pairwise, product

import pytest
import torch
from scipy import integrate, stats

from leakgauge.adversary import cosine, forgiving, through
from leakgauge.defenses import gaussian, laplace, quantise, random_prune, sign
from leakgauge.defenses.update.quantise import _forgiving
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.expr import parse
from leakgauge.testing import example_update, likelihood_laws, slope_matches_autograd
from leakgauge.updates import Batch, Stack, soft_sign, squared

U = torch.tensor([[0.9, -0.35, 0.0, 0.6, -0.05]], dtype=torch.float64)


def test_signs_are_sent_and_zeros_stay() -> None:
    out = sign().release({"w": U[0]}, None, generator=torch.Generator())
    assert out.observed["w"].tolist() == [1.0, -1.0, 0.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("noise", "law"), [(gaussian(std=0.3), stats.norm(0, 0.3)), (laplace(scale=0.3), stats.laplace(0, 0.3))]
)
def test_after_noise_a_sign_is_the_probability_of_a_half_line(noise: gaussian, law: stats.rv_continuous) -> None:
    o = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    u = U.clone().requires_grad_()
    found = (noise | sign()).log_density(Stack({"w": o}), Batch.of({"w": u}), known={})
    wanted = sum(law.logcdf(s * v) for s, v in zip(o[0].tolist(), U[0].tolist(), strict=True))
    assert float(found.detach()) == pytest.approx(wanted, rel=1e-10)
    (slope,) = torch.autograd.grad(found.sum(), u)
    assert bool(slope.isfinite().all())
    # a hopeless candidate still knows where to go, in float32
    far = torch.tensor([[-40.0]], requires_grad=True)
    value = (noise | sign()).log_density(Stack({"w": torch.ones(1, 1)}), Batch.of({"w": far}), known={})
    (slope,) = torch.autograd.grad(value.sum(), far)
    assert value.isfinite()
    assert float(slope) > 1


def test_quantisation_is_unbiased_and_its_probabilities_are_the_frequencies() -> None:
    part, draws = quantise(levels=2), 20_000
    many = {"w": U[0].repeat(draws, 1)}
    out = part.release(many, None, generator=torch.Generator().manual_seed(0))
    step = float(out.drawn["step"]["w"])
    assert step == pytest.approx(0.45)
    values = out.observed["w"]
    torch.testing.assert_close(values.mean(0), U[0], atol=5 * step / math.sqrt(draws), rtol=0)
    seen = part.visible(Stack({"w": values[:1]}))
    assert float(seen["step"]["w"]) == pytest.approx(step)
    total = 0.0
    for column, u in zip(values.unbind(1), U[0].tolist(), strict=True):
        for level in range(-3, 4):
            o = torch.full((1, 1), level * step, dtype=torch.float64)
            known = {"step": {"w": torch.full((1, 1), step, dtype=torch.float64)}}
            chance = float(part.log_density(Stack({"w": o}), Batch.of({"w": torch.full_like(o, u)}), known=known).exp())
            counted = float(((column - level * step).abs() < 1e-9).double().mean())
            assert counted == pytest.approx(chance, abs=5 * math.sqrt(0.25 / draws))
            total += chance
    assert total == pytest.approx(5)


def test_an_impossible_entry_is_impossible_and_forgiven() -> None:
    known = {"step": {"w": torch.tensor([[0.5]], dtype=torch.float64)}}
    o, far = torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([[-3.0]], dtype=torch.float64)
    part = quantise()
    assert float(part.log_density(Stack({"w": o}), Batch.of({"w": far}), known=known)) == -math.inf
    assert float(part.log_forgiving(Stack({"w": o}), Batch.of({"w": far}), known, 0.05)) == pytest.approx(
        math.log(0.05) - 7
    )
    with pytest.raises(NoDensityError, match="the step of quantise"):
        part.log_density(Stack({"w": o}), Batch.of({"w": far}), known={})


@pytest.mark.parametrize(
    ("noise", "law"), [(gaussian(std=0.3), stats.norm(0, 0.3)), (laplace(scale=0.3), stats.laplace(0, 0.3))]
)
def test_after_noise_the_two_weights_are_integrated_against_it(noise: gaussian, law: stats.rv_continuous) -> None:
    """Against quadrature, from a hundredth of a deviation to ten a step; and far out there is still a slope."""
    part, u = noise | quantise(levels=2), float(U[0, 0])
    for width, level in product((0.003, 0.2, 3.0), (-2, 0, 1)):
        step = torch.tensor([[width]], dtype=torch.float64)
        found = part.log_density(
            Stack({"w": level * step}), Batch.of({"w": U[:, :1]}), known={"quantise.step": {"w": step}}
        )

        def weight(v: float, o: float = level * width, width: float = width) -> float:
            beyond = o < -width and v < o
            return (1.0 if beyond else max(0.0, 1 - abs(v - o) / width)) * law.pdf(v - u)

        ends = sorted({-9.0, *((level + k) * width for k in (-1, 0, 1)), u, 9.0})
        wanted = sum(integrate.quad(weight, low, high, epsabs=1e-14)[0] for low, high in pairwise(ends))
        assert float(found.exp()) == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    far = torch.tensor([[-400.0]], requires_grad=True)
    known = {"quantise.step": {"w": torch.full((1, 1), 0.5)}}
    value = part.log_density(Stack({"w": torch.zeros(1, 1)}), Batch.of({"w": far}), known=known)
    (slope,) = torch.autograd.grad(value.sum(), far)
    assert value.isfinite()
    assert float(slope) > 1


def test_a_hidden_mask_before_a_rounding_is_a_mixture_of_its_two_chances() -> None:
    """``(1 − p) P(o | u) + p P(o | 0)``, zero where both are, never NaN; and the slope is finite everywhere."""
    part = random_prune(p=0.4) | quantise(levels=2)
    levels = torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    u = torch.full_like(levels, 1.25).requires_grad_()
    known = {"quantise.step": {"w": torch.ones_like(levels)}}
    value = part.log_density(Stack({"w": levels}), Batch.of({"w": u}), known=known)
    wanted = torch.tensor([0.0, 0.0, 0.4, 0.6 * 0.75, 0.6 * 0.25], dtype=torch.float64)
    torch.testing.assert_close(value.exp(), wanted, rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(value[2:].sum(), u)
    torch.testing.assert_close(slope[:, 0], torch.tensor([0, 0, 0, -1 / 0.75, 1 / 0.25], dtype=torch.float64))


def test_a_pruned_level_is_an_interval_of_levels() -> None:
    part, draws = parse("quantise(levels=4) | prune(p=0.6)"), 20_000
    update = torch.tensor([2.0, -1.8, 0.7, 0.6, -0.3, 0.05], dtype=torch.float64)
    many = {"w": update.repeat(draws, 1)}
    seen = part.release(many, None, generator=torch.Generator().manual_seed(0)).observed["w"]
    known = part.visible(Stack({"w": seen.unsqueeze(0)}))
    assert (float(known["quantise.step"]["w"]), float(known["prune.threshold"]["w"])) == (0.5, 1.0)
    for column, u in zip(seen.unbind(1), update, strict=True):
        levels = torch.arange(-4, 5, dtype=torch.float64).view(-1, 1) / 2
        rows = {
            address: {"w": known[address]["w"].view(1, 1).expand_as(levels)}
            for address in ("quantise.step", "prune.threshold")
        }
        found = part.log_density(Stack({"w": levels}), Batch.of({"w": u.expand_as(levels)}), known=rows)
        counted = (column == levels).double().mean(1)
        torch.testing.assert_close(found.exp(), counted, atol=5 * math.sqrt(0.25 / draws), rtol=0)


def test_zeros_are_sent_as_they_are() -> None:
    update = {"w": torch.zeros(3)}
    out = quantise().release(update, None, generator=torch.Generator())
    assert torch.equal(out.observed["w"], update["w"])
    seen = quantise().visible(Stack({"w": torch.zeros(1, 3)}))
    value = quantise().log_density(Stack({"w": torch.zeros(1, 3)}), Batch.of({"w": torch.zeros(1, 3)}), known=seen)
    assert float(value) == 0.0


def test_slopes_are_autograds() -> None:
    generator = torch.Generator().manual_seed(1)
    u, o = (torch.randn(3, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    step, below = (torch.full((1, 1), width, dtype=torch.float64) for width in (0.7, 0.3))
    slope_matches_autograd(_forgiving(0.05), u, o, step, torch.zeros_like(step))
    slope_matches_autograd(_forgiving(0.05), u, o, step, below)
    slope_matches_autograd(soft_sign.then(squared), u)


@pytest.mark.parametrize("text", ["sign()", "clip(norm=0.1) | sign()"])
def test_soft_signs_are_the_same_on_every_path(text: str) -> None:
    likelihood_laws(through(cosine()), protection=text)


@pytest.mark.parametrize(
    "text", ["quantise(levels=2)", "clip(norm=0.1) | quantise()", "clip(norm=0.1) | quantise(levels=3) | prune(p=0.6)"]
)
def test_the_forgiving_density_is_the_same_on_every_path(text: str) -> None:
    likelihood_laws(forgiving(), protection=text)


def test_what_is_refused() -> None:
    for levels in (0, 1.5):
        with pytest.raises(DomainError, match="quantise: levels must be an integer ≥ 1"):
            quantise(levels=levels)  # type: ignore[arg-type]
    with pytest.raises(DomainError, match="forgiving: share must lie in"):
        forgiving(share=1.0)
    with pytest.raises(NoDensityError, match="is not a rounding after maps"):
        likelihood_laws(forgiving(), protection="prune(p=0.5)")
    update = {name: value.unsqueeze(0) for name, value in example_update().items()}
    with pytest.raises(NoDensityError, match="is random twice"):
        parse("gaussian(std=0.1) | laplace(scale=0.1)").log_density(Stack(update), Batch.of(update), known={})
