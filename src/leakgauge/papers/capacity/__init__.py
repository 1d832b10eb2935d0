"""Bayes' capacity as a measure for reconstruction attacks."""
