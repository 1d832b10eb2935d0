"""A constant answer stands at the mean level under its posterior; an answer with structure stays what it is."""

from __future__ import annotations

from dataclasses import replace

import torch

from leakgauge.adversary import Adversary, adam, density
from leakgauge.adversary.levels import LEVELS
from leakgauge.observation import Observation, observe
from leakgauge.priors import tv
from leakgauge.task import Task
from leakgauge.testing import image_records, image_task

STRONG = Adversary(
    likelihood=density(), prior=1000.0 * tv(reduce="sum"), solver=adam(lr=0.1, steps=6, sign="soft"), start="grey"
)
"""Smoothness counts for so much that no step away from a flat start pays."""


def observed(std: float) -> tuple[Task, list[Observation]]:
    task = image_task().protect(f"gaussian(std={std})")
    return task, observe(task, image_records(3))


def posterior_at(level: float, task: Task, observations: list[Observation]) -> torch.Tensor:
    """The log posterior of constant records: a solver that begins there and hardly moves."""
    still = replace(STRONG, solver=adam(lr=1e-12, steps=1))
    begin = torch.full((len(observations), 1, *task.domain.shape), level)
    return still(task, observations, begin=begin).log_posterior


def test_a_constant_answer_is_at_the_mean_level_under_its_posterior() -> None:
    task, observations = observed(0.01)
    answer = STRONG(task, observations)
    assert float(answer.inputs.flatten(1).std(1).max()) == 0.0
    levels = torch.linspace(0, 1, LEVELS)
    tried = torch.stack([posterior_at(level, task, observations) for level in levels.tolist()])
    expected = (tried.double().softmax(0) * levels.unsqueeze(1)).sum(0)
    # a sum of thousands of terms in float32 is right to some hundredths of a nat, and so is every weight
    torch.testing.assert_close(answer.inputs.flatten(1)[:, 0].double(), expected, rtol=0, atol=0.05)
    assert float((expected - 0.5).abs().max()) > 0.1  # else nothing is shown
    assert answer.evaluations == 3 * (7 + LEVELS + 1)


def test_an_update_that_says_nothing_leaves_the_middle_of_the_box() -> None:
    answer = STRONG(*observed(1000.0))
    torch.testing.assert_close(answer.inputs, torch.full_like(answer.inputs, 0.5), rtol=0, atol=0.02)


def test_an_answer_with_structure_is_left_alone() -> None:
    task, observations = observed(0.001)
    weak = replace(STRONG, prior=1e-3 * tv(reduce="sum"))
    answer = weak(task, observations)
    assert float(answer.inputs.flatten(1).std(1).min()) > 0.0
    assert answer.evaluations == 3 * 7
    for one, trace in zip(answer.log_posterior, answer.traces, strict=True):
        assert float(one) == float(-trace.min())
