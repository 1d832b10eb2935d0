"""Tables: from CSV, from .npz and from scikit-learn; what is refused, with line and column."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge import metrics
from leakgauge.cli.data import features as shown_features
from leakgauge.data import load, read_csv, read_npz
from leakgauge.errors import DataError, MissingExtraError
from leakgauge.types import Domain, Feature

CSV = """age,job,label,height
31,nurse,yes,1.5
40,clerk,no,1.5
25,"pilot, retired",yes,1.5
61,nurse,no,1.5
"""


def write(folder: Path, text: str, name: str = "people.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# --- CSV


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_by_hand(tmp_path: Path, separator: str) -> None:
    text = CSV.replace("pilot, retired", "pilot").replace(",", separator)
    table = read_csv(write(tmp_path, "\ufeff" + text.replace("\n", "\r\n")))
    assert table.class_names == ("no", "yes")
    assert table.arrays.labels.tolist() == [1, 0, 1, 0]
    assert table.features == (Feature("age"), Feature("job", ("clerk", "nurse", "pilot")), Feature("height"))
    assert table.arrays.inputs.tolist() == [
        [31, 0, 1, 0, 1.5],
        [40, 1, 0, 0, 1.5],
        [25, 0, 0, 1, 1.5],
        [61, 0, 1, 0, 1.5],
    ]


def test_numbers_are_standardised_by_the_train_records(tmp_path: Path) -> None:
    rows = [f"{i}, {'ab'[i % 3 == 0]},7, {i % 2}" for i in range(40)]
    data = load(write(tmp_path, "\n".join(["size,kind,constant,target", *rows])), split=0.25)
    assert (len(data.train), len(data.test)) == (30, 10)
    assert data.name == "people"
    assert data.class_names == ("0", "1")
    assert data.train.inputs.dtype == torch.float32
    size = data.train.inputs[:, 0].double()
    assert abs(size.mean().item()) < 1e-6
    assert size.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    feature, kind, constant = data.domain.features
    assert kind.categories == ("a", "b")
    assert (constant.spread, constant.varies) == (0.0, False)
    raw = torch.cat([data.train.inputs, data.test.inputs])[:, 0].double() * feature.unit + feature.offset
    assert sorted(raw.round().tolist()) == list(range(40))
    rows = {metrics.readable(row, data.domain.features) for row in data.test.inputs}
    assert rows <= {(str(i), "ab"[i % 3 == 0], "7") for i in range(40)}
    assert metrics.of(data.domain).judge.meaning.name == "feature_share"
    assert [row[0] for row in shown_features(data.domain)] == ["size", "kind", "constant"]


@pytest.mark.parametrize(("name", "expected"), [("Label", [0, 1]), ("target", [0, 1]), ("other", [1, 0])])
def test_the_label_is_named_or_last(tmp_path: Path, name: str, expected: list[int]) -> None:
    table = read_csv(write(tmp_path, f"{name},kind\n3,9\n7,4\n"))
    assert table.arrays.labels.tolist() == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (CSV.replace("40,clerk", ",clerk"), "line 3, column 'age': is missing"),
        (CSV.replace("nurse,no", "?,no"), "line 5, column 'job': is missing"),
        (CSV.replace("40,clerk,no", "40,clerk,NA"), "line 3, column 'label': is missing"),
        (CSV.replace("40", "4o"), "line 3, column 'age': is '4o', most others are finite numbers"),
        (CSV.replace("40", "inf"), "line 3, column 'age': is 'inf'"),
        (CSV.replace("40", "1_0"), "line 3, column 'age': is '1_0'"),
        (CSV.replace("40,clerk,", "40,"), "line 3: has 3 cells, the first line names 4 columns"),
        (CSV.replace("40,clerk,", "40,clerk,5,"), "line 3: has 5 cells"),
        (CSV.replace("age,job", "age,age"), "line 1: two columns are named 'age'"),
        (CSV.replace("age,job", "age,"), "line 1: column 2 has no name"),
        (CSV.replace("age,job", "3,4"), "line 1: contains numbers, not names"),
        (CSV.replace("age,job,label,height", "a,b,c,d"), "line 2, column 'd': is '1.5', not a class"),
        (CSV.split("\n")[0], "contains no records"),
        ("", "contains no records"),
        ("label\n1\n", "names 1 columns"),
        ('a,b\n"1,2\n', "cannot be read"),
        ("a,b\n" + "x" * 200_000 + ",1\n", "line 2: cannot be read"),
        ("a,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(300)), "column 'a': has 300 different texts"),
        ("a,label\n" + "".join(f"{i},{i}\n" for i in range(300)), "column 'label': has 300 classes"),
    ],
)
def test_csv_faults_name_line_and_column(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(DataError, match=what) as caught:
        read_csv(write(tmp_path, text))
    assert caught.value.remedy
    assert "people.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_csv_that_is_no_text_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DataError, match=r"cannot be read.*UTF-8"):
        read_csv(tmp_path / "a.csv")
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "none.csv")
    path = write(tmp_path, CSV)
    monkeypatch.setattr("leakgauge.data.delimited.MOST_ENTRIES", 19)
    with pytest.raises(DataError, match="4 rows of 5 columns"):
        read_csv(path)
    monkeypatch.setattr("leakgauge.data.delimited.MOST_BYTES", 10)
    with pytest.raises(DataError, match="is larger than"):
        read_csv(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_one_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"a,b,label\n1,x,0\n" + content)
    try:
        table = read_csv(path)
    except DataError:
        return
    assert len(table.arrays.inputs) == len(table.arrays.labels) >= 1
    assert np.isfinite(table.arrays.inputs).all()


# --- .npz

ROWS = np.array([[1.0, 0, 1, 5], [3.0, 1, 0, 5], [8.0, 0, 1, 5], [9.0, 0, 1, 5]])
NAMES = np.array(["age", "job=clerk", "job=nurse", "floor"])


def test_npz_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=ROWS, labels=[0, 1, 0, 1], columns=NAMES)
    data = load(tmp_path / "a.npz", split=0.0)
    assert data.domain.kind == "table"
    assert data.train.inputs.tolist() == ROWS.tolist()
    age, job, floor = data.domain.features
    assert age.spread == pytest.approx(ROWS[:, 0].std())
    assert (age.offset, age.unit) == (0.0, 1.0)
    assert (job.name, job.categories) == ("job", ("clerk", "nurse"))
    assert not floor.varies
    np.savez(tmp_path / "bytes.npz", inputs=ROWS.astype(np.uint8), labels=[0, 1, 0, 1])
    plain = read_npz(tmp_path / "bytes.npz")
    assert plain.train.inputs.tolist() == ROWS.tolist()  # bytes of a table are numbers, not shades
    assert [feature.name for feature in plain.features] == [f"column {i}" for i in range(4)]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"inputs": np.where(ROWS == 8, np.nan, ROWS)}, "row 2, column 0 holds nan"),
        ({"inputs": np.where(ROWS == 8, 1e300, ROWS)}, "row 2, column 0 holds 1e\\+300"),
        ({"inputs": ROWS[:, :0], "columns": NAMES[:0]}, "4 rows of 0 columns"),
        ({"inputs": ROWS[:3]}, "3 rows but 4 labels"),
        ({"columns": NAMES[:2]}, "2 names for 4 columns"),
        ({"columns": NAMES[None]}, r"names of shape \(1, 4\)"),
        ({"columns": np.array(["age", "job=a", "job=b", "age"])}, "two columns are named 'age'"),
        ({"columns": np.array(["a=b", "a=c", "x", "y"])}, "row 1 does not have exactly one 1 among the columns a="),
        ({"columns": np.array([None, "b", "c", "d"])}, "holds object values.*plain texts"),
        ({"columns": np.arange(4)}, "holds int64 values"),
    ],
)
def test_npz_table_faults(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    np.savez(tmp_path / "a.npz", **{"inputs": ROWS, "labels": [0, 1, 0, 1], "columns": NAMES, **change})
    with pytest.raises(DataError, match=what):
        load(tmp_path / "a.npz", split=0.0)


# --- scikit-learn


def test_breast_cancer() -> None:
    pytest.importorskip("sklearn")
    data = load("breast_cancer")
    assert data.domain == Domain("table", (30,), 2, data.domain.features)
    assert data.domain.features[0].name == "mean radius"
    assert len(data.train) + len(data.test) == 569
    assert data.class_names == ("malignant", "benign")
    assert data.train.inputs.double().mean(0).abs().max().item() < 1e-5
    torch.testing.assert_close(data.train.inputs.std(0, correction=0), torch.ones(30), atol=1e-4, rtol=0)
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer().data
    offset, unit = (torch.tensor([getattr(f, name) for f in data.domain.features]) for name in ("offset", "unit"))
    back = data.test.inputs.double() * unit + offset
    gaps = (back[0] - torch.from_numpy(raw)).abs() / unit
    assert gaps.amax(1).min().item() < 1e-5  # the row is one of the source
    own = metrics.of(data.domain)
    null = metrics.another_record(own.judge, data.test.inputs)
    assert null.mean().item() < 0.2 < own.threshold


def test_breast_cancer_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakgauge.data.catalogue.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r"breast_cancer: .*leakgauge\[tables\]"):
        load("breast_cancer")


def test_own_rows_get_the_spread_of_their_train_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rows.py").write_text(
        "import torch\nfrom leakgauge.types import Domain, Records\n"
        "x = torch.arange(20.0)[:, None] * torch.tensor([1.0, 5.0])\n"
        "rows = Records(x, torch.arange(20) % 2, Domain('table', (2,), 2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = load("own_rows:rows")
    spread = data.train.inputs.std(0, correction=0).tolist()
    assert [feature.spread for feature in data.domain.features] == pytest.approx(spread, rel=1e-6)
    assert data.train.domain == data.domain
