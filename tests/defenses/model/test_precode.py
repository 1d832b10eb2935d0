"""PRECODE: the bottleneck, its loss, and the noise that its own gradients give away."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.adversary import adam
from leakgauge.adversary.paths import PathName
from leakgauge.attacks import adaptive
from leakgauge.attacks.precode import before_bottleneck, latent_noise
from leakgauge.defenses import precode
from leakgauge.defenses.model.precode import bottleneck_of
from leakgauge.errors import DomainError, ModelError
from leakgauge.metrics import psnr
from leakgauge.testing import small_records, small_task
from leakgauge.training import train
from leakgauge.types import Domain, Threat

FORMS = ["precode(k=8)", "precode(k=8, form='bayes', uniform=0.05)"]
NOISE, BUFFER = "precode.noise", "last.precode.noise"


def test_the_official_form_is_the_papers() -> None:
    task = small_task().protect("precode(k=8)")
    name, made = bottleneck_of(task.working)
    assert name == "last.precode"
    records = small_records(3)
    x, noise = records.inputs.double(), torch.randn(3, 8, dtype=torch.float64)
    outputs = torch.func.functional_call(task.working, {BUFFER: noise}, (x,))
    hidden = nn.Sequential(*list(task.model)[:-1])(x)
    mean, raw = (hidden @ made.encoder.weight.T + made.encoder.bias).chunk(2, -1)
    std = nn.functional.softplus(raw)
    logits = task.model.last(made.decoder(mean + noise * std))
    bits = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, std), torch.distributions.Normal(0.0, 1.0)
    ).sum(1) / math.log(2)
    assert torch.allclose(outputs, torch.cat([logits, bits.unsqueeze(1)], 1))
    loss = task.working_recipe.loss(outputs, records.labels)
    plain = nn.functional.cross_entropy(logits, records.labels, reduction="none")
    assert torch.allclose(loss, plain + 1e-3 * bits)


@pytest.mark.parametrize("how", FORMS)
def test_names_of_the_users_parameters_stay_and_new_weights_depend_on_the_seed(how: str) -> None:
    task = small_task()
    defended = task.protect(how)
    assert set(task.params) < set(defended.params)
    for name, value in task.params.items():
        assert defended.params[name].data_ptr() == value.data_ptr()
    again, other = task.protect(how), task.protect(how.replace(")", ", seed=1)"))
    for name in set(defended.params) - set(task.params):
        assert torch.equal(defended.params[name], again.params[name])
        assert not torch.equal(defended.params[name], other.params[name])


@pytest.mark.parametrize("how", FORMS)
def test_the_latent_noise_is_recovered_whatever_the_scale(how: str) -> None:
    task = small_task().protect(f"{how} | lrp(share=2.0) | clip(norm=0.01)")
    seen = lg.observe(task, small_records(4), threat=Threat(grants=frozenset({"noise"})))
    for one in seen:
        noise = one.rounds[0].granted[NOISE]
        assert isinstance(noise, torch.Tensor)
        assert torch.allclose(latent_noise(task, one.rounds[0]), noise.double(), atol=1e-6)


@pytest.mark.parametrize("path", ["ghost", "vmap", "loop"])
def test_every_path_takes_the_noise_of_its_own_observation(path: str) -> None:
    task = small_task().protect("precode(k=8)")
    records = small_records(3)
    seen = lg.observe(task, records, threat=Threat(grants=frozenset({"noise"})))
    from leakgauge.adversary.ghost import Ghost
    from leakgauge.adversary.paths import Loop, Vmap
    from leakgauge.types import Candidate
    from leakgauge.updates import Sharing

    made = {"ghost": Ghost.of, "vmap": Vmap, "loop": Loop}[path](task, task.params, task.buffers)
    noise = torch.stack([one.rounds[0].granted[NOISE].double() for one in seen])
    truth = Candidate(records.inputs.double().unsqueeze(1), records.labels.unsqueeze(1), {NOISE: noise})
    updates = made.updates(truth, Sharing((1, 1, 1)))
    for i, one in enumerate(seen):
        for name, value in updates.dense().items():
            assert torch.allclose(value[i], one.rounds[0].observed[name], atol=1e-12)


def test_adaptive_inverts_a_linear_first_layer() -> None:
    domain = Domain("image", (1, 6, 6), 4)
    task = lg.Task(lg.models.build("mlp(width=20, depth=2)", domain), domain).protect("precode(k=8)")
    records = small_records(5)
    made = adaptive()(task, lg.observe(task, records))
    assert float(psnr(made.inputs[:, 0], records.inputs).min()) > 100
    assert set(made.status) == {"exact"}


def test_adaptive_beats_the_generic_attack_on_a_convolutional_network() -> None:
    task = small_task().protect("precode(k=64)")
    records = small_records(3)
    seen = lg.observe(task, records)
    blind = adaptive(steps=150).adversary(lg.Protection())(task, seen)
    informed = adaptive(steps=150)(task, seen)
    gain = psnr(informed.inputs[:, 0], records.inputs) - psnr(blind.inputs[:, 0], records.inputs)
    assert float(gain.min()) > 3


def test_a_batch_may_be_attacked_in_front_of_the_bottleneck() -> None:
    task = small_task(batch=2).protect("precode(k=8)")
    adversary = before_bottleneck(task, adaptive(steps=2, latent="before").adversary(task.protection))
    assert adversary.likelihood.drop == ("last",)
    made = adaptive(steps=2, latent="before")(task, lg.observe(task, small_records(2)))
    assert torch.equal(made.inputs, adversary(task, lg.observe(task, small_records(2))).inputs)
    with pytest.raises(DomainError, match="adaptive: latent must be"):
        adaptive(latent="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["ghost", "vmap", "loop"])
def test_joint_noise_is_found_beside_the_input(path: PathName) -> None:
    """Unknown noise of every round is optimised; where it is granted, nothing is left to find."""
    task = small_task(batch=2).protect("precode(k=8)")
    seen = lg.observe(task, small_records(2), rounds=[task.params] * 2)
    joint = adaptive(steps=12).adversary(task.protection)
    made = joint(task, seen, path=path)
    assert made.path == path
    assert torch.allclose(made.inputs, joint(task, seen, path="loop").inputs, atol=1e-6)
    blind = replace(joint, hidden=None)(task, seen, path=path)
    assert float(made.log_posterior[0]) > float(blind.log_posterior[0])
    granted = lg.observe(task, small_records(2), threat=Threat(grants=frozenset({"noise"})))
    assert torch.equal(joint(task, granted).inputs, replace(joint, hidden=None)(task, granted).inputs)


def test_the_prior_of_the_noise_is_standard_normal() -> None:
    """The log density at zero is its constant, which is left out; Adam's first step is its rate in every unknown: the
    objectives after it differ by ``Δw ‖ε‖²/2``, ε_i = ±0.1."""
    task = small_task().protect("precode(k=8) | gaussian(std=0.1)")
    seen = lg.observe(task, small_records(1))
    made = adaptive().adversary(task.protection)
    assert made.hidden == 1.0
    plain = replace(made, solver=adam(lr=0.1, steps=2))
    one, three = (replace(plain, hidden=w)(task, seen).traces[0] for w in (1.0, 3.0))
    before, after = (three - one).tolist()[:2]
    assert before == pytest.approx(0, abs=1e-9)
    assert after - before == pytest.approx((3 - 1) * 8 * 0.1**2 / 2, rel=1e-4)


def test_optimising_the_noise_pays_where_it_cannot_be_recovered() -> None:
    data = lg.data.load("fashion_mnist_sample")
    base = lg.Task(lg.models.build("bayes_cnn", data.domain), data.domain)
    records = data.sample(1, seed=4, split="train")
    for how, steps in (("precode(k=64) | gaussian(std=0.001)", 50), ("precode(k=64) | prune(p=0.9)", 100)):
        task = base.protect(how)
        seen = lg.observe(task, records)
        before, joint = (
            psnr(adaptive(steps=steps, latent=latent)(task, seen).inputs[:, 0], records.inputs)
            for latent in ("before", "joint")
        )
        assert float(joint - before) > 5, how


def test_the_adversary_composes_as_the_protection_does() -> None:
    task = small_task().protect("mixup(k=2) | precode(k=8) | lrp(share=2.0) | clip(norm=1.0)")
    records = small_records(3)
    threat = Threat(grants=frozenset({"indices", "coefficients"}))
    seen = lg.observe(task, records, threat=threat, rounds=[task.params] * 2)
    assert set(adaptive(steps=2)(task, seen).status) == {"decoded"}
    pruned = small_task().protect("ats(policy='0') | precode(k=8) | prune(p=0.5)")
    adversary = before_bottleneck(pruned, adaptive(steps=2, latent="before").adversary(pruned.protection))
    assert repr(adversary.likelihood) == "through(likelihood=cosine(drop=('last',)))"
    assert set(adaptive(steps=2)(pruned, lg.observe(pruned, records)).status) == {"undone"}


def test_a_trained_bottleneck_is_kept() -> None:
    task = small_task().protect("precode(k=8)")
    last = train(task, small_records(8), steps=3, batch=4)[-1]
    later = task.at(last.state)
    assert set(later.params) == set(task.params)
    assert torch.equal(later.params["last.precode.decoder.weight"], last.state["last.precode.decoder.weight"])
    assert not torch.equal(later.params["last.weight"], task.params["last.weight"])


def test_what_has_no_place_for_it_is_refused() -> None:
    domain = Domain("image", (1, 6, 6), 4)
    convolutional = nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten())
    with pytest.raises(ModelError, match=r"precode: the model has no linear layer with 4 outputs at its end"):
        lg.Task(convolutional, domain).protect("precode()")
    logistic = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    with pytest.raises(ModelError, match=r"precode: the model has no hidden layer to put a bottleneck behind"):
        lg.Task(logistic, domain).protect("precode()")
    for options, says in (({"k": 0}, "k must be an integer ≥ 1"), ({"form": "other"}, "form must be")):
        with pytest.raises(DomainError, match=says):
            precode(**options)


@pytest.mark.parametrize("text", ["precode(k=1000000000)", "precode(k=30000, form='bayes')"])
def test_a_bottleneck_that_would_fill_memory_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=r"would add .* weights; say a smaller k"):
        small_task().protect(text)
