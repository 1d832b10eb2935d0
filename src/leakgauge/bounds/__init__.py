"""Bounds that no adversary can beat: Bayes capacity, ε, reconstruction robustness. The Fisher indicator is no bound.

Capacities are natural logarithms, because they overflow in the dimension of a network.
"""

from leakgauge.bounds.accounting import Privacy, epsilon_of, sigma_of
from leakgauge.bounds.best_guess import (
    BestGuess,
    best_guess,
    best_guess_by_pairs,
    lower_limit,
    measured_guess,
    upper_limit,
)
from leakgauge.bounds.capacity import compose, log_capacity_vmf, repeat, success_ceiling
from leakgauge.bounds.channels import (
    Channel,
    deterministic,
    leakage,
    posterior_vulnerability,
    prior_vulnerability,
)
from leakgauge.bounds.corridor import Corridor, corridor
from leakgauge.bounds.epsilon import (
    classical_sigma,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    laplace_epsilon,
    mu_of_noise,
    vmf_epsilon,
)
from leakgauge.bounds.fisher import AverageError, Indicator, cramer_rao, gram, van_trees
from leakgauge.bounds.gaussian_capacity import (
    LayerCapacity,
    log_capacity_box,
    log_capacity_gaussian,
    log_capacity_layers,
)
from leakgauge.bounds.indicator import fisher_indicator
from leakgauge.bounds.laplace_capacity import log_capacity_laplace
from leakgauge.bounds.laws import Figure, Proof, proof_of
from leakgauge.bounds.protection import Bound, bound_of, bound_of_task
from leakgauge.bounds.pruned_capacity import log_capacity_pruned, log_capacity_sparse
from leakgauge.bounds.reconstruction import (
    Ceiling,
    capacity_ceiling,
    epsilon_ceiling,
    gaussian_ceiling,
    mu_ceiling,
    profile_ceiling,
    tradeoff_ceiling,
    vmf_ceiling,
    vmf_rounds,
)
from leakgauge.bounds.sensitivity import sensitivity_at
from leakgauge.bounds.set_capacity import LogEstimate, log_capacity_directions, log_capacity_points, log_capacity_set

__all__ = [
    "AverageError",
    "BestGuess",
    "Bound",
    "Ceiling",
    "Channel",
    "Corridor",
    "Figure",
    "Indicator",
    "LayerCapacity",
    "LogEstimate",
    "Privacy",
    "Proof",
    "best_guess",
    "best_guess_by_pairs",
    "bound_of",
    "bound_of_task",
    "capacity_ceiling",
    "classical_sigma",
    "compose",
    "corridor",
    "cramer_rao",
    "deterministic",
    "epsilon_ceiling",
    "epsilon_of",
    "fisher_indicator",
    "gaussian_ceiling",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gram",
    "laplace_epsilon",
    "leakage",
    "log_capacity_box",
    "log_capacity_directions",
    "log_capacity_gaussian",
    "log_capacity_laplace",
    "log_capacity_layers",
    "log_capacity_points",
    "log_capacity_pruned",
    "log_capacity_set",
    "log_capacity_sparse",
    "log_capacity_vmf",
    "lower_limit",
    "measured_guess",
    "mu_ceiling",
    "mu_of_noise",
    "posterior_vulnerability",
    "prior_vulnerability",
    "profile_ceiling",
    "proof_of",
    "repeat",
    "sensitivity_at",
    "sigma_of",
    "success_ceiling",
    "tradeoff_ceiling",
    "upper_limit",
    "van_trees",
    "vmf_ceiling",
    "vmf_epsilon",
    "vmf_rounds",
]
