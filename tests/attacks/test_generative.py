"""Searching the codes of a generator: where the answer is known, under defenses, and with nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.adversary import Adversary, adam, attack, cosine_decay, density, l2
from leakgauge.adversary.estimated import Estimated
from leakgauge.adversary.nulls import noise
from leakgauge.attacks import ggl, gias
from leakgauge.errors import DomainError, MissingExtraError
from leakgauge.expr import parse
from leakgauge.priors import Generator, Learned, Tuned, tv
from leakgauge.study import SpecError, Study
from leakgauge.testing.catalogue import TINY_PRIOR
from leakgauge.types import Candidate

CODES = 3
needs_cma = pytest.mark.skipif(find_spec("cma") is None, reason="type: pip install 'leakgauge[cma]'")


def generator() -> Generator:
    """Pictures of 6 × 6 pixels from three numbers, fixed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        layers = nn.Sequential(nn.Linear(CODES, 36), nn.Sigmoid(), nn.Unflatten(1, (1, 6, 6)))
        with torch.no_grad():
            layers[0].weight.mul_(3)
    return Generator(layers, CODES)


def client(defense: str = "identity()", batch: int = 1) -> lg.Task:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))
    return lg.Task(model, lg.Domain("image", (1, 6, 6), 3), lg.Recipe(batch=batch)).protect(defense)


