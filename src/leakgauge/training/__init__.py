"""Central training with checkpoints, under a task's own protection."""

from leakgauge.training.accuracy import accuracy
from leakgauge.training.ats_search import Score, search
from leakgauge.training.prior import TrainedPrior, train_patches, train_vae
from leakgauge.training.rates import Rates, find_rate
from leakgauge.training.train import Checkpoint, train
from leakgauge.training.utility import Utility, utility

__all__ = [
    "Checkpoint",
    "Rates",
    "Score",
    "TrainedPrior",
    "Utility",
    "accuracy",
    "find_rate",
    "search",
    "train",
    "train_patches",
    "train_vae",
    "utility",
]
