"""Parts that have only a ``release``: what the adversary finds out by simulating them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import leakgauge as lg
from leakgauge.adversary.simulation import (
    Dropped,
    Estimated,
    Flipped,
    Impulsive,
    Rearranged,
    Traced,
    simulate,
    simulate_whole,
)
from leakgauge.adversary.simulation.labels import labels_by_simulation
from leakgauge.defenses import clip, gaussian, prune, quantise, random_prune
from leakgauge.errors import AssumptionWarning, NotModelledWarning
from leakgauge.testing import image_records, image_task
from tests.adversary import own_parts as own


def image_score(how: Any, *, labels: lg.types.Labels = "inferred", steps: int = 60, count: int = 1) -> list[float]:
    """The SSIM of ``adaptive()`` on bundled images."""
    records, task = image_records(count), image_task().protect(how)
    observations = lg.observe(task, records, threat=lg.Threat(labels=labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        reconstruction = lg.attacks.adaptive(steps=steps)(task, observations)
    scores: list[float] = lg.metrics.ssim(reconstruction.inputs[:, 0], records.inputs).tolist()
    return scores


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (own.Negated(), Rearranged),
        (own.Shuffled(), Rearranged),
        (own.Doubled(), Rearranged),
        (own.NumpyNegated(), Rearranged),
        (own.Rotated(), Traced),
        (own.NumpyRounded(), Traced),
        (own.Louder(), Traced),
        (own.Dropping(), Dropped),
        (own.Salted(), Impulsive),
        (own.Salted(p=0.6), Impulsive),
        (own.Flipping(), Flipped),
        (own.Flipping(p=0.1), Flipped),
        (own.BiasNoise(), Estimated),
        (own.UnseededNoise(), Estimated),
    ],
)
def test_the_model_of_a_part(part: Any, kind: type) -> None:
    simulation = simulate(image_task().protect(part))
    assert [type(one) for one in simulation.stand_ins] == [kind]
    assert not simulation.unmodelled


@pytest.mark.parametrize("part", [own.NumpySorted(), own.Asking()])
def test_what_cannot_be_simulated_is_named(part: Any) -> None:
    ((unmodelled, reason),) = simulate(image_task().protect(part)).unmodelled
    assert unmodelled == part
    assert reason
    task = image_task().protect(part)
    observations = lg.observe(task, image_records(1))
    with pytest.warns(NotModelledWarning, match=type(part).__name__):
        lg.attacks.adaptive(steps=1)(task, observations)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (own.SometimesNoise(), "its noise is"),
        (own.Rolled(), "in an order that is drawn anew"),
        (own.Disordered(), "in an order that is drawn anew"),
    ],
)
def test_noise_that_a_variance_per_entry_does_not_describe_is_not_modelled(part: Any, why: str) -> None:
    ((_, reason),) = simulate(image_task().protect(part)).unmodelled
    assert why in reason


def _small() -> tuple[lg.Task, lg.Records]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 3))
    domain = lg.types.Domain("image", (1, 4, 4), 3)
    return lg.Task(network, domain), lg.Records(torch.rand(1, 1, 4, 4), torch.tensor([2]), domain)


def test_a_linear_map_through_numpy_is_probed_and_differentiated() -> None:
    task, records = _small()
    (stand_in,) = simulate(task.protect(own.NumpyMixed())).stand_ins
    assert isinstance(stand_in, Traced)
    assert "mixes entries linearly" in stand_in.sentence
    update = task.update(records)
    released = own.NumpyMixed().release(update, None, generator=torch.Generator()).observed
    entries, expected = (torch.cat([t[n].flatten() for n in sorted(t)]) for t in (update, released))
    entries.requires_grad_()
    moved = stand_in.how(entries[None])[0]
    # sums of at most 8 products in float32
    torch.testing.assert_close(moved.detach(), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    (slope,) = torch.autograd.grad(moved @ moved.detach(), entries)
    torch.testing.assert_close(slope, entries.detach(), rtol=1e-3, atol=1e-4 * float(slope.abs().max()))


def test_a_linear_map_through_numpy_hides_nothing() -> None:
    task, records = _small()
    protected = task.protect(own.NumpyMixed())
    observations = lg.observe(protected, records)
    with pytest.warns(AssumptionWarning, match="mixes entries linearly"):
        guess = lg.attacks.adaptive(steps=150, tv_weight=0.0)(protected, observations)
    assert float(lg.metrics.psnr(guess.inputs[0], records.inputs)) > 25


def test_directions_that_the_noise_shares_hide_nothing_else() -> None:
    (stand_in,) = simulate(image_task().protect(own.Offset())).stand_ins
    assert "without the 6 directions that its noise shares" in stand_in.sentence  # one for each of six tensors
    assert min(image_score(own.Offset())) > 0.5


@pytest.mark.parametrize("part", [own.Negated(), own.Shuffled(), own.NumpyNegated()])
def test_a_public_bijection_is_undone(part: Any) -> None:
    task, records = image_task(), image_records(1)
    (plain,), (sent,) = lg.observe(task, records), lg.observe(task.protect(part), records)
    simulation = simulate(task.protect(part))
    assert repr(simulation.task.protection) == "identity()"
    (undone,) = simulation.observed([sent])
    for name, value in plain.rounds[0].observed.items():
        torch.testing.assert_close(undone.rounds[0].observed[name], value, rtol=1e-4, atol=1e-6 * float(value.norm()))


def test_noise_is_found_where_it_is_and_as_large_as_it_is() -> None:
    task = image_task().protect(own.BiasNoise(std=0.5))
    (stand_in,) = simulate(task).stand_ins
    assert isinstance(stand_in, Estimated)
    sizes = {name: task.params[name].numel() for name in sorted(task.params)}
    for name, variance in zip(sizes, stand_in.variance.split(list(sizes.values())), strict=True):
        if name.endswith("bias"):  # a mean of 192 squares and more: 12 of its deviations
            assert float(variance.mean()) == pytest.approx(0.25, rel=12 * (2 / 192) ** 0.5)
        else:
            assert float(variance.max()) < 0.01


def test_simulating_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    simulate(image_task().protect(own.BiasNoise()))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("part", [own.BiasNoise(), own.Dropping()])
def test_labels_behind_a_part_come_from_simulated_releases(part: Any) -> None:
    records, task = image_records(12), image_task().protect(part)
    simulation = simulate(task)
    observations = lg.observe(task, records, threat=lg.Threat(labels="inferred"))
    labels = torch.cat(labels_by_simulation(simulation.task, simulation.observed(observations)))
    assert int((labels == records.labels).sum()) >= 11


@pytest.mark.parametrize(
    "how",
    [
        own.Negated(),
        own.Shuffled(),
        own.BiasNoise(),
        own.Rotated(),
        own.Louder(),
        own.Dropping(),
        own.Salted(),
        own.NumpyRounded(),
    ],
    ids=repr,
)
def test_a_part_with_release_alone_is_attacked(how: Any) -> None:
    assert min(image_score(how)) > 0.5


def test_random_signs_hide_no_sizes() -> None:
    task, records = _small()
    task = task.protect(own.Flipping())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        reconstruction = lg.attacks.adaptive(steps=150)(task, lg.observe(task, records))
    # the middle of the box, which the search begins at, is at 11 dB
    assert float(lg.metrics.psnr(reconstruction.inputs[:, 0], records.inputs)) > 20


@pytest.mark.parametrize(
    "how",
    [
        own.Negated() | gaussian(std=1e-4),
        clip(norm=1.0) | own.Shuffled(),
        gaussian(std=1e-4) | own.Rotated(),
        own.Dropping() | gaussian(std=1e-4),
        prune(p=0.3) | own.Shuffled(),
    ],
    ids=repr,
)
@pytest.mark.slow
def test_chains_that_mix_them_with_our_own_parts_are_attacked(how: Any) -> None:
    assert min(image_score(how)) > 0.5


def test_a_chain_without_a_density_is_simulated_as_a_whole() -> None:
    simulation = simulate_whole(image_task().protect("gaussian(std=0.001) | clip(norm=1.0)"))
    assert [type(one) for one in simulation.stand_ins] == [Estimated]


@pytest.mark.parametrize(
    ("recipe", "threat"),
    [
        (lg.Recipe(batch=2), lg.Threat()),
        (lg.Recipe(shares="change", learning_rate=0.1), lg.Threat(learning_rate="unknown")),
        (lg.Recipe(shares="change", local_steps=2, learning_rate=0.1), lg.Threat()),
    ],
)
@pytest.mark.parametrize("part", [own.Shuffled() | gaussian(std=1e-5), own.BiasNoise()], ids=repr)
def test_every_recipe_and_threat(part: Any, recipe: lg.Recipe, threat: lg.Threat) -> None:
    task = image_task(recipe=recipe).protect(part)
    observations = lg.observe(task, image_records(2), threat=threat)
    with pytest.warns(AssumptionWarning, match="simulated"):
        reconstruction = lg.attacks.adaptive(steps=2)(task, observations)
    assert bool(reconstruction.inputs.isfinite().all())


@pytest.mark.parametrize("before", [random_prune(p=0.5), prune(p=0.5)])
def test_a_rounding_covers_up_what_was_pruned_before_it(before: Any) -> None:
    task = image_task().protect(before | quantise(levels=3))
    assert task.visible == frozenset({"quantise.step"})
