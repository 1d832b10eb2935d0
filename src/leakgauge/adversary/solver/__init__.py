"""The batched solver: N problems at once, each as if it were alone."""

from leakgauge.adversary.solver.evolution import CmaEs
from leakgauge.adversary.solver.first_order import Adam, Momentum, SignedAdam
from leakgauge.adversary.solver.gauss_newton import GaussNewton
from leakgauge.adversary.solver.problem import Ball, Problem, Solution, Solver
from leakgauge.adversary.solver.quasi_newton import Lbfgs
from leakgauge.adversary.solver.schedules import (
    Constant,
    CosineDecay,
    Exponential,
    Ramp,
    Schedule,
    StepDecay,
    Warmup,
)

adam, signed_adam, momentum, lbfgs, gauss_newton = Adam, SignedAdam, Momentum, Lbfgs, GaussNewton
constant, step_decay, cosine_decay, exponential, warmup, ramp = (
    Constant,
    StepDecay,
    CosineDecay,
    Exponential,
    Warmup,
    Ramp,
)
ball, cma = Ball, CmaEs

__all__ = [
    "Adam",
    "Ball",
    "CmaEs",
    "Constant",
    "CosineDecay",
    "Exponential",
    "GaussNewton",
    "Lbfgs",
    "Momentum",
    "Problem",
    "Ramp",
    "Schedule",
    "SignedAdam",
    "Solution",
    "Solver",
    "StepDecay",
    "Warmup",
    "adam",
    "ball",
    "cma",
    "constant",
    "cosine_decay",
    "exponential",
    "gauss_newton",
    "lbfgs",
    "momentum",
    "ramp",
    "signed_adam",
    "step_decay",
    "warmup",
]
