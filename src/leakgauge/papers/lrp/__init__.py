"""Learning-rate perturbation."""
