"""Metrics: how much of the truth a reconstruction holds. The only room that ever sees the ground truth.

One definition per metric, in [0, 1] image space, clipped, data range 1; batches matched one-to-one.
"""

from leakgauge.metrics.images import distance, mse, non_finite, psnr, ssim
from leakgauge.metrics.intervals import (
    Interval,
    Risk,
    adversarial_risk,
    clopper_pearson,
    difference_interval,
    mean_interval,
)
from leakgauge.metrics.labels import label_accuracy, label_counts_accuracy
from leakgauge.metrics.matching import Matching, match

__all__ = [
    "Interval",
    "Matching",
    "Risk",
    "adversarial_risk",
    "clopper_pearson",
    "difference_interval",
    "distance",
    "label_accuracy",
    "label_counts_accuracy",
    "match",
    "mean_interval",
    "mse",
    "non_finite",
    "psnr",
    "ssim",
]
