"""Tests of the tests: every law catches a part that breaks it, and says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pytest
import torch
from torch import Generator, Tensor, nn

from leakgauge.adversary import L2, Likelihood, adam, l2
from leakgauge.adversary.ghost import Ghost
from leakgauge.defenses import (
    Clip,
    Conditions,
    EntryDensity,
    Gaussian,
    GaussianNoise,
    MagnitudePrune,
    Protection,
    RandomPrune,
    Sensitivity,
    UpdatePart,
    VonMisesFisher,
    gaussian,
)
from leakgauge.expr import Part
from leakgauge.priors import PriorPart, gaussian_prior, tv
from leakgauge.testing import (
    attack_reaches_map,
    example_update,
    gradient_matches_finite_differences,
    likelihood_laws,
    neutral_is_identity,
    prior_laws,
    probabilities_sum_to_one,
    promises_are_kept,
    release_is_pure,
    repr_round_trips,
    sampler_agrees_with_density,
    slope_matches_autograd,
    small_task,
    task_is_untouched,
)
from leakgauge.types import Candidate, Context, Known, Release, Tree, Updates
from leakgauge.updates import Batch, Sharing, Sloped, Stack, trees


@dataclass(frozen=True, repr=False)
class Louder(Gaussian):
    """Its sampler is louder than its density says."""

    by: float = 1.0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Gaussian(self.by * self.std).release(update, context, generator=generator)


@dataclass(frozen=True, repr=False)
class Shifted(Gaussian):
    """Its sampler is off by a tenth of a deviation."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        out = super().release(update, context, generator=generator)
        return Release({name: value + 0.1 * self.std for name, value in out.observed.items()})


@dataclass(frozen=True, repr=False)
class Correlated(Gaussian):
    """All entries of a tensor get the same noise: each alone is right, together they are not."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        noise = self.std * torch.randn((), generator=generator, dtype=torch.float64)
        return Release({name: value + noise.to(value) for name, value in update.items()})


@dataclass(frozen=True, repr=False)
class Unnormalised(Gaussian):
    """Forgets the constant."""

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        return -update.distance(observed).sum(1) / (2 * self.std**2)


@dataclass(frozen=True, repr=False)
class Forgetful(RandomPrune):
    """After noise it gives a zero no probability, as the first version of a core that we know did for a second zero."""

    def after(self, density: EntryDensity, known: Conditions) -> EntryDensity:
        survives, dropped = math.log1p(-self.p), math.log(self.p)

        def log(u: Tensor, o: Tensor) -> Tensor:
            return torch.where(o == 0, torch.full_like(u, dropped), survives + density.log(u, o))

        return EntryDensity(log, density.log_mass)


@dataclass(frozen=True, repr=False)
class WrongMass(Gaussian):
    """Its interval probability is that of another noise."""

    def entry_density(self) -> EntryDensity:
        return EntryDensity(super().entry_density().log, Gaussian(1.2 * self.std).entry_density().log_mass)


@dataclass(frozen=True, repr=False)
class WrongSlope(Gaussian):
    """Its density has the right values and half the slope."""

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        value = super().log_density(observed, update, known=known)
        return value / 2 + value.detach() / 2


@dataclass(frozen=True, repr=False)
class WrongBoth(Gaussian):
    """Its entry density knows a wrong slope, which only the ghost path would meet."""

    def entry_density(self) -> EntryDensity:
        inner = super().entry_density()
        log = inner.log
        assert isinstance(log, Sloped)

        def both(u: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, float]:
            total, slope, factor = log.both(u, *others)
            return total, slope, 1.01 * factor

        return EntryDensity(Sloped(log.value, both), inner.log_mass)


@dataclass(frozen=True, repr=False)
class Looser(VonMisesFisher):
    """Its sampler is less concentrated than its density says."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return VonMisesFisher(0.6 * self.kappa).release(update, context, generator=generator)


@dataclass(frozen=True, repr=False)
class Turned(VonMisesFisher):
    """Draws around another direction."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        moved = {name: value + 0.2 for name, value in update.items()}
        return super().release(moved, context, generator=generator)


@dataclass(frozen=True, repr=False)
class OffTheSphere(VonMisesFisher):
    """Lets a length out."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        out = super().release(update, context, generator=generator)
        return Release({name: 1.01 * value for name, value in out.observed.items()})


@dataclass(frozen=True, repr=False)
class WithoutArea(VonMisesFisher):
    """Its density is relative to the uniform one."""

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        return super().log_density(observed, update, known=known) + math.log(2 * math.pi)


