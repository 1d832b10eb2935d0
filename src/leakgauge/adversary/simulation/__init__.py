"""Parts that say nothing of themselves: the adversary knows the mechanism, so it simulates it."""

from leakgauge.adversary.simulation.simulate import Simulation, simulate, simulate_whole
from leakgauge.adversary.simulation.stand_ins import Dropped, Estimated, Flipped, Impulsive, Rearranged, StandIn, Traced

__all__ = [
    "Dropped",
    "Estimated",
    "Flipped",
    "Impulsive",
    "Rearranged",
    "Simulation",
    "StandIn",
    "Traced",
    "simulate",
    "simulate_whole",
]
