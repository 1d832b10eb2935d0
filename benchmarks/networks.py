"""Networks that are measured and are no part of the library's registry."""

from __future__ import annotations

from leakgauge.papers.gradattack.network import conv_net

__all__ = ["conv_net"]
