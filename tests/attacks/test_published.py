"""Published attacks on a few bundled images: compositions that reach what their papers promise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.adversary import Adversary, cosine, density, exponential, l2, lbfgs, signed_adam
from leakgauge.attacks import adaptive, analytic, bayes, dlg, idlg, inverting_gradients
from leakgauge.data import load
from leakgauge.errors import DomainError, ModelError
from leakgauge.metrics import psnr
from leakgauge.observation import observe
from leakgauge.priors import gaussian_prior, tv, uniform
from leakgauge.task import Task
from leakgauge.testing import small_records, small_task, task_is_untouched
from leakgauge.types import Domain, Records, Threat


@pytest.fixture(scope="module")
def images() -> Records:
    return load("fashion_mnist_sample").sample(4, seed=3, split="test")


@pytest.fixture(scope="module")
def lenet(images: Records) -> Task:
    return Task(lg.models.build("dlg_lenet", images.domain), images.domain)


@pytest.fixture(scope="module")
def mlp(images: Records) -> Task:
    return Task(lg.models.build("mlp", images.domain), images.domain)


def decibels(found: lg.Reconstruction, records: Records) -> torch.Tensor:
    return psnr(found.inputs[:, 0].to(torch.float64), records.inputs[: len(found)].to(torch.float64))


# --- analytic --------------------------------------------------------------------------------------------------------


def test_analytic_undoes_the_normalisation_of_the_model(mlp: Task, images: Records) -> None:
    model = lg.models.normalised(lg.models.normalised(mlp.model, [0.3], [0.5]), [0.286], [0.353])
    task = Task(model, images.domain)
    assert decibels(analytic()(task, observe(task, images)), images).min() > 100


@pytest.mark.parametrize(
    ("protection", "how", "roundings"),
    [
        ("identity()", "row", 2),  # of δ_i x_j, and of the quotient by δ_i
        ("identity()", "all", 1),  # of δ_i x_j; what follows is in float64
        ("clip(norm=0.01)", "row", 4),  # of both entries once more
        ("clip(norm=0.01)", "all", 3),
    ],
)
def test_a_linear_layer_gives_the_image_away(
    protection: str, how: str, roundings: int, mlp: Task, images: Records
) -> None:
    """Every rounding to float32 moves a pixel by at most eps/2 of itself, on whatever processor."""
    seen = observe(mlp.protect(protection), images, threat=Threat(labels="inferred"))
    assert seen[0].rounds[0].observed["linear1.weight"].dtype == torch.float32
    found = analytic(how=how)(mlp, seen)  # type: ignore[arg-type]
    gap = (found.inputs[:, 0].double() - images.inputs).abs()
    assert bool((gap <= 1.001 * roundings * torch.finfo(torch.float32).eps / 2 * images.inputs).all())
    assert torch.equal(found.labels[:, 0], images.labels)
    assert found.status == ("exact",) * 4


def test_all_rows_together_average_their_roundings_out(mlp: Task, images: Records) -> None:
    """Independent errors of at most eps/2 with weights ``w_i = δ_i² / Σ δ²`` add up to ``eps/2 · 6 ‖w‖`` or less.

    By Hoeffding's inequality all but 2 exp(−6²/2) = 3e-8 of the pixels keep to it.
    """
    seen = observe(mlp, images)
    found = analytic(how="all")(mlp, seen).inputs[:, 0]
    for one, pixels, image in zip(seen, found, images.inputs, strict=True):
        squares = one.rounds[0].observed["linear1.bias"].double().square()
        spread = float((squares / squares.sum()).norm())
        assert 6 * spread < 0.9  # else this says no more than the worst case
        allowed = 6 * spread * torch.finfo(torch.float32).eps / 2
        assert bool(((pixels - image).abs() <= allowed * image).all())


def test_of_a_larger_batch_it_says_that_it_sees_a_mixture(images: Records) -> None:
    task = Task(lg.models.build("mlp(width=20)", images.domain), images.domain, lg.Recipe(batch=2))
    found = analytic()(task, observe(task, images))
    assert found.inputs.shape == (2, 2, 1, 28, 28)
    assert found.status == ("mixture", "mixture")
    assert float(psnr(found.inputs[0, 0].float(), images.inputs[0])) < 40


def test_a_weight_change_is_inverted_too(images: Records) -> None:
    task = Task(lg.models.build("mlp(width=50)", images.domain), images.domain, lg.Recipe(shares="change"))
    found = analytic()(task, observe(task, images, threat=Threat(labels="inferred")))
    assert float(decibels(found, images).min()) > 100
    assert torch.equal(found.labels[:, 0], images.labels)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 4)),
            "analytic: the first layer, '0.weight' of shape (2, 1, 3, 3), is not linear on 36 raw inputs; attack with",
        ),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(36, 4, bias=False)),
            "analytic: the first layer '1' has no bias; attack with inverting_gradients()",
        ),
    ],
)
def test_it_says_which_layer_it_cannot_invert(model: nn.Module, what: str) -> None:
    task = Task(model, Domain("image", (1, 6, 6), 4))
    with pytest.raises(ModelError) as raised:
        analytic()(task, observe(task, small_records(1)))
    assert what in str(raised.value)


def test_it_guards_its_domain() -> None:
    with pytest.raises(DomainError, match='analytic: how must be "row" or "all", got \'best\''):
        lg.parse("analytic(how='best')")


# --- optimisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", [dlg(steps=900, restarts=3), idlg(steps=700, restarts=2)], ids=["dlg", "idlg"])
def test_dlg_and_idlg_recover_images_and_labels_from_the_sigmoid_lenet(
    attack: Adversary, lenet: Task, images: Records
) -> None:
    seen = observe(lenet, images[:2], threat=Threat(labels="inferred"))
    found = attack(lenet, seen)
    # an attack that reaches its target ends near 60 dB, wherever rounding led it; one that misses it near 10
    assert float(decibels(found, images).min()) > 40
    assert torch.equal(found.labels[:, 0], images.labels[:2])
    assert found.path == "ghost"


def test_inverting_gradients_recovers_a_small_image() -> None:
    task, records = small_task(dtype=torch.float32), small_records(3)
    # a clip far below the norm: a cosine does not mind
    seen = observe(task.protect("clip(norm=0.001)"), records)
    found = inverting_gradients(steps=500, tv_weight=1e-6)(task, seen)
    assert float(decibels(found, records).mean()) > 20  # about 30; a grey image has 11
    assert float(found.inputs.min()) >= 0
    assert float(found.inputs.max()) <= 1


@pytest.mark.slow
def test_inverting_gradients_recovers_an_image_from_a_relu_network(images: Records) -> None:
    task = Task(lg.models.build("bayes_cnn", images.domain), images.domain)
    found = inverting_gradients(steps=400, tv_weight=1e-3)(task, observe(task, images))
    assert float(decibels(found, images).mean()) > 20


def test_the_adaptive_adversary_beats_the_generic_one_on_pruned_noise() -> None:
    task = small_task(dtype=torch.float32).protect("random_prune(p=0.5) | gaussian(std=0.0003)")
    records = small_records(6)
    seen = observe(task, records)
    generic = inverting_gradients(steps=200, tv_weight=1e-4)(task, seen)
    own = adaptive(steps=200, tv_density=1e-3)(task, seen)
    assert float(decibels(own, records).mean()) > float(decibels(generic, records).mean()) + 2


def test_the_bayes_adversary_finds_the_closed_form_answer_of_its_own_model() -> None:
    from leakgauge.testing import LinearClient

    client = LinearClient()
    attack = bayes(prior=gaussian_prior(mean=client.mean, std=client.std), solver=lbfgs(steps=60))
    found = attack(client.task(), client.observations())
    torch.testing.assert_close(found.inputs, client.answer(), rtol=0, atol=1e-6)


def test_the_user_s_model_survives_every_attack() -> None:
    records = small_records(2)
    task = small_task(dtype=torch.float32)
    for attack in (dlg(steps=5), idlg(steps=5), inverting_gradients(steps=5), adaptive(steps=5)):
        for how in ("identity()", "random_prune(p=0.3) | gaussian(std=0.01)"):
            shielded = task.protect(how)

            def action(shielded: Task = shielded, attack: object = attack) -> None:
                seen = observe(shielded, records, threat=Threat(labels="inferred"))
                attack(shielded, seen)  # type: ignore[operator]

            task_is_untouched(task, action)


# --- compositions ----------------------------------------------------------------------------------------------------


def test_a_paper_is_a_composition() -> None:
    assert dlg() == Adversary(
        likelihood=l2(),
        prior=uniform(),
        solver=lbfgs(steps=2000, history=100, target=1e-6),
        labels="joint",
        restarts=4,
    )
    assert idlg() == Adversary(
        likelihood=l2(), solver=lbfgs(steps=2000, history=100, target=1e-6), labels="inferred", restarts=4
    )
    assert inverting_gradients() == Adversary(
        likelihood=cosine(), prior=1e-4 * tv(), solver=signed_adam(lr=0.1, steps=4800)
    )
    assert bayes().likelihood == density()
    assert bayes().prior == tv(kind="quadratic", periodic=True, reduce="sum")
    assert getattr(bayes().solver, "schedule", None) == exponential(rate=0.99)
    assert bayes().ball is None


def test_the_published_decay_is_at_three_five_and_seven_eighths() -> None:
    schedule = getattr(inverting_gradients(steps=800).solver, "schedule")  # noqa: B009
    factors = [schedule(step, 800) for step in (299, 300, 500, 700)]
    assert factors == pytest.approx([1, 0.1, 0.01, 0.001])


def test_attacks_refuse_bad_observations_alike() -> None:
    task = small_task(dtype=torch.float32)
    seen = observe(task, small_records(1))[0]
    spoiled = {name: value.clone().fill_(math.nan) for name, value in seen.rounds[0].observed.items()}
    bad = [replace(seen, rounds=(replace(seen.rounds[0], observed=spoiled),))]
    for attack in (dlg(steps=5), inverting_gradients(steps=5), adaptive(steps=5), bayes(), analytic()):
        with pytest.raises(lg.LeakgaugeError, match="values that are NaN or infinite; drop that round or client"):
            attack(task, bad)
