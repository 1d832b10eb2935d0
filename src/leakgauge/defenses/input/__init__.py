"""Input-stage defenses: what a client makes of its records before it trains on them."""

from leakgauge.defenses.input.ats import AutomaticTransformation
from leakgauge.defenses.input.mixing import InstaHide, MixUp

mixup, instahide, ats = MixUp, InstaHide, AutomaticTransformation

__all__ = ["AutomaticTransformation", "InstaHide", "MixUp", "ats", "instahide", "mixup"]
