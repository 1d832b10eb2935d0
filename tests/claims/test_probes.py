"""The faults themselves, in the installed packages: found where they are, and gone where they are mended."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.claims import examine_expression, examine_folder
from leakgauge.claims.probes import Outcome, flower, nvflare, opacus, secagg
from tests.claims.apps import FAULTY, SERVER, write_app


def needs(package: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(package, reason=f"needs leakgauge[{'flower' if package == 'flwr' else package}]")


def fresh(probe: Callable[..., Outcome], *settings: Any) -> Outcome:
    probe.cache_clear()  # type: ignore[attr-defined]
    outcome = probe(*settings)
    probe.cache_clear()  # type: ignore[attr-defined]
    return outcome


def test_a_package_that_is_not_installed_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakgauge.claims.probes.installed", lambda package: False)
    outcome = fresh(flower.adaptive_direction)
    assert outcome.faulty is None
    assert outcome.note == "flwr is not installed, not probed"


def test_a_package_with_another_interface_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("flwr")
    import flwr.clientapp.mod

    monkeypatch.delattr(flwr.clientapp.mod, "LocalDpMod")
    outcome = fresh(flower.global_noise)
    assert outcome.faulty is None
    assert "cannot be probed (AttributeError" in outcome.note


def test_probes_leave_the_global_generator_alone() -> None:
    needs("flwr")
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    fresh(flower.global_noise)
    assert np.random.random() == expected  # noqa: NPY002


# --- Flower


def test_local_noise_is_that_of_the_classical_formula() -> None:
    needs("flwr")
    outcome = flower.local_noise(1.0, 1e-4, 10.0, 1e-5)
    assert outcome.faulty
    assert outcome.numbers["std"] == pytest.approx(1e-4 * math.sqrt(2 * math.log(1.25e5)) / 10)


def test_a_mended_sensitivity_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("flwr")
    from flwr.clientapp.mod import localdp_mod

    def enough(arrays: list[Any], std: float) -> None:
        for array in arrays:
            array += np.random.normal(0, 6.0, array.shape)  # noqa: NPY002 - sensitivity C at ε = 1, whatever is stated

    monkeypatch.setattr(localdp_mod, "add_gaussian_noise_inplace", enough)
    outcome = fresh(flower.local_noise, 1.0, 1e-4, 1.0, 1e-5)
    assert not outcome.faulty
    assert outcome.numbers["std"] == pytest.approx(6.0, rel=0.05)


def test_a_sensitivity_of_zero_adds_no_noise_at_all() -> None:
    """What rounding leaves of equal entries is no noise; the finding says that there is no ε."""
    needs("flwr")
    assert fresh(flower.local_noise, 1.0, 0.0, 10.0, 1e-5).numbers["std"] == 0
    claims = examine_expression("LocalDpMod(clipping_norm=1.0, sensitivity=0.0, epsilon=10.0, delta=1e-5)")
    (finding,) = [f for one in claims.settings for f in one.findings if f.rule == "sensitivity"]
    assert finding.level == "broken"
    assert math.isinf(finding.numbers["mu"])


@pytest.mark.parametrize("name", ["LocalDpMod", "fixedclipping_mod", "adaptiveclipping_mod"])
def test_scalars_pass_the_mods_untouched(name: str) -> None:
    needs("flwr")
    outcome = flower.scalars_at_client(name)
    assert outcome.faulty
    assert outcome.numbers["sent"] == 50.0
    assert outcome.numbers["norm"] > 50


def test_scalars_are_not_clipped_at_the_server() -> None:
    needs("flwr")
    assert flower.scalars_at_server().numbers["factor"] == pytest.approx(50)


def test_mended_scalars_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("flwr")
    from flwr.supercore import differential_privacy as dp

    def clip(arrays: list[Any], norm: float) -> None:
        factor = min(1.0, norm / dp.get_norm(arrays))
        arrays[:] = [np.asarray(array * factor) for array in arrays]

    monkeypatch.setattr(dp, "clip_inputs_inplace", clip)
    assert fresh(flower.scalars_at_client, "LocalDpMod").faulty is False
    assert fresh(flower.scalars_at_server).faulty is False


def test_adaptive_clipping_moves_the_wrong_way_and_a_mended_one_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("flwr")
    outcome = flower.adaptive_direction()
    assert outcome.faulty
    assert outcome.numbers["from 0.1"] == pytest.approx(0.1 * math.exp(-3.0), rel=1e-6)
    assert outcome.numbers["from 10"] == pytest.approx(10 * math.exp(3.0), rel=1e-6)
    from flwr.serverapp.strategy.dp_adaptive_clipping import DifferentialPrivacyAdaptiveBase as Base

    def update(self: Any, clipped: float) -> None:
        self.clipping_norm *= math.exp(self.clip_norm_lr * (clipped - self.target_clipped_quantile))

    monkeypatch.setattr(Base, "_geometric_update", update)
    mended = fresh(flower.adaptive_direction)
    assert mended.faulty is False
    assert 0.3 < mended.numbers["from 0.1"] < 3


def test_one_heavy_client_moves_the_mean_beyond_the_noise() -> None:
    needs("flwr")
    assert flower.weighted_noise().numbers["factor"] == pytest.approx(10 * 1000 / 1009, rel=1e-6)


def test_a_seed_decides_the_noise() -> None:
    needs("flwr")
    assert flower.global_noise().faulty


@pytest.mark.parametrize("name", ["LocalDpMod", "fixedclipping_mod", "adaptiveclipping_mod"])
def test_mods_of_the_whole_app_break_evaluation(name: str) -> None:
    needs("flwr")
    assert flower.evaluation(name).faulty


def test_masks_have_28_bits() -> None:
    needs("flwr")
    assert secagg.mask_bits().numbers == {"bits": 28.0}


def test_counts_leave_beside_the_masked_vector() -> None:
    needs("flwr")
    assert secagg.counts_in_clear().numbers["sent"] == secagg.EXAMPLES


def test_every_fault_of_an_app_is_found(tmp_path: Path) -> None:
    needs("flwr")
    server = SERVER.format(wrapper="DifferentialPrivacyServerSideAdaptiveClipping", arguments="10")
    claims = examine_folder(write_app(tmp_path, FAULTY, server=server, rounds=3))
    assert {finding.rule for finding in claims.of("broken")} == {
        "sensitivity", "formula", "composition", "scalars", "generator", "evaluation", "weights", "adaptive clipping",
    }  # fmt: skip
    assert not claims.of("not probed")
    assert not examine_expression("secaggplus_mod()").hold


# --- NVFlare


def test_percentile_privacy_sends_raw_data_on_bad_parameters() -> None:
    needs("nvflare")
    assert nvflare.percentile_raw(10, -1.0).faulty
    assert nvflare.percentile_raw(101, 0.01).faulty
    assert nvflare.percentile_raw(10, 0.01).faulty is False
    assert not examine_expression("PercentilePrivacy(gamma=-1.0)").hold
    assert examine_expression("PercentilePrivacy()").hold


@pytest.mark.parametrize("name", ["PercentilePrivacy", "SVTPrivacy"])
def test_scalars_pass_the_filters_untouched(name: str) -> None:
    needs("nvflare")
    assert nvflare.scalars(name).numbers["sent"] == 50.0


def test_every_value_that_svt_sends_costs_noise_var() -> None:
    needs("nvflare")
    assert nvflare.svt_release(0.1, 1e-5).numbers["per value"] == 0.1
    assert nvflare.svt_release(0.7, 1.0).numbers["per value"] == 0.7


def test_exclusion_by_a_wrong_type_excludes_nothing() -> None:
    needs("nvflare")
    assert nvflare.excluded(7).faulty
    assert nvflare.excluded(("a",)).faulty is False


# --- Opacus


def test_a_seed_decides_opacus_noise() -> None:
    needs("opacus")
    assert opacus.seeded_noise().faulty


def test_the_accountant_counts_on_sampling_that_is_off() -> None:
    needs("opacus")
    outcome = opacus.sampling_counted()
    assert outcome.faulty
    assert outcome.numbers["rate"] == pytest.approx(0.1)
    text = "make_private(noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)"
    assert not examine_expression(text).hold
