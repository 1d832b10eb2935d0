"""Defenses at the input, model and training stage, and Protection, which composes all four."""

from leakgauge.defenses.ats import AutomaticTransformation
from leakgauge.defenses.lrp import LearningRatePerturbation
from leakgauge.defenses.mixing import InstaHide, MixUp
from leakgauge.defenses.precode import Precode
from leakgauge.defenses.protection import Protection, protection
from leakgauge.defenses.stages import EarlyPart, Encoded, InputPart, ModelPart, TrainingPart

lrp, precode = LearningRatePerturbation, Precode
mixup, instahide, ats = MixUp, InstaHide, AutomaticTransformation

__all__ = [
    "AutomaticTransformation",
    "EarlyPart",
    "Encoded",
    "InputPart",
    "InstaHide",
    "LearningRatePerturbation",
    "MixUp",
    "ModelPart",
    "Precode",
    "Protection",
    "TrainingPart",
    "ats",
    "instahide",
    "lrp",
    "mixup",
    "precode",
    "protection",
]
