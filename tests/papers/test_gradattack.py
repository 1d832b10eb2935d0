"""The price of one image: Table 3 to the cent, and what it is made of."""

from __future__ import annotations

import pytest

from leakgauge.errors import DomainError
from leakgauge.papers.gradattack import trade_off
from leakgauge.papers.gradattack.attacking import DEFENSES
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


def test_the_plot_has_every_defense_of_the_paper_and_of_ours_those_of_both_halves() -> None:
    printed = trade_off.printed()
    assert sum(map(len, printed.values())) == len(DEFENSES)
    assert printed["paper, pruning"][0] == (93.37, 0.45)
    utility = [
        {"name": "ConvNet, accuracy, none", "value": 60.0},
        {"name": "ConvNet, accuracy, MixUp 4", "value": 50.0},
    ]
    attacked = [{"name": "ConvNet, strongest, B = 16, none: LPIPS", "value": 0.2}]
    attacked += [{"name": "ConvNet, strongest, B = 16, MixUp 4: LPIPS", "value": None}]
    assert trade_off.ours(utility, attacked) == {"ours, small network, pruning": [(60.0, 0.2)]}