@dataclass(frozen=True, repr=False)
class Unscaled(VonMisesFisher):
    """Forgets that the update was scaled to the sphere: right on it, wrong slope off it."""

    def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
        value = super().log_density(observed, update, known=known)
        bare = self.kappa * update.dot(observed).sum(1)
        return value.detach() + bare - bare.detach()


GOOD = "a part that keeps the law"
FAULTS: dict[str, tuple[Callable[[UpdatePart], object], UpdatePart, str]] = {
    "sampler, wrong std": (sampler_agrees_with_density, Louder(0.3, by=1.1), "do not follow the density"),
    "sampler, quieter": (sampler_agrees_with_density, Louder(0.3, by=0.9), "do not follow the density"),
    "sampler, shifted": (sampler_agrees_with_density, Shifted(0.3), "do not follow the density"),
    "sampler, correlated": (sampler_agrees_with_density, Correlated(0.3), "do not follow the density"),
    "sampler, no constant": (sampler_agrees_with_density, Unnormalised(0.3), "do not follow the density"),
    "sampler, two zeros": (
        sampler_agrees_with_density,
        gaussian(0.3) | RandomPrune(0.4) | Forgetful(0.3),
        "do not follow the density",
    ),
    "sum, no constant": (probabilities_sum_to_one, Unnormalised(0.3), "the density sums to 0.75"),
    "sum, two zeros": (
        probabilities_sum_to_one,
        gaussian(0.3) | RandomPrune(0.4) | Forgetful(0.3),
        "the density sums to 0.72",
    ),
    "sum, wrong mass": (probabilities_sum_to_one, WrongMass(0.3), "log_mass gives"),
    "sum, wrong mass in a chain": (
        probabilities_sum_to_one,
        WrongMass(0.3) | MagnitudePrune(0.5),
        "the density sums to",
    ),
    "sphere, looser": (sampler_agrees_with_density, Looser(3.0), "do not follow the density"),
    "sphere, turned": (sampler_agrees_with_density, Turned(3.0), "do not follow the density"),
    "sphere, a length": (sampler_agrees_with_density, OffTheSphere(3.0), "off the unit sphere"),
    "sphere, no area": (probabilities_sum_to_one, WithoutArea(3.0), "the density sums to 6.28"),
    "sphere, gradient": (gradient_matches_finite_differences, Unscaled(3.0), "the gradient of log_density in"),
    "gradient": (gradient_matches_finite_differences, WrongSlope(0.3), "the gradient of log_density in"),
    "known slope": (gradient_matches_finite_differences, WrongBoth(0.3), "the slope of both()"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_density_is_caught(fault: str) -> None:
    law, part, said = FAULTS[fault]
    with pytest.raises(AssertionError) as raised:
        law(part)
    assert said in str(raised.value)
    assert type(part).__name__ in str(raised.value) or "both()" in said or "|" in repr(part)


@pytest.mark.parametrize("law", [sampler_agrees_with_density, probabilities_sum_to_one])
def test_the_same_part_without_its_fault_passes(law: Callable[..., float]) -> None:
    law(Louder(0.3, by=1.0))


def test_a_stated_failure_rate_is_kept() -> None:
    # many right samples: the least p-value is about one over their number, never far below
    least = [sampler_agrees_with_density(gaussian(0.3), draws=200, entries=2_000, seed=seed) for seed in range(8)]
    assert 1e-3 < min(least) < 0.5
    with pytest.raises(AssertionError, match="p = "):
        sampler_agrees_with_density(gaussian(0.3), draws=200, entries=2_000, failure_rate=0.999)


# --- parts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Base(UpdatePart):
    """Lets everything out as it is."""

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(dict(update))


@dataclass(frozen=True, repr=False)
class NotNeutral(Base):
    scale: float = 0.5

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value * (1 - 1e-7 * self.scale) for name, value in update.items()})

    @classmethod
    def neutral(cls) -> Self:
        return cls(scale=1.0)


class Global(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value + torch.randn(value.shape).to(value) for name, value in update.items()})


class InPlace(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value.mul_(0.5) for name, value in update.items()})


class Flat(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value.flatten() for name, value in update.items()})


class Doubled(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value.double() for name, value in update.items()})


class Lossy(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value for name, value in update.items() if "bias" not in name})


class Remembering(Base):
    count: ClassVar[int] = 0

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        type(self).count += 1
        return Release({name: value + self.count for name, value in update.items()})


