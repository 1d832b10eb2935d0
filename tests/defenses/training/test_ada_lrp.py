"""ada-LRP: larger random rates for clients with more classes, and no rate that is none."""

from __future__ import annotations

import math

import pytest
import torch

from leakgauge.defenses import ada_lrp, lrp
from leakgauge.errors import DomainError


def test_the_factor_grows_with_the_classes_and_is_one_on_average() -> None:
    """K = ζ (|Y_k| − mean |Y|) + β, eq. 13; β = 1 keeps the mean of all clients' expected rates."""
    counts = (1, 2, 4, 9)
    parts = [ada_lrp(zeta=0.1, share=2.0).of_client(classes, 4.0) for classes in counts]
    assert [part.factor for part in parts] == pytest.approx([0.7, 0.8, 1.0, 1.5])
    assert sum(part.law.mean for part in parts) / 4 == pytest.approx(2.0)
    assert parts[0].law.support == pytest.approx((0.0, 2 * 0.7 * 2.0))
    assert ada_lrp(zeta=0.1).law == lrp().law


def test_the_scale_of_every_step_follows_its_law() -> None:
    part = ada_lrp(zeta=0.25).of_client(6, 4.0)
    scales = part.draw(4000, generator=torch.Generator().manual_seed(0))["scale"]
    assert 0 < float(scales.min()) < float(scales.max()) <= 3.0
    assert abs(float(scales.mean()) - 1.5) < 4 * 3 / math.sqrt(12 * 4000)
    rates = part.rates(torch.full((2, 4000), 0.1), {"scale": scales})
    torch.testing.assert_close(rates[1], 0.1 * scales)


def test_a_factor_that_is_no_rate_is_refused_with_the_largest_zeta() -> None:
    with pytest.raises(DomainError, match=r"a client with 1 classes, of 7 on average.*factor 0.*give zeta below 0.167"):
        ada_lrp(zeta=1 / 6).of_client(1, 7.0)
    assert ada_lrp(zeta=0.166).of_client(1, 7.0).factor > 0
    with pytest.raises(DomainError, match="give classes and mean_classes, or neither"):
        ada_lrp(classes=3)
    with pytest.raises(DomainError, match=r"beta must lie in \(0, ∞\)"):
        ada_lrp(beta=0.0)
