"""Published attacks, each a composition, and ``adaptive()``, which builds the adversary of a defense."""

from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import Analytic
from leakgauge.attacks.bayes import bayes
from leakgauge.attacks.dlg import dlg, idlg
from leakgauge.attacks.inverting import inverting_gradients

adaptive, analytic = Adaptive, Analytic

__all__ = ["Adaptive", "Analytic", "adaptive", "analytic", "bayes", "dlg", "idlg", "inverting_gradients"]