class Secret(Base):
    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(dict(update), {"scale": dict(update)})


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Global(), "draws from the global generator"),
        (InPlace(), "writes into the update ('first.weight')"),
        (Flat(), "changes the shape of 'first.weight' to (12,)"),
        (Doubled(), "changes the dtype of 'first.weight' to torch.float64"),
        (Lossy(), "lets ['first.weight', 'last.weight'] out of an update with"),
        (Remembering(), "lets out two things for one seed"),
        (Secret(), "draws ['scale'], but declares []"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_impure_release_is_caught(part: UpdatePart, said: str) -> None:
    with pytest.raises(AssertionError) as raised:
        release_is_pure(part)
    assert said in str(raised.value)


class Peeking(Base):
    post_processing: ClassVar[bool] = True

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        assert context is not None
        return Release(dict(context.combined(context.per_example())))


class Longer(Base):
    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before.norm_only()

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: value.sign() for name, value in update.items()})


class Jumping(Base):
    """Shortens updates, but moves two near ones apart."""

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        return before

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        keep = float(trees.norm(update)) > float(trees.norm(example_update())) * 0.95
        return Release({name: value * keep for name, value in update.items()})


class OneRadius(Clip):
    """The slip of taking one radius for the way between two updates that both have one."""

    def sensitivity(self, before: Sensitivity) -> Sensitivity:
        after = super().sensitivity(before)
        return replace(after, l2=min(after.l2, after.radius))


class TooQuiet(Gaussian):
    @property
    def noise_law(self) -> GaussianNoise:
        return GaussianNoise(1.03 * self.std)


class Deaf(Gaussian):
    def with_noise(self, size: float) -> Gaussian:
        return self


def test_broken_promises_are_caught() -> None:
    promises_are_kept(Base())
    with pytest.raises(AssertionError, match="promises to be post-processing, but looks at the client"):
        promises_are_kept(Peeking())
    with pytest.raises(AssertionError, match="promises a norm of at most"):
        promises_are_kept(Longer())
    with pytest.raises(AssertionError, match="promises that one record moves"):
        promises_are_kept(Jumping())
    with pytest.raises(AssertionError, match="promises that one record moves"):
        promises_are_kept(OneRadius(1.0))
    with pytest.raises(AssertionError, match=r"promises GaussianNoise\(std=.*\), but draws something else"):
        promises_are_kept(TooQuiet(0.5))
    with pytest.raises(AssertionError, match=r"with_noise\(1\) has noise of size 0.5"):
        promises_are_kept(Deaf(0.5))


def test_a_neutral_that_is_not_is_caught_and_one_that_does_not_exist_is_said() -> None:
    with pytest.raises(AssertionError, match=r"NotNeutral\(scale=1.0\) is not neutral: it changes 'first.weight'"):
        neutral_is_identity(NotNeutral)
    assert not neutral_is_identity(Base)
    assert neutral_is_identity(Gaussian)


@dataclass(frozen=True)
class PlainRepr(Part):
    """Prints what no parser reads."""

    level: float = 1.0

    def __repr__(self) -> str:
        return f"PlainRepr(level={self.level})"


@dataclass(frozen=True, repr=False)
class Hidden(Part):
    """Leaves an argument out of its text."""

    level: float = 1.0
    secret: float = field(default=0.0, compare=True)

    def __repr__(self) -> str:
        return f"{__name__}:Hidden(level={self.level})"


def test_a_text_that_does_not_read_back_is_caught() -> None:
    repr_round_trips(Hidden())
    with pytest.raises(AssertionError, match="which is not equal"):
        repr_round_trips(Hidden(secret=2.0))
    with pytest.raises(Exception, match="unknown name 'PlainRepr'"):
        repr_round_trips(PlainRepr())


# --- slopes, priors, likelihoods, solvers, tasks ---------------------------------------------------------------------


def test_wrong_slopes_gains_and_writes_are_caught() -> None:
    u, o = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    def right(u: Tensor, o: Tensor) -> tuple[Tensor, Tensor, float]:
        return (u * o).sum(), o.clone(), 1.0

    slope_matches_autograd(Sloped(torch.mul, right, torch.mul), u, o)
    wrong: dict[str, Sloped] = {
        "the sum of both()": Sloped(torch.mul, lambda u, o: ((u * o).mean(), o.clone(), 1.0)),
        "the slope of both()": Sloped(torch.mul, lambda u, o: ((u * o).sum(), o.clone(), 2.0)),
        "the gain": Sloped(torch.mul, right, lambda u, o: u * o + 1),
        "wrote to a tensor": Sloped(
            torch.mul, lambda u, o: ((u * o).sum(), o.clone(), 1.0 + 0 * float(o.add_(1).sum()))
        ),
    }
    for said, fn in wrong.items():
        with pytest.raises(AssertionError) as raised:
            slope_matches_autograd(fn, u, o.clone())
        assert said in str(raised.value)


