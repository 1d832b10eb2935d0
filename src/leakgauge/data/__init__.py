"""Records: a bundled sample, readers for five formats, and full data sets on request."""

from leakgauge.data.arrays import Arrays
from leakgauge.data.catalogue import ENTRIES, Entry, entry_of
from leakgauge.data.cifar import read_cifar
from leakgauge.data.dataset import Dataset
from leakgauge.data.delimited import Table, read_csv
from leakgauge.data.fetching import fetch, intact
from leakgauge.data.folder import read_folder
from leakgauge.data.idx import read_idx, read_idx_pair, write_idx
from leakgauge.data.loading import load
from leakgauge.data.memory import in_memory
from leakgauge.data.npz import read_npz
from leakgauge.data.weights import WEIGHTS, Weights
from leakgauge.storage.cache import cache_folder

__all__ = [
    "ENTRIES",
    "WEIGHTS",
    "Arrays",
    "Dataset",
    "Entry",
    "Table",
    "Weights",
    "cache_folder",
    "entry_of",
    "fetch",
    "in_memory",
    "intact",
    "load",
    "read_cifar",
    "read_csv",
    "read_folder",
    "read_idx",
    "read_idx_pair",
    "read_npz",
    "write_idx",
]
