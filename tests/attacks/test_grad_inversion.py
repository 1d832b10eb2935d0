"""GradInversion: what seeds agree on, and the attack as a whole."""

from __future__ import annotations

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks import grad_inversion
from leakgauge.attacks.consensus import Toward, consensus, pairing, registered
from leakgauge.attacks.grad_inversion import NO_NORMS
from leakgauge.errors import DataError, DomainError
from leakgauge.expr import parse
from leakgauge.testing import small_records, small_task
from leakgauge.types import Candidate


def test_a_shifted_image_is_moved_back() -> None:
    image = torch.zeros(1, 24, 24)
    image[0, 8:15, 9:13] = torch.rand(7, 4, generator=torch.Generator().manual_seed(0)) + 0.5
    for shift in ((0, 0), (2, -1), (-3, 3)):
        torch.testing.assert_close(registered(image.roll(shift, (1, 2)), image), image)


def test_rows_are_paired_by_label_then_by_likeness() -> None:
    generator = torch.Generator().manual_seed(0)
    batch, labels = torch.rand(4, 1, 8, 8, generator=generator), torch.tensor([1, 1, 2, 0])
    order = torch.tensor([3, 1, 0, 2])
    torch.testing.assert_close(order[pairing(batch, batch[order], labels, labels[order])], torch.arange(4))
    # a label decides, however near another row is
    assert pairing(batch[[2, 3]], batch[[3, 2]], labels[[2, 3]], labels[[2, 3]]).tolist() == [0, 1]


def test_seeds_agree_on_the_mean_of_their_registered_images() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.zeros(3, 1, 24, 24)
    truth[:, :, 8:16, 8:16] = torch.rand(3, 1, 8, 8, generator=generator) + 0.5
    labels = torch.tensor([0, 0, 1])
    order = torch.tensor([1, 0, 2])
    seeds = torch.stack([truth, truth[order].roll(1, -1), truth])
    agreed = consensus(seeds, torch.stack([labels, labels[order], labels]), torch.tensor([0.0, -1.0, -2.0]))
    torch.testing.assert_close(agreed[0], truth)
    torch.testing.assert_close(agreed[1], truth[order])


def test_the_group_prior_knows_the_observation_of_each_problem() -> None:
    targets = torch.stack([torch.zeros(2, 1, 3, 3), torch.ones(2, 1, 3, 3)])
    prior = Toward(targets.numpy())
    inputs = torch.full((3, 2, 1, 3, 3), 0.5)
    inputs[2] = 1.0
    value = prior(Candidate(inputs, torch.zeros(3, 2), places=torch.tensor([0, 1, 1])))
    torch.testing.assert_close(value, torch.tensor([-0.25, -0.25, 0.0]))
    with pytest.raises(DataError, match="which observation"):
        prior(Candidate(inputs, torch.zeros(3, 2)))


def test_it_runs_on_any_image_model_and_says_what_it_left_out() -> None:
    task, records = small_task(), small_records(2)
    attack = grad_inversion(steps=40, seeds=3, meetings=2, statistics_weight=1.0)
    result = attack(task, lg.observe(task, records))
    assert result.notes == (NO_NORMS,)
    assert result.inputs.shape == (2, 1, *task.domain.shape)
    start = grad_inversion(steps=1, seeds=1, meetings=0)(task, lg.observe(task, records))
    assert bool((result.log_posterior > start.log_posterior).all())
    again = attack(task, lg.observe(task, records))
    torch.testing.assert_close(again.inputs, result.inputs)


def test_its_expression_and_its_arguments() -> None:
    attack = grad_inversion(steps=10, seeds=2)
    assert parse(repr(attack), "attack", where="test") == attack
    assert sum(stage.solver.steps for stage in grad_inversion(steps=7, meetings=2).stages(statistics=True)) == 7
    assert len(grad_inversion(steps=2, meetings=5).stages(statistics=False)) == 2
    with pytest.raises(DomainError, match="seeds"):
        grad_inversion(seeds=0)


def test_settings_that_cannot_work_are_named_together() -> None:
    with pytest.raises(DomainError, match=r"steps must be .*noise must lie .*rule must be one of"):
        grad_inversion(steps=0, noise=-1.0, rule="first")  # type: ignore[arg-type]
