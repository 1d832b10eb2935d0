"""Training-stage defenses: what a client changes about its local training."""

from leakgauge.defenses.training.lrp import LearningRatePerturbation

lrp = LearningRatePerturbation

__all__ = ["LearningRatePerturbation", "lrp"]
