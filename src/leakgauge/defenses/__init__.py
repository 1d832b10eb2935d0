"""Defenses at the input, model and training stage, and Protection, which composes all four."""

from leakgauge.defenses.protection import Protection, protection

__all__ = ["Protection", "protection"]
