"""Training-stage defenses: what a client changes about its local training."""

from leakgauge.defenses.training.ada_lrp import AdaptiveLearningRatePerturbation
from leakgauge.defenses.training.lrp import LearningRatePerturbation

lrp = LearningRatePerturbation
ada_lrp = AdaptiveLearningRatePerturbation

__all__ = ["AdaptiveLearningRatePerturbation", "LearningRatePerturbation", "ada_lrp", "lrp"]
