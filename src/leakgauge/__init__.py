"""leakgauge: how much of your clients' private data can be read back out of the updates they send?

>>> import leakgauge as lg
>>> data = lg.data.load("fashion_mnist_sample")
>>> task = lg.Task(lg.models.build("bayes_cnn", data.train.domain), data.train.domain)
>>> task = task.protect("clip(norm=1.0) | gaussian(std=0.001)")
"""

from leakgauge import adversary, attacks, data, defenses, mechanisms, metrics, models, priors
from leakgauge.client import Recipe
from leakgauge.defenses import Protection
from leakgauge.errors import LeakgaugeError
from leakgauge.expr import parse
from leakgauge.observation import Observation, Round, observe
from leakgauge.task import Task
from leakgauge.types import Domain, Records, Threat

__version__ = "0.1.0.dev0"

__all__ = [
    "Domain",
    "LeakgaugeError",
    "Observation",
    "Protection",
    "Recipe",
    "Records",
    "Round",
    "Task",
    "Threat",
    "adversary",
    "attacks",
    "data",
    "defenses",
    "mechanisms",
    "metrics",
    "models",
    "observe",
    "parse",
    "priors",
]
