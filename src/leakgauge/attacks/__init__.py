"""Published attacks, each a composition, and ``adaptive()``, which builds the adversary of a defense."""

from leakgauge.attacks.adapting import Hint, hints
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.attacks.bayes import bayes
from leakgauge.attacks.dlg import dlg, idlg
from leakgauge.attacks.drop_layer import DropLayer
from leakgauge.attacks.inverting import inverting_gradients
from leakgauge.attacks.repeated import RepeatedNoise

adaptive, analytic, drop_layer, repeated_noise = Adaptive, Analytic, DropLayer, RepeatedNoise

__all__ = [
    "Adaptive",
    "Analytic",
    "DropLayer",
    "Hint",
    "RepeatedNoise",
    "adaptive",
    "analytic",
    "bayes",
    "dlg",
    "drop_layer",
    "hints",
    "idlg",
    "inverting_gradients",
    "repeated_noise",
]
