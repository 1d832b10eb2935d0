"""Data sets by name and by path; the bundled sample; balanced samples."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.data import Arrays, Dataset, entry_of, intact, load
from leakgauge.data.dataset import divide
from leakgauge.errors import DataError, DomainError, ExpressionError, MissingDataError
from leakgauge.types import Domain, Records


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "cache"))


# --- the bundled sample


def test_sample_is_what_its_readme_says() -> None:
    data = load("fashion_mnist_sample")
    assert data.domain == Domain("image", (1, 28, 28), 10)
    for records, n in ((data.train, 1000), (data.test, 500)):
        assert records.labels.tolist() == [i % 10 for i in range(n)]
        assert records.inputs.shape == (n, 1, 28, 28)
        assert records.inputs.dtype == torch.float32
        assert records.labels.dtype == torch.int64
        assert (float(records.inputs.min()), float(records.inputs.max())) == (0.0, 1.0)
    # 0.286 and 0.353 are the mean and deviation of the full train set
    assert float(data.train.inputs.mean()) == pytest.approx(0.286, abs=0.01)
    assert float(data.train.inputs.std()) == pytest.approx(0.353, abs=0.01)
    assert data.class_names is not None
    assert data.class_names[9] == "Ankle boot"


def test_sample_is_small_pinned_and_without_repeats() -> None:
    entry = entry_of("fashion_mnist_sample")
    assert intact(entry)
    assert sum(path.stat().st_size for path in entry.folder.iterdir()) < 1_000_000
    assert "Zalando SE" in (entry.folder / "LICENSE").read_text()
    assert "first 100 images of each class" in (entry.folder / "README.md").read_text()
    data = load("fashion_mnist_sample")
    every = torch.cat([data.train.inputs, data.test.inputs])
    assert len(torch.unique(every.flatten(1), dim=0)) == 1500


# --- balanced samples


def test_sample_is_balanced_deterministic_and_grows_at_its_end() -> None:
    data = load("fashion_mnist_sample")
    thirty = data.sample(30, seed=1)
    assert torch.bincount(thirty.labels, minlength=10).tolist() == [3] * 10
    again = load("fashion_mnist_sample").sample(30, seed=1)
    assert torch.equal(thirty.inputs, again.inputs)
    assert torch.equal(data.sample(7, seed=1).inputs, thirty.inputs[:7])
    chosen = {x.numpy().tobytes() for x in thirty.inputs}
    others = {x.numpy().tobytes() for x in data.sample(30, seed=2).inputs}
    assert len(chosen & others) < 10  # other records, not only another order of the classes
    assert len(torch.unique(data.sample(1000).inputs.flatten(1), dim=0)) == 1000


def test_sample_uses_the_split_it_is_asked_for() -> None:
    data = load("fashion_mnist_sample")
    drawn = data.sample(20, split="test").inputs
    known = {x.numpy().tobytes() for x in data.test.inputs}
    assert all(x.numpy().tobytes() in known for x in drawn)
    with pytest.raises(DataError, match="no split 'valid'"):
        data.sample(20, split="valid")  # type: ignore[arg-type]


def test_sample_passes_over_a_class_that_has_run_out() -> None:
    labels = np.array([0] * 10 + [1] * 2 + [3] * 10)
    arrays = Arrays(np.zeros((22, 1, 2, 2), np.uint8), labels)
    data = Dataset.of("uneven", arrays, arrays)
    assert torch.bincount(data.sample(12).labels).tolist() == [5, 2, 0, 5]
    assert len(data.sample(22)) == 22
    for n in (23, -1):
        with pytest.raises(DataError, match=f"asked for {n} of 22 records"):
            data.sample(n)
    for seed in (-1, 2**63):
        with pytest.raises(DomainError, match="uneven, train: seed must be"):
            data.sample(1, seed=seed)


def test_the_global_generators_are_left_alone() -> None:
    before, ours = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index] # noqa: NPY002
    load("fashion_mnist_sample").sample(10)
    assert np.array_equal(np.random.get_state()[1], before)  # type: ignore[index] # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), ours)


# --- names


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_a_missing_set_says_what_to_type(name: str) -> None:
    with pytest.raises(MissingDataError) as caught:
        load(name)
    assert caught.value.remedy == f"type: leakgauge data fetch {name}"
    assert caught.value.exit_code == 2


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(DataError, match="unknown data set 'fashion_mnsit'; did you mean 'fashion_mnist'"):
        load("fashion_mnsit")


def test_a_damaged_set_says_what_to_type(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "cifar10"
    folder.mkdir(parents=True)
    for file in entry_of("cifar10").files:
        (folder / file.name).write_bytes(b"\0" * 3073)
    (folder / "test_batch.bin").write_bytes(b"\0" * 3000)
    data = load("cifar10")
    assert data.train.inputs.shape == (5, 3, 32, 32)  # lazily: the damaged test file is not touched
    with pytest.raises(DataError, match=r"test_batch\.bin: has 3000 bytes.*; type: leakgauge data fetch cifar10"):
        _ = data.test


# --- paths


def test_npz_by_path_is_split_evenly(tmp_path: Path) -> None:
    images = np.arange(100, dtype=np.uint8).repeat(16).reshape(100, 4, 4)
    np.savez(tmp_path / "own.npz", inputs=images, labels=np.arange(100) % 4)
    data = load(tmp_path / "own.npz", split=0.2)
    assert data.name == "own"
    assert data.domain == Domain("image", (1, 4, 4), 4)
    assert torch.bincount(data.test.labels).tolist() == [5] * 4
    assert torch.bincount(data.train.labels).tolist() == [20] * 4
    both = torch.cat([data.train.inputs, data.test.inputs])[:, 0, 0, 0] * 255
    assert sorted(both.round().int().tolist()) == list(range(100))
    assert len(load(str(tmp_path / "own.npz"), split=0).test) == 0
    with pytest.raises(DataError, match="split is 1"):
        load(tmp_path / "own.npz", split=1)


@pytest.mark.parametrize(("n", "share", "test"), [(100, 0.29, 29), (7, 0.5, 3), (3, 0.2, 0), (10, 0.0, 0)])
def test_divide_takes_the_floor_of_the_share(n: int, share: float, test: int) -> None:
    arrays = Arrays(np.zeros((n, 1, 1, 1)), np.zeros(n, np.int64))
    assert [len(part) for part in divide(arrays, share, where="here")] == [n - test, test]


def test_npz_classes_and_shapes_are_checked_at_once(tmp_path: Path) -> None:
    x, y = np.zeros((4, 4, 4)), np.arange(4)
    np.savez(tmp_path / "few.npz", inputs=x, labels=y, classes=3)
    with pytest.raises(DataError, match=r"label 3 but 3 classes"):
        load(tmp_path / "few.npz")
    np.savez(tmp_path / "more.npz", inputs=x, labels=y, classes=9)
    assert load(tmp_path / "more.npz").domain.classes == 9
    np.savez(tmp_path / "two.npz", inputs=x, labels=y, test_inputs=np.zeros((4, 5, 5)), test_labels=y)
    with pytest.raises(DataError, match="records of the shapes"):
        load(tmp_path / "two.npz")


def test_folder_by_path(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(np.full((4, 3), i, np.uint8)).save(tmp_path / "pets" / name / f"{i}.png")
    data = load(tmp_path / "pets")
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.domain.shape == (1, 4, 3)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for name in ("none.npz", "none"):
        with pytest.raises(DataError, match="no such file or folder"):
            load(tmp_path / name)
    (tmp_path / "a.txt").write_text("1,2")
    with pytest.raises(DataError, match=r"neither an \.npz or \.csv file nor a folder"):
        load(tmp_path / "a.txt")


# --- the user's own code


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_records.py").write_text(
        """
