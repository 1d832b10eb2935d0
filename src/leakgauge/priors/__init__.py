"""Priors: ``log p(x)``, what the adversary believes before it sees the update.

A prior is a frozen value called with a :class:`~leakgauge.types.Candidate`; it returns ``[N]``, higher is likelier.
Priors add and scale: ``1e-4*tv() + 0.1*pixel_range()``.
"""

from leakgauge.priors.base import PriorPart, Scaled, Sum
from leakgauge.priors.batch_norm import BatchNorm
from leakgauge.priors.densities import GaussianPrior, LaplacePrior, Uniform
from leakgauge.priors.finite import Finite
from leakgauge.priors.pixels import Norm, PixelRange
from leakgauge.priors.total_variation import TotalVariation

# the names of the expressions, so that Python reads as TOML and reports do
uniform = Uniform
tv = TotalVariation
pixel_range = PixelRange
gaussian_prior = GaussianPrior
laplace_prior = LaplacePrior
norm = Norm
batch_norm = BatchNorm

__all__ = [
    "BatchNorm",
    "Finite",
    "GaussianPrior",
    "LaplacePrior",
    "Norm",
    "PixelRange",
    "PriorPart",
    "Scaled",
    "Sum",
    "TotalVariation",
    "Uniform",
    "batch_norm",
    "gaussian_prior",
    "laplace_prior",
    "norm",
    "pixel_range",
    "tv",
    "uniform",
]
