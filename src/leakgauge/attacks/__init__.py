"""Published attacks, each a composition, and ``adaptive()``, which builds the adversary of a defense."""

from leakgauge.attacks.adapting import Hint, hints
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.attacks.bayes import bayes
from leakgauge.attacks.dlg import dlg, idlg
from leakgauge.attacks.drop_layer import DropLayer
from leakgauge.attacks.exact_recovery import ExactRecovery
from leakgauge.attacks.exposure import Exposure, Watch, exposure
from leakgauge.attacks.generative import Gias, ggl
from leakgauge.attacks.grad_inversion import GradInversion
from leakgauge.attacks.inverting import inverting_gradients
from leakgauge.attacks.raced import Raced
from leakgauge.attacks.recovering import Recovery, recover
from leakgauge.attacks.staged import BestOf, Staged
from leakgauge.attacks.standard import Standard

adaptive, analytic, drop_layer, exact_recovery = Adaptive, Analytic, DropLayer, ExactRecovery
grad_inversion = GradInversion
best_of, gias, raced, staged, standard = BestOf, Gias, Raced, Staged, Standard

__all__ = [
    "Adaptive",
    "Analytic",
    "BestOf",
    "DropLayer",
    "ExactRecovery",
    "Exposure",
    "Gias",
    "GradInversion",
    "Hint",
    "Raced",
    "Recovery",
    "Staged",
    "Standard",
    "Watch",
    "adaptive",
    "analytic",
    "bayes",
    "best_of",
    "dlg",
    "drop_layer",
    "exact_recovery",
    "exposure",
    "ggl",
    "gias",
    "grad_inversion",
    "hints",
    "idlg",
    "inverting_gradients",
    "raced",
    "recover",
    "staged",
    "standard",
]
