"""The user's cache folder: fetched data sets and weights, and the secret of redacted runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$LEAKGAUGE_CACHE``, otherwise ``$XDG_CACHE_HOME/leakgauge``, otherwise ``~/.cache/leakgauge``."""
    own, common = os.environ.get("LEAKGAUGE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    return (Path(common).expanduser() if common else Path.home() / ".cache") / "leakgauge"
