"""Defenses at the input, model and training stage, and Protection, which composes all four."""

from leakgauge.defenses.lrp import LearningRatePerturbation
from leakgauge.defenses.precode import Precode
from leakgauge.defenses.protection import Protection, protection
from leakgauge.defenses.stages import EarlyPart, Encoded, InputPart, ModelPart, TrainingPart

lrp, precode = LearningRatePerturbation, Precode

__all__ = [
    "EarlyPart",
    "Encoded",
    "InputPart",
    "LearningRatePerturbation",
    "ModelPart",
    "Precode",
    "Protection",
    "TrainingPart",
    "lrp",
    "precode",
    "protection",
]
