"""What captured updates show to whoever holds them."""

from leakgauge.inspect.captures import Capture, captured, folder_of, upright
from leakgauge.inspect.findings import Finding, inspect, picture

__all__ = ["Capture", "Finding", "captured", "folder_of", "inspect", "picture", "upright"]
