"""Metrics: how much of the truth a reconstruction holds. The only room that ever sees the ground truth.

One definition per metric. ``metrics.of(domain)`` says which metrics a domain has and which of them judges. Functions
(``ssim``, ``psnr``) compare tensors; values (``Ssim()``, in a spec ``ssim()``) also know what their scores mean.
"""

from leakgauge.intervals import Interval, clopper_pearson, difference_interval, mean_interval
from leakgauge.meaning import CAP, Meaning, storable
from leakgauge.metrics.base import MetricPart
from leakgauge.metrics.domains import DomainMetrics, another_record, named, of
from leakgauge.metrics.features import feature_errors, readable
from leakgauge.metrics.images import distance, mse, non_finite, psnr, ssim
from leakgauge.metrics.labels import label_accuracy, label_counts_accuracy
from leakgauge.metrics.matching import Matching, match
from leakgauge.metrics.perceptual import lpips
from leakgauge.metrics.pictures import Lpips, Mse, MsSsim, Psnr, Ssim
from leakgauge.metrics.representations import RepresentationMse, representations
from leakgauge.metrics.risk import Risk, adversarial_risk
from leakgauge.metrics.scales import ms_ssim
from leakgauge.metrics.tables import Digits, FeatureShare, RowError
from leakgauge.metrics.tokens import TokenShare
from leakgauge.metrics.vectors import vectors

__all__ = [
    "CAP",
    "Digits",
    "DomainMetrics",
    "FeatureShare",
    "Interval",
    "Lpips",
    "Matching",
    "Meaning",
    "MetricPart",
    "MsSsim",
    "Mse",
    "Psnr",
    "RepresentationMse",
    "Risk",
    "RowError",
    "Ssim",
    "TokenShare",
    "adversarial_risk",
    "another_record",
    "clopper_pearson",
    "difference_interval",
    "distance",
    "feature_errors",
    "label_accuracy",
    "label_counts_accuracy",
    "lpips",
    "match",
    "mean_interval",
    "ms_ssim",
    "mse",
    "named",
    "non_finite",
    "of",
    "psnr",
    "readable",
    "representations",
    "ssim",
    "storable",
    "vectors",
]
