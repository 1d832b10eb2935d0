"""Every registered part has an example, and every example its text."""

from __future__ import annotations

import pytest

from leakgauge.expr import REGISTRY, parse
from leakgauge.testing import CHAINS, EXAMPLES, examples, has_density, repr_round_trips, with_density

ELSEWHERE = {"prior", "model"}
"""Kinds whose tables stand beside their own tests."""
TEXTS = [(kind, text) for kind, names in EXAMPLES.items() for texts in names.values() for text in texts]


def ours(kind: str) -> set[str]:
    """The registered names of one kind that are made in this package (tests register their own)."""
    return {name for name, made in REGISTRY[kind].items() if made.__module__.startswith("leakgauge.")}


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_every_registered_part_has_an_example(kind: str) -> None:
    assert ours(kind) == set(EXAMPLES[kind]), "give the part a row in leakgauge.testing.catalogue.EXAMPLES"


def test_every_kind_has_a_table() -> None:
    registered = {kind for kind in REGISTRY if ours(kind)}
    assert registered <= set(EXAMPLES) | ELSEWHERE, "give the kind a table in leakgauge.testing.catalogue.EXAMPLES"


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_examples_read_back(kind: str, text: str) -> None:
    part = parse(text, kind)
    repr_round_trips(part)
    if kind != "attack":  # a composition prints what it is made of
        assert repr(part) == text


def test_densities_are_found() -> None:
    assert {repr(part) for part, _ in with_density()} >= set(CHAINS)
    assert not has_density(parse("clip(norm=1.0)"))
    assert len(examples("defense")) == sum(map(len, EXAMPLES["defense"].values()))
