"""A doctor for privacy settings: do the claims of a Flower app, an NVFlare job or an Opacus engine hold?

    examine_expression("LocalDpMod(clipping_norm=1.0, sensitivity=1e-4, epsilon=10.0, delta=1e-5)")
    examine_folder(Path("my_app"), Asked(epsilon=2.0, delta=1e-5))

Programs are read, not run. A fault of a package is looked for in the installed one, by a small experiment
(:mod:`leakgauge.claims.probes`), so that a release which mends it passes. Numbers come from :mod:`leakgauge.bounds`.
"""

from leakgauge.claims.examine import examine_expression, examine_folder, examine_object
from leakgauge.claims.facts import Asked
from leakgauge.claims.findings import Claims, Examined, Finding

__all__ = ["Asked", "Claims", "Examined", "Finding", "examine_expression", "examine_folder", "examine_object"]
