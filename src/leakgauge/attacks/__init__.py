"""Published attacks, each a composition, and ``adaptive()``, which builds the adversary of a defense."""

from leakgauge.attacks.adapting import Hint, hints
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.attacks.bayes import bayes
from leakgauge.attacks.dlg import dlg, idlg
from leakgauge.attacks.drop_layer import DropLayer
from leakgauge.attacks.inverting import inverting_gradients
from leakgauge.attacks.staged import BestOf, Staged
from leakgauge.attacks.standard import Standard

adaptive, analytic, drop_layer = Adaptive, Analytic, DropLayer
best_of, staged, standard = BestOf, Staged, Standard

__all__ = [
    "Adaptive",
    "Analytic",
    "BestOf",
    "DropLayer",
    "Hint",
    "Staged",
    "Standard",
    "adaptive",
    "analytic",
    "bayes",
    "best_of",
    "dlg",
    "drop_layer",
    "hints",
    "idlg",
    "inverting_gradients",
    "staged",
    "standard",
]
