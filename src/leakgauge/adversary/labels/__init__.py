"""Labels: how many examples of each class an update gives away, with a confidence.

A ladder: the sign of the last bias or of the row sums (iDLG), the lowest entries of unique labels (GradInversion), and,
where nothing else is asked for, counts by likelihood, which need none of the conditions of the others.
"""

from leakgauge.adversary.labels.counts import Counts, spelled
from leakgauge.adversary.labels.layer import last_layer
from leakgauge.adversary.labels.reader import LabelReader, Rule, counts_of, labels_of

__all__ = ["Counts", "LabelReader", "Rule", "counts_of", "labels_of", "last_layer", "spelled"]