def drawn(count: int, task: lg.Task) -> tuple[Tensor, lg.Records]:
    """Records that the generator can draw, and their codes."""
    codes = torch.randn(count, CODES, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return codes, lg.Records(generator().module(codes), torch.arange(count) % 3, task.domain)


def search(steps: int = 150) -> Adversary:
    return Adversary(l2(), 1e-6 * generator(), adam(lr=0.1, steps=steps, schedule=cosine_decay()), restarts=3)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_search_finds_the_codes_of_a_record_that_can_be_drawn(batch: int) -> None:
    task = client(batch=batch)
    _, records = drawn(2 * batch, task)
    found = search()(task, lg.observe(task, records))
    matched = lg.metrics.match(found.inputs, records.inputs.unflatten(0, (2, batch)))
    assert float(matched.scores.max()) < 1e-3
    assert found.codes is not None
    assert found.codes.shape == (2, batch, CODES)
    redrawn = generator().module(found.codes.flatten(0, 1)).unflatten(0, (2, batch))
    torch.testing.assert_close(redrawn, found.inputs)


def test_noise_in_place_of_the_update_shows_what_the_prior_alone_draws() -> None:
    task = client()
    _, records = drawn(4, task)
    observed = lg.observe(task, records)
    real, null = (
        float(lg.metrics.mse(search(100)(task, some).inputs[:, 0], records.inputs).mean())
        for some in (observed, noise(observed, seed=1))
    )
    assert real < null / 3


def test_weights_are_tuned_where_codes_cannot_reach() -> None:
    task = client()
    _, records = drawn(2, task)
    torch.manual_seed(0)
    moved = lg.Records((records.inputs + 0.2 * torch.rand(2, 1, 6, 6)).clamp(0, 1), records.labels, task.domain)
    observed = lg.observe(task, moved)
    first = gias(prior=generator(), likelihood=l2(), steps=60, lr=0.1, restarts=1)
    second = replace(first, tune_steps=60, tune_lr=0.01)
    codes, tuned = first(task, observed), second(task, observed)
    assert bool((tuned.log_posterior >= codes.log_posterior - 1e-6).all())
    held = [lg.metrics.mse(one.inputs[:, 0], moved.inputs).mean() for one in (codes, tuned)]
    assert float(held[1]) < float(held[0])
    assert tuned.codes is not None
    torch.testing.assert_close(tuned.codes[..., :CODES], codes.codes)  # the second step holds the codes
    stiff = replace(second, stiffness=1e12, weight=1.0, likelihood=l2())(task, observed)
    loose = replace(second, weight=1.0, likelihood=l2())(task, observed)
    start = Tuned(generator())._weights(torch.zeros(()))
    gone = [float((one.codes[..., CODES:] - start).square().sum()) for one in (stiff, loose) if one.codes is not None]
    assert gone[0] < gone[1]


def test_a_density_and_other_priors_join_in() -> None:
    task = client("gaussian(std=0.01)")
    _, records = drawn(2, task)
    prior = generator()
    both = Adversary(density(), prior + 1e-3 * tv(), adam(lr=0.1, steps=30))
    result = both(task, lg.observe(task, records))
    assert result.inputs.shape == (2, 1, 1, 6, 6)
    swept = attack([replace(both, prior=w * prior) for w in (0.5, 1.0)], task, lg.observe(task, records))
    assert [one.codes.shape for one in swept if one.codes is not None] == [(2, 1, CODES)] * 2


def test_a_generator_of_classes_is_told_the_label() -> None:
    task = client()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(6)
        layers = nn.Sequential(nn.Linear(CODES + 3, 36), nn.Sigmoid(), nn.Unflatten(1, (1, 6, 6)))
    prior, codes, labels = Generator(layers, CODES, classes=3), torch.randn(2, CODES), torch.tensor([2, 0])
    with torch.no_grad():
        inputs = layers(torch.cat([codes, torch.eye(3)[labels]], 1))
    observed = lg.observe(task, lg.Records(inputs, labels, task.domain))
    attacker = Adversary(l2(), 1e-6 * prior, adam(lr=0.1, steps=20))
    result = attacker(task, observed)
    assert result.codes is not None
    torch.testing.assert_close(result.codes[:, 0, CODES:], torch.eye(3)[labels])  # the search leaves labels alone
    with torch.no_grad():
        torch.testing.assert_close(layers(result.codes[:, 0]), result.inputs[:, 0])
    hidden = lg.observe(task, lg.Records(inputs, labels, task.domain), threat=lg.Threat(labels="joint"))
    with pytest.raises(DomainError, match="no class is known"):
        replace(attacker, labels="joint")(task, hidden)
    with pytest.raises(DomainError, match="knows 2 classes"):
        Generator(layers, CODES + 1, classes=2).begin(torch.zeros(1, 1, CODES + 1), torch.tensor([[2]]))


# --- what cannot be


def test_a_generator_of_another_shape_is_refused() -> None:
    task = client()
    prior = parse(TINY_PRIOR, "prior")
    _, records = drawn(1, task)
    with pytest.raises(DomainError, match=r"draws records of shape \(1, 8, 8\), the client's have \(1, 6, 6\)"):
        Adversary(prior=prior)(task, lg.observe(task, records))
    with pytest.raises(DomainError, match="one code"):
        Adversary(prior=generator() + generator())(task, lg.observe(task, records))
    with pytest.raises(DomainError, match="no codes"):
        generator()(Candidate(torch.rand(1, 1, 1, 6, 6), torch.zeros(1, 1)))
    with pytest.raises(DomainError, match="cannot begin at codes"):
        search()(task, lg.observe(task, records), begin=records.inputs[None])


def test_a_study_refuses_a_prior_that_does_not_fit() -> None:
    data = lg.data.load("fashion_mnist_sample")
    with pytest.raises(SpecError, match=r"adversaries\.latent.*draws records of shape"):
        Study("mlp(width=4, depth=1)", data, adversaries={"latent": f"bayes(prior={TINY_PRIOR})"})


def test_a_study_refuses_a_prior_that_knows_its_records() -> None:
    prior = parse(TINY_PRIOR, "prior")
    assert isinstance(prior, Learned)
    inputs = known_records()
    assert prior.trained_on(inputs) == len(inputs)
    records = lg.Records(inputs, torch.arange(len(inputs)) % 2, lg.Domain("image", (1, 8, 8), 2))
    with pytest.raises(SpecError, match=r"was trained on \d+ of the \d+ reported records"):
        Study("mlp(width=4, depth=1)", records, adversaries={"latent": f"bayes(prior={TINY_PRIOR})"}, updates=6)


def known_records() -> Tensor:
    """What the bundled tiny prior was trained on."""
    rows = torch.arange(8.0)[:, None] / 8
    return torch.stack([((rows * k / 3 + torch.arange(8.0) / 8) % 1.0)[None] for k in range(40)])


# --- GGL


def test_estimates_are_read_off_the_update() -> None:
    task = client("clip(norm=0.05) | prune(p=0.5)")
    _, records = drawn(2, task)
    (first, *_) = lg.observe(task, records)
    assert float(_likelihood(Estimated(), task, first, records[:1])) == pytest.approx(0, abs=1e-6)
    assert float(_likelihood(Estimated(clip=False), task, first, records[:1])) < -0.1
    assert float(_likelihood(Estimated(mask=False), task, first, records[:1])) < -0.01


def _likelihood(likelihood: Estimated, task: lg.Task, observation: lg.Observation, records: lg.Records) -> Tensor:
    from leakgauge.updates import Batch, Stack

    update = Batch.of({name: value.unsqueeze(0) for name, value in task.protect("identity()").update(records).items()})
    seen = Stack({name: value.unsqueeze(0) for name, value in observation.rounds[0].observed.items()})
    return likelihood(update, seen, {}, task.protection)


@needs_cma
def test_evolution_finds_the_codes() -> None:
    task = client("clip(norm=0.05)")
    _, records = drawn(2, task)
    found = ggl(prior=generator(), steps=60, weight=1e-7)(task, lg.observe(task, records))
    assert float(lg.metrics.mse(found.inputs[:, 0], records.inputs).max()) < 2e-3
    alone = ggl(prior=generator(), steps=60, weight=1e-7)(task, lg.observe(task, records)[:1])
    torch.testing.assert_close(alone.inputs[0], found.inputs[0], rtol=0, atol=1e-2)
    assert found.evaluations > 2 * 60


@pytest.mark.skipif(find_spec("cma") is not None, reason="cma is installed")
def test_without_the_package_it_says_what_to_type() -> None:
    task = client()
    _, records = drawn(1, task)
    with pytest.raises(MissingExtraError, match=r"leakgauge\[cma\]"):
        ggl(prior=generator(), steps=2)(task, lg.observe(task, records))


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda: Generator(nn.Linear(5, 36), CODES), "the generator does not take 3 codes .*the number of its codes"),
        (lambda: Generator(nn.LSTM(CODES, 36), CODES), "the generator returns a tuple; make it return records"),
        (lambda: Generator(torch.sin, 0, classes=-1), "the module is a builtin_function_or_method; give an nn.Module"),
        (lambda: Generator(torch.sin, 0, classes=-1), "classes must be an integer ≥ 0, got -1"),
    ],
)
def test_a_generator_that_draws_nothing_is_refused(prior: Callable[[], Generator], message: str) -> None:
    task = client()
    with pytest.raises(DomainError, match=message):
        Adversary(prior=prior())(task, lg.observe(task, drawn(1, task)[1]))


def test_settings_of_gias_that_cannot_work_are_named_together() -> None:
    with pytest.raises(DomainError, match=r"restarts must be .*tune_steps must be .*lr must lie in"):
        gias(prior=generator(), restarts=0, tune_steps=1.5, lr=-1.0)  # type: ignore[arg-type]
