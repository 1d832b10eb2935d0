"""What captured updates show to whoever holds them."""

from leakgauge.inspect.attacks import attacks_on
from leakgauge.inspect.captures import Capture, CaptureWarning, captured, folder_of
from leakgauge.inspect.findings import Finding, Guess, explained
from leakgauge.inspect.picture import picture
from leakgauge.inspect.running import inspect
from leakgauge.inspect.signs import sign_of

__all__ = [
    "Capture",
    "CaptureWarning",
    "Finding",
    "Guess",
    "attacks_on",
    "captured",
    "explained",
    "folder_of",
    "inspect",
    "picture",
    "sign_of",
]
