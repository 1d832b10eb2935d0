"""Evaluating gradient inversion attacks and defenses."""