@dataclass(frozen=True, repr=False)
class Neighbourly(PriorPart):
    def __call__(self, candidate: Candidate) -> Tensor:
        return candidate.inputs.flatten(1).sum(1) + candidate.inputs.mean()


@dataclass(frozen=True, repr=False)
class OneValue(PriorPart):
    def __call__(self, candidate: Candidate) -> Tensor:
        return candidate.inputs.sum()


@dataclass(frozen=True, repr=False)
class Detached(PriorPart):
    def __call__(self, candidate: Candidate) -> Tensor:
        x = candidate.inputs.flatten(1)
        return x.sum(1) - x.square().sum(1).detach()


@dataclass(frozen=True, repr=False)
class Infinite(PriorPart):
    def __call__(self, candidate: Candidate) -> Tensor:
        return candidate.inputs.flatten(1).sum(1) * math.inf


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (Neighbourly(), "depends on its neighbours"),
        (OneValue(), "returns () for 3 problems"),
        (Detached(), "the gradient of"),
        (Infinite(), "is not finite"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_prior_is_caught(prior: PriorPart, said: str) -> None:
    with pytest.raises(AssertionError) as raised:
        prior_laws(prior)
    assert said in str(raised.value)


@pytest.mark.parametrize("prior", [tv(), gaussian_prior(mean=0.5, std=0.2), 0.1 * tv() + gaussian_prior()], ids=repr)
def test_right_priors_pass(prior: PriorPart) -> None:
    prior_laws(prior)


@dataclass(frozen=True, repr=False)
class Coupled(L2):
    """Looks at the other candidates."""

    def match(self, update: Updates, observed: Tree, weight: Tensor) -> Tensor:
        value = super().match(update, observed, weight)
        return value + 0.01 * value.mean()


def test_a_likelihood_that_sees_its_neighbours_is_caught() -> None:
    likelihood_laws(l2())
    with pytest.raises(AssertionError, match="without its neighbours differs by"):
        likelihood_laws(Coupled())


def test_a_biased_path_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ghost.updates

    def biased(self: Ghost, candidate: Candidate, sharing: Sharing) -> Batch:
        return honest(self, candidate, sharing).scaled(torch.full((sharing.total,), 1 + 1e-6, dtype=torch.float64))

    monkeypatch.setattr(Ghost, "updates", biased)
    with pytest.raises(AssertionError, match=r"l2\(\) by the ghost path differs by"):
        likelihood_laws(l2())


def test_a_likelihood_with_a_wrong_known_slope_is_caught() -> None:
    class Wrong(Likelihood):
        """Right by autograd on materialised updates, wrong where the ghost path asks for the slope."""

        def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
            density = WrongBoth(0.3).entry_density()
            return density(observed, update)

        def __repr__(self) -> str:
            return "l2()"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = L2.__hash__

    wrong: Any = Wrong()
    with pytest.raises(AssertionError):
        likelihood_laws(wrong)


def test_a_solver_that_stops_early_is_caught() -> None:
    with pytest.raises(AssertionError, match="from the closed-form MAP"):
        attack_reaches_map(adam(steps=10))


def meddle(model: nn.Module, how: str) -> None:
    layer = model.get_submodule("last")
    assert isinstance(layer, nn.Linear)
    match how:
        case "parameter":
            with torch.no_grad():
                layer.weight[0, 0] += 1e-7
        case "same value again":
            with torch.no_grad():
                layer.weight.copy_(layer.weight.clone())
        case "gradient":
            layer.bias.grad = torch.zeros_like(layer.bias)
        case "train flag":
            layer.train(not layer.training)
        case "frozen":
            layer.bias.requires_grad_(False)
        case "hook":
            layer.register_forward_hook(lambda *_: None)
        case "replaced":
            layer.bias = nn.Parameter(layer.bias.detach().clone())
        case "buffer":
            layer.register_buffer("seen", torch.zeros(1))


@pytest.mark.parametrize(
    "how",
    ["parameter", "same value again", "gradient", "train flag", "frozen", "hook", "replaced", "buffer"],
)
def test_meddling_with_a_model_is_caught(how: str) -> None:
    task = small_task()
    task_is_untouched(task, lambda: None)
    with pytest.raises(AssertionError, match=r"was changed|the model now has"):
        task_is_untouched(task, lambda: meddle(task.model, how))


def test_a_stack_is_what_the_kit_gives_to_densities() -> None:
    class Peek(Gaussian):
        def log_density(self, observed: Tree, update: Updates, *, known: Known) -> Tensor:
            assert isinstance(observed, Stack)
            assert isinstance(update, Batch)
            return super().log_density(observed, update, known=known)

    sampler_agrees_with_density(Peek(0.3), draws=300, entries=1_000)
