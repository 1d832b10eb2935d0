"""Improved deep leakage from gradients."""
