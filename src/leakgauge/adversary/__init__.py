"""The adversary: likelihoods, labels, gradient paths, the batched solver."""

from leakgauge.adversary.adversary import Adversary, Reconstruction
from leakgauge.adversary.estimated import Estimated
from leakgauge.adversary.labels import Counts, counts_of, labels_of
from leakgauge.adversary.likelihoods import (
    L1,
    L2,
    Cosine,
    Density,
    Likelihood,
    Marginal,
    Matching,
    ScaledL2,
    Through,
    cosine,
    density,
    l1,
    l2,
    marginal,
    scaled_l2,
    through,
)
from leakgauge.adversary.protocol import Attack, Modelled, models_defense
from leakgauge.adversary.rounding import Forgiving, forgiving
from leakgauge.adversary.run import attack
from leakgauge.adversary.solver import (
    adam,
    ball,
    constant,
    cosine_decay,
    exponential,
    gauss_newton,
    lbfgs,
    momentum,
    ramp,
    signed_adam,
    step_decay,
    warmup,
)

adversary, estimated = Adversary, Estimated

__all__ = [
    "L1",
    "L2",
    "Adversary",
    "Attack",
    "Cosine",
    "Counts",
    "Density",
    "Estimated",
    "Forgiving",
    "Likelihood",
    "Marginal",
    "Matching",
    "Modelled",
    "Reconstruction",
    "ScaledL2",
    "Through",
    "adam",
    "adversary",
    "attack",
    "ball",
    "constant",
    "cosine",
    "cosine_decay",
    "counts_of",
    "density",
    "estimated",
    "exponential",
    "forgiving",
    "gauss_newton",
    "l1",
    "l2",
    "labels_of",
    "lbfgs",
    "marginal",
    "models_defense",
    "momentum",
    "ramp",
    "scaled_l2",
    "signed_adam",
    "step_decay",
    "through",
    "warmup",
]
