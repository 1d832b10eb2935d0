"""Parts from another package: a defense with a nuisance, its bound and its attack, from a spec and from Python."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import leakgauge as lg
from leakgauge.adversary.treatments import RULES, Case
from leakgauge.attacks import Hint, hints
from leakgauge.audit.attacking import attacked
from leakgauge.cli import app
from leakgauge.defenses import Nuisance, Release, Uniform, UpdatePart, gaussian, protection
from leakgauge.errors import AssumptionWarning, DomainError, ExpressionError, ObservationError
from leakgauge.testing import small_records, small_task
from leakgauge.types import Treatment, Tree

DEFENSES = """
from dataclasses import dataclass

import torch

from leakgauge.defenses import EntryDensity, GaussianNoise, Nuisance, Release, UpdatePart


@dataclass(frozen=True)
class FlipSigns(UpdatePart):
    p: float
    post_processing = True
    nuisances = (Nuisance("flips", per="entry"),)

    def release(self, update, context, *, generator):
        signs = {name: 1 - 2 * (torch.rand(u.shape, generator=generator) < self.p).to(u) for name, u in update.items()}
        return Release({name: u * signs[name] for name, u in update.items()}, {"flips": signs})

    def apply(self, update, known):
        return update.mapped(torch.mul, known["flips"]) if "flips" in known else None

    def before(self, density):
        same, flipped = torch.tensor([1 - self.p, self.p]).log()

        def either(log):
            return lambda u, *rest: torch.logaddexp(same + log(u, *rest), flipped + log(-u, *rest))

        return EntryDensity(either(density.log), either(density.log_mass))

    def sensitivity(self, before):
        return before


@dataclass(frozen=True)
class Noise(UpdatePart):
    std: float
    post_processing = True

    def release(self, update, context, *, generator):
        return Release({name: u + self.std * torch.randn(u.shape, generator=generator) for name, u in update.items()})

    def entry_density(self):
        def log_mass(u, low, high):
            normal = torch.distributions.Normal(u, self.std)
            return torch.log(normal.cdf(high) - normal.cdf(low))

        return EntryDensity(lambda u, o: torch.distributions.Normal(u, self.std).log_prob(o), log_mass)

    @property
    def noise_law(self):
        return GaussianNoise(self.std)


@dataclass(frozen=True)
class Shorten(UpdatePart):
    norm: float
    post_processing = True

    def release(self, update, context, *, generator):
        length = torch.cat([u.flatten() for u in update.values()]).norm()
        return Release({name: u * (self.norm / length).clamp(max=1.0) for name, u in update.items()})

    def apply(self, update, known):
        return update.scaled((self.norm / update.square().sum(1).sqrt()).clamp(max=1.0))

    def sensitivity(self, before):
        return before.clipped(self.norm)
"""
ATTACKS = '''
from dataclasses import dataclass

import torch

from leakgauge.adversary import Reconstruction, labels_of


@dataclass(frozen=True)
class Magnitudes:
    """Pixels are not negative, so the magnitudes of the first layer's gradient are enough."""

    models_defense = "one"

    def __call__(self, task, observations, *, seed=0, progress=None):
        def image(observed):
            weight, bias = list(observed.values())[:2]
            row = bias.abs().argmax()
            return (weight[row] / bias[row]).abs().view(1, *task.domain.shape)

        inputs = torch.stack([image(one.rounds[0].observed) for one in observations])
        labels = torch.stack([labels_of(task, one) for one in observations])
        return Reconstruction(inputs, labels, torch.zeros(len(inputs)))
