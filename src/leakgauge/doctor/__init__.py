"""The doctor: does this set-up compute what the user's own client sent?"""

from leakgauge.doctor.diagnosis import Diagnosis, diagnose, examine
from leakgauge.doctor.replay import Evidence
from leakgauge.doctor.setup import Setup

__all__ = ["Diagnosis", "Evidence", "Setup", "diagnose", "examine"]
