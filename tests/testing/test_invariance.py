"""A public bijection of what is sent changes no score: over the registry of defenses, clients and threats."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks import adaptive
from leakgauge.testing import BIJECTIONS, CHAINS, image_records, image_task, invariance_law, texts_of
from leakgauge.types import Threat

EARLY = ["ats()", "mixup(k=2)", "instahide(k=2)", "precode()", "lrp()", "ada_lrp()"]
DEFENSES = [*texts_of("update"), *CHAINS, *EARLY]
THREATS = [Threat(), Threat(labels="inferred")]


def table_client() -> tuple[lg.Task, lg.Records]:
    """A small network on a table whose first layer has a bias: one record is read off exactly."""
    domain = lg.Domain("table", (6,), 3)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        layers = lg.models.build("mlp(width=8, depth=1)", domain)
    generator = torch.Generator().manual_seed(2)
    return lg.Task(layers, domain), lg.Records(torch.randn(3, 6, generator=generator), torch.tensor([0, 2, 1]), domain)


def options(number: int) -> dict[str, Any]:
    """The client and the threat of a pair: each combination in turn."""
    if number % 3 == 2:
        task, records = table_client()
        return {"task": task, "records": records, "threat": THREATS[number % 2], "attack": adaptive(steps=10)}
    return {"task": image_task(), "records": image_records(3), "threat": THREATS[number % 2]}


PAIRS = [(text, name) for text in DEFENSES for name in BIJECTIONS]
FEW = [
    ("identity()", "sign and scale"),
    ("prune(p=0.6)", "permutation"),
    ("clip(norm=1.0) | gaussian(std=0.3)", "dtype"),
]


def chosen(text: str, name: str) -> dict[str, Any]:
    """The options of a pair; some defenses need a layer of the image network, or images."""
    number = PAIRS.index((text, name))
    on_images = "soteria" in text or text in EARLY[:3]
    return options(3 * number + number % 2 if on_images else number)


def holds(text: str, name: str) -> lg.metrics.Interval:
    return invariance_law(text, BIJECTIONS[name], **chosen(text, name))


@pytest.mark.parametrize(("text", "name"), FEW)
def test_a_public_bijection_changes_no_score(text: str, name: str) -> None:
    holds(text, name)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name"), [pair for pair in PAIRS if pair not in FEW])
def test_no_defense_gains_from_a_public_bijection(text: str, name: str) -> None:
    holds(text, name)


def test_an_attack_that_is_fooled_by_a_sign_breaks_the_law() -> None:
    blind = adaptive(steps=40).adversary("identity()")  # it matches updates whatever was done to them
    with pytest.raises(AssertionError, match="changes the score"):
        invariance_law("identity()", BIJECTIONS["sign and scale"], attack=blind, records=image_records(6))
