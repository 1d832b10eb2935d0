"""Load a data set from a name or a path."""

from __future__ import annotations

from pathlib import Path

from leakgauge import expr
from leakgauge.data.arrays import Arrays
from leakgauge.data.catalogue import ENTRIES, FETCH, Entry, entry_of
from leakgauge.data.cifar import read_cifar
from leakgauge.data.dataset import Dataset, Split, divide
from leakgauge.data.delimited import Table, read_csv
from leakgauge.data.folder import read_folder
from leakgauge.data.idx import read_idx_pair
from leakgauge.data.memory import in_memory
from leakgauge.data.npz import read_npz
from leakgauge.data.sklearn import read_breast_cancer
from leakgauge.data.tables import standardised
from leakgauge.errors import DataError, LeakgaugeError, MissingDataError
from leakgauge.types import Domain, Records


def load(name_or_path: str | Path, *, split: float = 0.2) -> Dataset:
    """Load a data set from a name, an ``.npz`` or ``.csv`` file, a folder of images or ``package.module:records``.

    Named sets are read lazily and keep their own split, as do files and folders with test records.
    For any other source the share ``split`` of each class becomes the test records.
    Numbers of a ``.csv`` file and of the table ``breast_cancer`` are standardised by the mean and standard
    deviation of the train records; those of an ``.npz`` file are used unchanged.
    A named set that is not on this machine is never downloaded: MissingDataError says what to type.
    ``package.module:records`` imports the user's code; it names Records, a Dataset, or a function
    without arguments that returns one of these.
    """
    text = str(name_or_path)
    path = Path(text)
    if text in ENTRIES:
        return _named(ENTRIES[text], split)
    if isinstance(name_or_path, str) and expr.PATH.fullmatch(text):
        return _users(text, split)
    if path.is_dir():
        folder = read_folder(path)
        train, test = (folder.train, folder.test) if folder.test else divide(folder.train, split, where=text)
        return _checked(Dataset.of(path.name, train, test, class_names=folder.class_names))
    if path.suffix == ".npz":
        npz = read_npz(path)
        train, test = (npz.train, npz.test) if npz.test else divide(npz.train, split, where=text)
        return _checked(Dataset.of(path.stem, train, test, classes=npz.classes, features=npz.features))
    if path.suffix == ".csv":
        return _table(path.stem, read_csv(path), split, where=text)
    if path.exists() or len(path.parts) > 1:
        what = "is neither an .npz or .csv file nor a folder" if path.exists() else "no such file or folder"
        raise DataError(what, where=text, remedy="give an .npz or .csv file, or a folder with one sub-folder per class")
    return _named(entry_of(text), split)


def _checked(dataset: Dataset) -> Dataset:
    """The faults of records that are already read show now, not at first use."""
    _ = dataset.domain
    return dataset


def _table(name: str, table: Table, split: float, *, where: str) -> Dataset:
    """A table, divided, then standardised by its train records."""
    train, test, features = standardised(*divide(table.arrays, split, where=where), table.features)
    return _checked(Dataset.of(name, train, test, class_names=table.class_names, features=features))


def _named(entry: Entry, split: float) -> Dataset:
    if entry.client == "scikit-learn":
        return _table(entry.name, read_breast_cancer(entry), split, where=entry.name)
    if not entry.present:
        raise MissingDataError(
            f"the data set is not on this machine (looked in {entry.folder})",
            where=entry.name,
            remedy=f"type: {FETCH} {entry.name}",
        )
    return Dataset(
        entry.name,
        {"train": lambda: _read(entry, "train"), "test": lambda: _read(entry, "test")},
        entry.class_names,
        stated=Domain("image", entry.shape, len(entry.class_names)),
    )


def _read(entry: Entry, split: Split) -> Arrays:
    paths = [entry.folder / file.name for file in entry.files]
    try:
        if entry.layout == "idx":
            return read_idx_pair(*(paths[:2] if split == "train" else paths[2:]))
        return read_cifar(paths[:-1] if split == "train" else paths[-1:])
    except DataError as fault:
        remedy = "reinstall leakgauge" if entry.client == "bundled" else f"type: {FETCH} {entry.name}"
        raise DataError(fault.what, where=fault.where, remedy=remedy) from None


def _users(path: str, split: float) -> Dataset:
    """The records of the user's own code."""
    try:
        loaded = expr.load(path, where="data")
        if callable(loaded):
            loaded = loaded()
    except LeakgaugeError:
        raise
    except Exception as fault:
        raise DataError(f"raised {type(fault).__name__}: {fault}", where=path, remedy="fix the function") from fault
    if isinstance(loaded, Dataset):
        return loaded
    if not isinstance(loaded, Records):
        raise DataError(
            f"is or returns {type(loaded).__name__}",
            where=path,
            remedy="name Records, a Dataset or a function that returns one",
        )
    return in_memory(loaded, name=path, share=split)
