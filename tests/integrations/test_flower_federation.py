"""The example on a real SuperLink with two SuperNodes, loopback only; all that is started is stopped by its id."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from evidence.checks.flower import EXAMPLE, Way, federated


@pytest.mark.slow
@pytest.mark.parametrize("way", ["app", "node"])
def test_a_real_federation_is_captured_and_its_records_recovered(way: Way, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("flwr.app", reason="needs leakgauge[flower]")
    one = federated(way, tmp_path)
    assert one.captured == 2
    assert one.equal == 2
    assert min(one.psnr) > 20


def test_the_examples_client_differs_from_a_stock_one_in_two_lines() -> None:
    lines = (EXAMPLE / "clinic" / "client_app.py").read_text().splitlines()
    assert len([line for line in lines if "leakgauge" in line or "Capture(" in line]) == 2
