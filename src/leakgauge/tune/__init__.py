"""A user's own search for the settings of an attack, on records that are never reported.

``leakgauge tune spec.toml --attack "adaptive(steps=300)" --space "tv_weight = log(1e-5, 1e-1)"`` does the same from
the command line. Optuna proposes the trials (``pip install 'leakgauge[tune]'``).
"""

from leakgauge.tune.presets import Preset, bayes
from leakgauge.tune.ranges import Choice, Linear, Log, Whole
from leakgauge.tune.space import Space
from leakgauge.tune.tuning import Trial, Tuned, tune

__all__ = ["Choice", "Linear", "Log", "Preset", "Space", "Trial", "Tuned", "Whole", "bayes", "tune"]
