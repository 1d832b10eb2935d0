"""Update-stage defenses: frozen values that release an update and say with what density."""

from leakgauge.defenses.update.base import Conditions, EntryDensity, UpdatePart, conditioned, parts_of
from leakgauge.defenses.update.chain import Chain
from leakgauge.defenses.update.maps import Clip, Identity
from leakgauge.defenses.update.noise import Gaussian, Laplace
from leakgauge.defenses.update.promises import (
    GaussianNoise,
    LaplaceNoise,
    NoiseLaw,
    Sensitivity,
    Sizes,
    Unit,
    VonMisesFisherNoise,
)
from leakgauge.defenses.update.prune import MagnitudePrune, RandomPrune, smallest_survivor
from leakgauge.defenses.update.quantise import Quantise
from leakgauge.defenses.update.sign import Sign
from leakgauge.defenses.update.soteria import Soteria
from leakgauge.defenses.update.topk import TopK
from leakgauge.defenses.update.vmf import VonMisesFisher

identity, clip = Identity, Clip
gaussian, laplace = Gaussian, Laplace
random_prune, prune = RandomPrune, MagnitudePrune
vmf = VonMisesFisher
soteria, topk, sign, quantise = Soteria, TopK, Sign, Quantise

__all__ = [
    "Chain",
    "Clip",
    "Conditions",
    "EntryDensity",
    "Gaussian",
    "GaussianNoise",
    "Identity",
    "Laplace",
    "LaplaceNoise",
    "MagnitudePrune",
    "NoiseLaw",
    "Quantise",
    "RandomPrune",
    "Sensitivity",
    "Sign",
    "Sizes",
    "Soteria",
    "TopK",
    "Unit",
    "UpdatePart",
    "VonMisesFisher",
    "VonMisesFisherNoise",
    "clip",
    "conditioned",
    "gaussian",
    "identity",
    "laplace",
    "parts_of",
    "prune",
    "quantise",
    "random_prune",
    "sign",
    "smallest_survivor",
    "soteria",
    "topk",
    "vmf",
]