'''
PRIVATE = "stranger.parts:Shorten(norm=1.0) | stranger.parts:FlipSigns(p=0.1) | stranger.parts:Noise(std=3.0)"
SPEC = f"""
[task]
model = "mlp(width=16, depth=1)"
records = 8

[defenses]
flips = "stranger.parts:FlipSigns(p=0.5)"
private = "{PRIVATE}"

[adversaries]
generic = "inverting_gradients(steps=20)"
adaptive = "adaptive(steps=20)"
magnitudes = "stranger.attacks:Magnitudes()"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the stranger's package, where leakgauge is run."""
    (tmp_path / "stranger").mkdir()
    for name, text in (("__init__", ""), ("parts", DEFENSES), ("attacks", ATTACKS)):
        (tmp_path / "stranger" / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "stranger"]:
        del sys.modules[name]


def agrees(result: lg.Result) -> None:
    """Flipped signs stop everybody but their own attack; the chain is silent under a ceiling."""
    assert result.verdicts == {"flips": "exact", "private": "no evidence"}
    assert {record.adversary for record in result.records["flips"]} == {"magnitudes"}
    treatments = {one.address: one for one in result.treatments["private"]["adaptive"]}
    assert treatments["FlipSigns.flips"].how == "summed out"
    assert result.bounds["flips"].ceiling is None
    bound = result.bounds["private"]
    assert bound.ceiling is not None
    assert 0.0 < bound.ceiling < 1.0
    assert bound.epsilon is not None
    assert bound.epsilon.value == pytest.approx(lg.bounds.epsilon_of(3.0, delta=1e-5).epsilon)


def test_through_a_spec(package: Path) -> None:
    (package / "privacy.toml").write_text(SPEC, encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", "privacy.toml"])
    assert checked.exit_code == 0, checked.output
    assert "stranger.parts" not in sys.modules  # nothing of theirs is imported by a check
    audited = CliRunner().invoke(app, ["audit", "privacy.toml", "--quiet", "--own-code"])
    assert audited.exit_code == 0, audited.output
    agrees(lg.Result.load("privacy-run"))
    assert "FlipSigns.flips" in (package / "privacy-run" / "report.html").read_text(encoding="utf-8")


def test_through_python(package: Path) -> None:
    from stranger.attacks import Magnitudes  # type: ignore[import-not-found]
    from stranger.parts import FlipSigns, Noise, Shorten  # type: ignore[import-not-found]

    data = lg.data.load("fashion_mnist_sample")
    torch.manual_seed(0)
    study = lg.Study(
        model=nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10)),
        records=data.sample(8, split="test"),
        reference=data.sample(200, split="train"),
        defenses={"flips": FlipSigns(p=0.5), "private": Shorten(1.0) | FlipSigns(p=0.1) | Noise(3.0)},
        adversaries={
            "generic": lg.attacks.inverting_gradients(steps=20),
            "adaptive": lg.attacks.adaptive(steps=20),
            "magnitudes": Magnitudes(),
        },
    )
    result = lg.audit(study)
    agrees(result)
    assert "no evidence" in result._repr_html_()
    assert lg.Result.load(result.save(package / "kept.json")) == result


def test_a_grant_reaches_the_part(package: Path) -> None:
    task = small_task().protect("stranger.parts:FlipSigns(p=0.5)")
    records = small_records(1)
    (hidden,) = lg.observe(task, records)
    (told,) = lg.observe(task, records, threat=lg.Threat(grants=frozenset({"flips"})))
    assert "FlipSigns.flips" not in hidden.rounds[0].granted
    signs = told.rounds[0].granted["FlipSigns.flips"]
    plain = task.protect("identity()")
    (bare,) = lg.observe(plain, records)
    for name, sent in told.rounds[0].observed.items():
        assert torch.equal(sent * signs[name], bare.rounds[0].observed[name])  # signs are their own inverse


@dataclass(frozen=True)
class Undeclared(UpdatePart):
    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        return Release(dict(update), {"mask": update})


@dataclass(frozen=True)
class Undrawn(UpdatePart):
    nuisances = (Nuisance("mask", per="entry"),)

    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        return Release(dict(update))


@dataclass(frozen=True)
class Bare(UpdatePart):
    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        return dict(update)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (Undeclared(), r"Undeclared\(\): drew 'mask', which it does not declare; add Nuisance\(\"mask\""),
        (Undrawn(), r"Undrawn\(\): declares the nuisance 'mask' but did not draw it; return Release"),
        (Bare(), r"Bare\(\): released a dict; return Release\(observed, drawn\)"),
    ],
)
def test_a_part_that_breaks_its_contract_is_told_how(part: UpdatePart, sentence: str) -> None:
    with pytest.raises(DomainError, match=sentence):
        lg.observe(small_task().protect(part), small_records(1))


class Mutable(UpdatePart):
    pass


@dataclass(frozen=True)
class Text(UpdatePart):
    nuisances = ("mask",)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (Mutable(), r"the class Mutable is no frozen dataclass.*; write @dataclass\(frozen=True\)"),
        (Text(), r"the nuisances of Text hold 'mask'; declare each as Nuisance"),
        (Bare, r"is not a defense; call it: Bare"),
    ],
)
def test_what_is_no_value_is_no_part(part: object, sentence: str) -> None:
    with pytest.raises(ExpressionError, match=sentence):
        protection(part)


def test_a_map_that_nobody_described_is_simulated_and_named() -> None:
    records = small_records(1)
    sentences: list[list[str]] = []
    inputs = []
    for part in (Plain() | gaussian(std=0.1), gaussian(std=0.1)):
        task = small_task().protect(part)
        with warnings.catch_warnings(record=True) as assumptions:
            warnings.simplefilter("always", AssumptionWarning)
            inputs.append(lg.attacks.adaptive(steps=5)(task, lg.observe(task, records)).inputs)
        sentences.append([str(one.message) for one in assumptions])
    assert any(re.search(r"Plain\(\) is simulated: it only renames", sentence) for sentence in sentences[0])
    assert not any("simulated" in sentence for sentence in sentences[1])
    torch.testing.assert_close(inputs[0], inputs[1], rtol=1e-3, atol=1e-3)  # it did nothing, and that was found out


@dataclass(frozen=True)
class Plain(UpdatePart):
    def release(self, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        return Release(dict(update))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (torch.zeros(3), r"returned a Tensor; return a leakgauge.Reconstruction"),
        (lg.Reconstruction(torch.zeros(1, 4), torch.zeros(1, 1), torch.zeros(1)), r"shape \(1, 4\); give \(1, 1, "),
    ],
)
def test_an_attack_that_returns_something_else_is_told_what(answer: object, sentence: str) -> None:
    task = small_task()
    observations = lg.observe(task, small_records(1))
    with pytest.raises(ObservationError, match=sentence):
        attacked(lambda *_, **__: answer, task, observations, lg.Threat(), seed=0, progress=None)  # type: ignore[arg-type, return-value]


def test_a_rule_of_another_package_is_asked() -> None:
    task = small_task().protect(Drawn())

    def theirs(case: Case, address: str, nuisance: Nuisance) -> Treatment | None:
        return Treatment(address, "enumerated", "all are tried") if address == "Drawn.mask" else None

    RULES.append(theirs)
    try:
        assert str(lg.attacks.dlg().treatments(task)[-1]) == "Drawn.mask: all are tried"
    finally:
        RULES.remove(theirs)
    assert lg.attacks.dlg().treatments(task)[-1].how == "assumed"


@dataclass(frozen=True)
class Drawn(UpdatePart):
    nuisances = (Nuisance("mask", per="entry"),)


def test_a_hint_that_a_part_only_scales_cancels_what_it_hides() -> None:
    assert lg.attacks.adaptive().against(small_task().protect(Gain())).treatments[-1].how == "cancelled"


@dataclass(frozen=True)
class Gain(UpdatePart):
    nuisances = (Nuisance("gain", per="update", law=Uniform(0.5, 2.0)),)


@hints(Gain)
def _gain(part: Gain) -> Hint:
    return Hint(scales=True)


def drawing(name: str, draw: object, *nuisances: Nuisance) -> UpdatePart:
    """A part of somebody's own that leaves the update as it is and says that it drew ``draw``."""

    def release(self: UpdatePart, update: Tree, context: object, *, generator: torch.Generator) -> Release:
        return Release(dict(update), {nuisances[0].name: draw(update) if callable(draw) else draw})  # type: ignore[dict-item]

    return dataclass(frozen=True, repr=False)(type(name, (UpdatePart,), {"nuisances": nuisances, "release": release}))()


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (torch.ones(()), "drew 'factor', which is one tensor; give named tensors like the update"),
        ({"": torch.ones(())}, "drew 'factor', which has other names than the update"),
        (lambda update: {name: torch.ones(()) for name in update}, r"which has shape \(\) for"),
    ],
)
def test_a_nuisance_that_could_not_be_granted_is_refused_before_anything_runs(draw: object, sentence: str) -> None:
    with pytest.raises(DomainError, match=sentence):
        lg.observe(small_task().protect(drawing("Own", draw, Nuisance("factor", per="update"))), small_records(1))


@pytest.mark.parametrize(
    ("name", "nuisances", "sentence"),
    [
        ("Own", (Nuisance("a.mask", per="entry"),), "'a.mask' of Own has a dot in it"),
        ("Own", (Nuisance("mask", per="entry"), Nuisance("mask", per="tensor")), "'mask' of Own is declared twice"),
        ("recipe", (Nuisance("labels", per="entry"),), "has the name of the recipe"),
        ("lrp", (Nuisance("scale", per="entry"),), "has the name of a part of another stage"),
    ],
)
def test_addresses_mean_one_thing(name: str, nuisances: tuple[Nuisance, ...], sentence: str) -> None:
    with pytest.raises(ExpressionError, match=sentence):
        protection("lrp()") | drawing(name, {}, *nuisances)


@dataclass(frozen=True, repr=False)
class Mixing(lg.defenses.MixUp):
    """A mixing of somebody's own: its grants are under its own name."""


def test_a_part_that_derives_from_ours_gets_its_own_grants() -> None:
    records = small_records(4)
    inputs = []
    for part in (lg.defenses.MixUp(k=2), Mixing(k=2)):
        task = small_task().protect(part)
        label = next(iter(task.protection.parts))
        threat = lg.Threat(grants=frozenset({f"{label}.indices", f"{label}.coefficients"}))
        inputs.append(lg.attacks.adaptive(steps=2)(task, lg.observe(task, records, threat=threat, rounds=2)).inputs)
    torch.testing.assert_close(*inputs)


def test_an_earlier_input_part_is_said_not_to_be_undone() -> None:
    task = small_task().protect("mixup(k=2) | mixup(k=2)")
    treated = {one.address: one.sentence for one in lg.attacks.adaptive().against(task).treatments}
    assert "taken for the record" in treated["mixup.indices"]
    assert "taken for the record" not in treated["mixup#2.coefficients"]
    with pytest.warns(lg.errors.NotModelledWarning, match=r"does not undo mixup\(k=2\)"):
        lg.attacks.adaptive(steps=2)(task, lg.observe(task, small_records(4)))


class Gained(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("gain", torch.ones(1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.inner(x) * self.gain
        return scores


@dataclass(frozen=True, repr=False)
class ScoreGain(lg.defenses.ModelPart):
    """A model part of somebody's own, with a random gain of the scores of every example."""

    nuisances = (Nuisance("gain", per="example", law=Uniform(0.5, 1.5)),)

    def wrap(self, model: nn.Module, domain: lg.Domain) -> nn.Module:
        return model if isinstance(model, Gained) else Gained(model)

    def draw(self, model: nn.Module, batch: int, steps: int, *, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"gain": torch.rand((batch, 1), generator=generator) + 0.5}

    def buffers(self, model: nn.Module) -> dict[str, str]:
        return {"gain": "gain"}


def test_a_model_part_without_a_bottleneck_is_searched_for() -> None:
    task = small_task().protect(ScoreGain())
    treated = {one.address: one.how for one in lg.attacks.adaptive().against(task).treatments}
    assert treated["ScoreGain.gain"] == "optimised"
    reconstruction = lg.attacks.adaptive(steps=2)(task, lg.observe(task, small_records(1)))
    assert bool(reconstruction.inputs.isfinite().all())
