"""The table that comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from leakgauge.data.arrays import Arrays
from leakgauge.data.catalogue import TABLES, Entry
from leakgauge.data.delimited import Table
from leakgauge.errors import MissingExtraError
from leakgauge.types import Feature


def read_breast_cancer(entry: Entry) -> Table:
    """569 patients with 30 numbers each, malignant or benign. The file is in the package; nothing is downloaded.

    References:
        Wolberg et al., Breast Cancer Wisconsin (Diagnostic), 1995. https://doi.org/10.24432/C5DW2B
    """
    if not entry.present:
        raise MissingExtraError(
            "the data set comes with scikit-learn, which is not installed", where=entry.name, remedy=f"type: {TABLES}"
        )
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    features = tuple(Feature(str(name)) for name in bunch.feature_names)
    return Table(Arrays(bunch.data, bunch.target.astype(np.int64)), features, entry.class_names)
