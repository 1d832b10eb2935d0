"""What captured updates show to whoever holds them."""

from leakgauge.inspect.attacks import attacks_on
from leakgauge.inspect.captures import Capture, captured, folder_of, upright
from leakgauge.inspect.findings import Finding, explained, inspect
from leakgauge.inspect.picture import picture

__all__ = ["Capture", "Finding", "attacks_on", "captured", "explained", "folder_of", "inspect", "picture", "upright"]
