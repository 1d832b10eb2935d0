"""Draw the bundled sample of Fashion-MNIST again from the full set.

    leakgauge data fetch fashion_mnist
    python examples/make_sample.py src/leakgauge/data/sample

The first 100 images of each class of the train set and the first 50 of each class of the test set, the
classes taking turns: record i has class i mod 10, so every prefix is balanced. Prints the size and the
SHA-256 of each file, as pinned in ``leakgauge.data.catalogue``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from leakgauge.data import entry_of, read_idx, write_idx
from leakgauge.data.archive import digest_of


def main(target: Path) -> None:
    entry = entry_of("fashion_mnist")
    names = [file.name for file in entry.files]
    for images, labels, per_class in ((names[0], names[1], 100), (names[2], names[3], 50)):
        all_labels = read_idx(entry.folder / labels)
        first = np.stack([np.flatnonzero(all_labels == label)[:per_class] for label in range(10)])
        turns = first.T.reshape(-1)
        for name in (images, labels):
            path = target / f"{name}.gz"
            write_idx(path, read_idx(entry.folder / name)[turns])
            print(path.name, path.stat().st_size, digest_of(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
