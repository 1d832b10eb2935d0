"""Update-stage defenses: frozen values that release an update and say with what density."""

from leakgauge.mechanisms.base import EntryDensity, UpdatePart, parts_of
from leakgauge.mechanisms.chain import Chain
from leakgauge.mechanisms.maps import Clip, Identity
from leakgauge.mechanisms.noise import Gaussian, Laplace
from leakgauge.mechanisms.prune import MagnitudePrune, RandomPrune, smallest_survivor
from leakgauge.mechanisms.quantise import Quantise
from leakgauge.mechanisms.sign import Sign
from leakgauge.mechanisms.soteria import Soteria
from leakgauge.mechanisms.topk import TopK
from leakgauge.mechanisms.vmf import VonMisesFisher

identity, clip = Identity, Clip
gaussian, laplace = Gaussian, Laplace
random_prune, prune = RandomPrune, MagnitudePrune
vmf = VonMisesFisher
soteria, topk, sign, quantise = Soteria, TopK, Sign, Quantise

__all__ = [
    "Chain",
    "Clip",
    "EntryDensity",
    "Gaussian",
    "Identity",
    "Laplace",
    "MagnitudePrune",
    "Quantise",
    "RandomPrune",
    "Sign",
    "Soteria",
    "TopK",
    "UpdatePart",
    "VonMisesFisher",
    "clip",
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
