"""The price of one image: Table 3 to the cent, and what it is made of."""

from __future__ import annotations

import pytest

from leakgauge.errors import DomainError
from leakgauge.papers.gradattack.table_3 import TABLE_3, Costs


def test_table_3_to_the_cent() -> None:
    assert round(Costs().plain().total, 2) == TABLE_3["no defense"] == TABLE_3["pruning"]
    for records in (5_000, 50_000, 500_000):
        assert round(Costs().mixed(records).total, 2) == TABLE_3[records]


def test_the_parts_of_the_price_scale_as_they_say() -> None:
    one, ten = Costs().mixed(5_000), Costs().mixed(50_000)
    assert ten.inverting == pytest.approx(10 * one.inverting)
    assert ten.similarity == one.similarity
    assert ten.solving == pytest.approx(100 * one.solving)
    assert Costs(attack=0.5).mixed(5_000).inverting == 2 * one.inverting


def test_numbers_outside_their_domain_are_refused() -> None:
    with pytest.raises(DomainError, match=r"Costs: attack must lie in \(0, ∞\)"):
        Costs(attack=0.0)
    with pytest.raises(DomainError, match=r"Costs.mixed: records must be an integer ≥ 1"):
        Costs().mixed(0)
