"""Learned priors of a study: they must draw such records, and must not have been trained on those that are reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial

import torch

from leakgauge.adversary import Attack
from leakgauge.priors import Generated, Learned, Patches
from leakgauge.study.attempts import attempt, problems_of
from leakgauge.study.sections import Problem
from leakgauge.types import Records


def problems_of_priors(adversaries: Mapping[str, tuple[Attack, ...]], reported: Records, file: str) -> list[Problem]:
    """What is wrong with the learned priors of a study, adversary by adversary."""
    problems: list[Problem] = []
    for name, settings in adversaries.items():
        key = f"adversaries.{name}"
        for prior in dict.fromkeys(one for attack in settings for one in learned_in(attack)):
            if isinstance(prior, Generated):
                tried = attempt(partial(prior.decoder, torch.zeros(()), reported.domain.shape))
                problems += problems_of(tried, file, key)
            known = prior.trained_on(reported.inputs) if isinstance(prior, Learned | Patches) else 0
            if known:
                what = f"{prior!r} was trained on {known} of the {len(reported)} reported records"
                problems.append(Problem(file, key, what, "train the prior on other records"))
    return problems


def any_learned(attack: Attack) -> bool:
    """Whether an attack has a learned prior."""
    return any(True for _ in learned_in(attack))


def learned_in(part: object) -> Iterator[Generated | Patches]:
    """The learned priors inside an attack, wherever they stand."""
    if isinstance(part, Generated | Patches):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from learned_in(one)
    elif is_dataclass(part) and not isinstance(part, type):
        for each in fields(part):
            yield from learned_in(getattr(part, each.name))
