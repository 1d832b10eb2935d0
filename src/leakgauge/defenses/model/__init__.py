"""Model-stage defenses: what a client builds into its network."""

from leakgauge.defenses.model.precode import Precode

precode = Precode

__all__ = ["Precode", "precode"]
