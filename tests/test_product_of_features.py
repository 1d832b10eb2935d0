"""The product of features: every combination audits, or ``check`` refuses it with a sentence; none loses a grant.

Parts alone and in a chain, granted and hidden, a gradient and a change after one and three steps, images and tables,
labels known, inferred and joint, one and two rounds. Attacks take two steps: the seam is tested, not scores.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.study import Problem, SpecError
from leakgauge.types import Domain, Records

ALONE = {
    "random_prune(p=0.3)": "mask",
    "prune(p=0.5)": "threshold",
    "topk(keep=0.5)": "threshold",
    "quantise(levels=4)": "step",
    "soteria(layer='2', p=0.5)": "mask",
    "lrp()": "scale",
    "precode(k=4)": "noise",
    "mixup(k=2)": "indices",
    "instahide(k=2)": "coefficients",
    "ats(policy='7-4-15')": "choice",
}
CHAINED = " | clip(norm=1.0) | gaussian(std=0.001)"
SHARES = {"gradient": ("gradient", 1), "change": ("change", 1), "change after 3 steps": ("change", 3)}
DOMAINS = {"image": Domain("image", (1, 8, 8), 3), "table": Domain("table", (12,), 3)}
PRODUCT = list(
    itertools.product(
        ALONE, ("alone", "in a chain"), ("granted", "hidden"), SHARES, DOMAINS, ("known", "inferred", "joint"), (1, 2)
    )
)


def combinations(every: int) -> list[Any]:
    """Every n-th combination, so that every feature is there; the slow test takes them all."""
    return PRODUCT[::every]


def records(domain: Domain, count: int) -> Records:
    generator = torch.Generator().manual_seed(5)
    return Records(torch.rand(count, *domain.shape, generator=generator), torch.arange(count) % domain.classes, domain)


def model(domain: Domain) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(domain.size, 10), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))


def audited(part: str, place: str, known: str, shares: str, kind: str, labels: str, rounds: int) -> str:
    """What became of a combination: refused by a sentence, or audited without a fault."""
    domain, (sends, steps) = DOMAINS[kind], SHARES[shares]
    defense = part if place == "alone" else part + CHAINED
    address = f"{part.partition('(')[0]}.{ALONE[part]}"
    problems: list[Problem] = []
    try:
        study = lg.Study(
            model(domain),
            records(domain, 60),
            defenses={"defense": defense},
            adversaries={
                "generic": lg.attacks.inverting_gradients(steps=2),
                "adaptive": lg.attacks.adaptive(steps=2),
            },
            recipe=lg.Recipe(shares=sends, local_steps=steps),  # type: ignore[arg-type]
            threat=lg.Threat(grants=frozenset({address} if known == "granted" else ()), labels=labels),  # type: ignore[arg-type]
            updates=7,
            rounds=rounds,
            verdict={"significance": 0.5},
        )
    except SpecError as refused:
        problems = list(refused.problems)
    if problems:
        assert all(problem.what and problem.remedy for problem in problems)
        return "refused"
    result = lg.audit(study)
    assert not result.faults, result.faults
    (checkpoint,) = result.checkpoints
    (found,) = checkpoint.defenses
    assert found.attack.verdict in {"exact", "recognisable", "detectable", "no evidence", "too weak"}
    for adversary in found.adversaries:
        treated = {one.address: one.how for one in adversary.treatments}
        assert address in treated, "every nuisance is treated, and the result says how"
        assert (treated[address] == "granted") == (known == "granted"), "no grant is dropped, none is invented"
        assert (treated["recipe.labels"] == "granted") == (labels == "known")
    return "audited"


@pytest.mark.parametrize(("part", "place", "known", "shares", "kind", "labels", "rounds"), combinations(89))
def test_every_combination_audits_or_is_refused(
    part: str, place: str, known: str, shares: str, kind: str, labels: str, rounds: int
) -> None:
    audited(part, place, known, shares, kind, labels, rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "place", "known", "shares", "kind", "labels", "rounds"), PRODUCT)
def test_all_combinations_audit_or_are_refused(
    part: str, place: str, known: str, shares: str, kind: str, labels: str, rounds: int
) -> None:
    audited(part, place, known, shares, kind, labels, rounds)


def test_the_few_that_are_tried_every_time_hold_every_feature() -> None:
    for position, values in enumerate(zip(*combinations(89), strict=True)):
        assert set(values) == {one[position] for one in PRODUCT}
