"""The Bayesian framework for gradient leakage."""
