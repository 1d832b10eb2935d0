"""The adversary: likelihoods, labels, gradient paths, the batched solver."""

from leakgauge.adversary.adversary import Adversary, Reconstruction
from leakgauge.adversary.likelihoods import (
    L1,
    L2,
    Cosine,
    Density,
    Likelihood,
    Matching,
    ScaledL2,
    Through,
    cosine,
    density,
    l1,
    l2,
    scaled_l2,
    through,
)
from leakgauge.adversary.run import attack
from leakgauge.adversary.solver import (
    adam,
    ball,
    constant,
    cosine_decay,
    exponential,
    lbfgs,
    momentum,
    ramp,
    signed_adam,
    step_decay,
    warmup,
)

adversary = Adversary

__all__ = [
    "L1",
    "L2",
    "Adversary",
    "Cosine",
    "Density",
    "Likelihood",
    "Matching",
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
    "density",
    "exponential",
    "l1",
    "l2",
    "lbfgs",
    "momentum",
    "ramp",
    "scaled_l2",
    "signed_adam",
    "step_decay",
    "through",
    "warmup",
]
