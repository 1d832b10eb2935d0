"""Central training with checkpoints, under a task's own protection."""

from leakgauge.training.accuracy import accuracy
from leakgauge.training.train import Checkpoint, train

__all__ = ["Checkpoint", "accuracy", "train"]