import torch
from leakgauge.types import Domain, Records
records = Records(torch.rand(10, 1, 4, 4, dtype=torch.float64), torch.arange(10) % 2, Domain("image", (1, 4, 4), 3))
table = Records(torch.randn(10, 5), torch.arange(10) % 2, Domain("table", (5,), 2))
wild = Records(torch.full((2, 1, 4, 4), 7.0), torch.arange(2), Domain("image", (1, 4, 4), 2))
nan = Records(torch.full((2, 1, 4, 4), torch.nan), torch.arange(2), Domain("image", (1, 4, 4), 2))
number = 3
def make(): return records
def broken(): raise KeyError("sorry")
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_records", raising=False)


@pytest.mark.usefixtures("own_module")
def test_own_records() -> None:
    for name in ("records", "make"):
        data = load(f"own_records:{name}")
        assert (len(data.train), len(data.test)) == (8, 2)
        assert data.train.inputs.dtype == torch.float32
        assert data.domain.classes == 3
    assert load("own_records:table").train.domain.kind == "table"


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "what"),
    [("wild", "span 7..7"), ("nan", "span nan"), ("number", "returns int"), ("broken", "raised KeyError: 'sorry'")],
)
def test_own_records_with_faults(name: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        load(f"own_records:{name}")


def test_own_records_that_cannot_be_imported() -> None:
    with pytest.raises(ExpressionError, match="cannot load 'no_such_package:records'"):
        load("no_such_package:records")


def test_a_dataset_of_ones_own_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Arrays(np.zeros((2, 1, 2, 2), np.uint8), np.arange(2))
    monkeypatch.setitem(sys.modules, "own_set", type(sys)("own_set"))
    sys.modules["own_set"].data = Dataset.of("mine", arrays, arrays)  # type: ignore[attr-defined]
    assert isinstance(load("own_set:data").train, Records)


def test_moments_equal_those_of_the_tensors() -> None:
    data = load("fashion_mnist_sample")
    for split, records in (("train", data.train), ("test", data.test)):
        mean, std = data.moments(split)  # type: ignore[arg-type]
        assert mean == pytest.approx([float(records.inputs.double().mean())], rel=1e-6)
        assert std == pytest.approx([float(records.inputs.double().std(correction=0))], rel=1e-6)
    floats = Arrays(np.random.default_rng(0).random((2000, 3, 2, 2)).astype(np.float32), np.zeros(2000, np.int64))
    mean, std = floats.moments()
    assert mean == pytest.approx(floats.inputs.mean((0, 2, 3)).tolist(), rel=1e-4)
    assert std == pytest.approx(floats.inputs.std((0, 2, 3)).tolist(), rel=1e-4)
