"""MSE, PSNR and SSIM: hand values, scikit-image as the oracle, and what is not a picture."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity
from torch import Tensor

from leakgauge.errors import DomainError
from leakgauge.metrics import (
    distance,
    feature_errors,
    label_accuracy,
    lpips,
    match,
    ms_ssim,
    mse,
    non_finite,
    psnr,
    ssim,
)
from leakgauge.testing import small_records


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 11, 11), (1, 11, 40), (2, 30, 17)])
@pytest.mark.parametrize("noise", [1e-4, 0.1, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_scikit_image(shape: tuple[int, ...], noise: float, dtype: torch.dtype) -> None:
    truth = draw(*shape)
    reconstruction = (truth + noise * (draw(*shape, seed=1) - 0.5)).clamp(0, 1).to(dtype)
    truth = truth.to(dtype)
    x, y = reconstruction.double().numpy(), truth.double().numpy()
    assert mse(reconstruction, truth).item() == pytest.approx(mean_squared_error(y, x), rel=1e-9)
    assert psnr(reconstruction, truth).item() == pytest.approx(peak_signal_noise_ratio(y, x, data_range=1), abs=1e-6)
    oracle = structural_similarity(
        y, x, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, channel_axis=0
    )
    assert ssim(reconstruction, truth).item() == pytest.approx(oracle, abs=1e-5)


def test_smooth_images_equal_scikit_image() -> None:
    # variances near zero: where ssim is decided by its constants and by cancellation
    ramp = torch.linspace(0, 1, 24, dtype=torch.float64).expand(1, 24, 24)
    other = (0.9 * ramp + 0.02).mT
    oracle = structural_similarity(
        ramp[0].numpy(),
        other[0].numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1,
    )
    assert ssim(other, ramp).item() == pytest.approx(oracle, abs=1e-8)


def test_hand_values() -> None:
    black, white, grey = (torch.full((1, 16, 16), v) for v in (0.0, 1.0, 0.5))
    assert mse(white, black).item() == 1.0
    assert psnr(white, black).item() == 0.0
    assert psnr(grey, black).item() == pytest.approx(20 * math.log10(2))
    assert ssim(white, black).item() == pytest.approx(1e-4 / (1 + 1e-4))
    assert ssim(grey, grey).item() == pytest.approx(1.0)


def test_each_image_alone() -> None:
    truth, reconstruction = draw(2, 4, 3, 16, 16), draw(2, 4, 3, 16, 16, seed=1)
    for metric in (mse, psnr, ssim):
        together = metric(reconstruction, truth)
        assert together.shape == (2, 4)
        alone = metric(reconstruction[1, 2], truth[1, 2])
        assert alone.shape == ()
        # an SSIM of noise is near zero: moments of 121 pixels (121 eps = 3e-14) over variances of about 1/12
        torch.testing.assert_close(together[1, 2], alone, rtol=1e-12, atol=1e-12)


def test_reconstructions_are_clipped() -> None:
    truth = torch.tensor([0.0, 1.0, 0.25, 0.75]).view(1, 2, 2)
    assert mse(torch.tensor([-3.0, 7.0, 0.25, 0.75]).view(1, 2, 2), truth).item() == 0.0


@pytest.mark.parametrize(("size", "decibels"), [(1e-8, 160), (1e-16, 320), (1e-200, 4000)])
def test_psnr_measures_exact_recoveries(size: float, decibels: float) -> None:
    truth = torch.zeros(1, 8, 8, dtype=torch.float64)
    assert psnr(truth + size, truth).item() == pytest.approx(decibels, abs=1e-6)
    assert psnr(truth, truth).item() == math.inf


def test_psnr_keeps_the_precision_of_the_given_dtype() -> None:
    truth = draw(1, 8, 8)
    rounded = psnr(truth.float(), truth).item()
    assert 150 < rounded < 170  # float32 rounding of numbers in [0, 1]
    assert psnr(truth.float(), truth.float()).item() == math.inf


@given(st.floats(0, 1), st.floats(0, 1))
def test_psnr_is_infinite_only_for_identical_images(a: float, b: float) -> None:
    x, y = (torch.full((1, 2, 2), v, dtype=torch.float64) for v in (a, b))
    assert math.isinf(psnr(x, y).item()) == (a == b)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_reconstruction_scores_as_grey(bad: float) -> None:
    truth, reconstruction = draw(3, 1, 16, 16), draw(3, 1, 16, 16, seed=1)
    reconstruction[1] = bad
    grey = torch.full((1, 16, 16), 0.5, dtype=torch.float64)
    for metric in (mse, psnr, ssim):
        scores = metric(reconstruction, truth)
        assert scores.isfinite().all()
        torch.testing.assert_close(scores[1], metric(grey, truth[1]))
    assert non_finite(reconstruction).tolist() == [False, True, False]
    assert distance(reconstruction, truth).isinf().tolist() == [False, True, False]


def test_one_bad_pixel_does_not_hide_the_rest() -> None:
    truth = draw(1, 16, 16)
    reconstruction = truth.clone()
    reconstruction[0, 3, 3] = math.nan
    assert mse(reconstruction, truth).item() == pytest.approx((truth[0, 3, 3].item() - 0.5) ** 2 / 256)
    assert non_finite(reconstruction).item()


def test_metrics_leave_their_inputs_alone() -> None:
    truth = draw(1, 16, 16)
    reconstruction = (draw(1, 16, 16, seed=1) * 3 - 1).requires_grad_()
    before = reconstruction.detach().clone()
    for metric in (mse, psnr, ssim, distance):
        assert not metric(reconstruction, truth).requires_grad
    assert torch.equal(before, reconstruction)


def test_distance() -> None:
    assert distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]), axes=1).tolist() == [5.0]
    x, y = draw(4, 1, 5, 5) * 9, draw(4, 1, 5, 5, seed=1) * 9
    np.testing.assert_allclose(distance(x, y), np.linalg.norm((x - y).flatten(1), axis=1))


@pytest.mark.parametrize("metric", [mse, psnr, ssim])
def test_what_cannot_be_compared(metric: object) -> None:
    good = torch.rand(2, 1, 16, 16)
    cases = [
        (good[:1], good, "differ in shape"),
        (good.mean(0), good, "differ in shape"),
        (good, good * 3 - 1, r"must lie in \[0, 1\].*de-normalise"),
        (good, good * math.nan, r"must lie in \[0, 1\]"),
        (good, (good * 255).byte(), "divide bytes by 255"),
        ((good * 255).byte(), good, "divide bytes by 255"),
        (good[0, 0], good[0, 0], r"images are \[..., C, H, W\]"),
    ]
    for reconstruction, truth, message in cases:
        with pytest.raises(DomainError, match=message):
            metric(reconstruction, truth)


def test_small_images_have_no_ssim() -> None:
    with pytest.raises(DomainError, match=r"at least 11 x 11 pixels, got \(10, 28\).*use psnr"):
        ssim(torch.zeros(1, 10, 28), torch.zeros(1, 10, 28))


@pytest.mark.parametrize("metric", [mse, psnr, ssim, distance, ms_ssim, lpips, match, feature_errors])
def test_records_and_arrays_are_no_tensors(metric: Callable[[Any, Any], Any]) -> None:
    records = small_records(2)
    with pytest.raises(DomainError, match=f"{metric.__name__}: it compares tensors, got a Records; give its .inputs"):
        metric(records, records.inputs)
    with pytest.raises(DomainError, match=r"got a ndarray; give tensors, for instance torch.as_tensor\(array\)"):
        metric(records.inputs, records.inputs.numpy())
    with pytest.raises(DomainError, match=r"label_accuracy: it compares tensors, got a Records; give its .labels"):
        label_accuracy(records, records)  # type: ignore[arg-type]


def test_a_network_that_lpips_does_not_have() -> None:
    pictures = torch.rand(1, 3, 32, 32)
    with pytest.raises(DomainError, match="lpips: net must be one of alex, vgg, got 'squeeze'"):
        lpips(pictures, pictures, net="squeeze")  # type: ignore[arg-type]
