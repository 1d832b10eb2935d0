"""The networks of the papers, your own, and normalisation that keeps parameter names."""

from leakgauge.models.base import Network
from leakgauge.models.building import build
from leakgauge.models.convolutional import BayesCnn, Cnn13700, ConvBig, ConvNet64, DlgLeNet, LeNet5
from leakgauge.models.dense import Logistic, Mlp
from leakgauge.models.init import lecun_normal, uniform
from leakgauge.models.normalise import Normalise, denormalised, normalised
from leakgauge.models.residual import ResNet18

__all__ = [
    "BayesCnn",
    "Cnn13700",
    "ConvBig",
    "ConvNet64",
    "DlgLeNet",
    "LeNet5",
    "Logistic",
    "Mlp",
    "Network",
    "Normalise",
    "ResNet18",
    "build",
    "denormalised",
    "lecun_normal",
    "normalised",
    "uniform",
]
