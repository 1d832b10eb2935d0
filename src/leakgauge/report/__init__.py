"""Reports: a run folder as HTML, Markdown and JUnit, and what changed between two.

They read ``result.json`` and the pictures beside it; they never import user code, nor torch, nor use the network.
"""

from __future__ import annotations

from leakgauge.report.compare import Comparison, compare
from leakgauge.report.html import html
from leakgauge.report.junit import junit
from leakgauge.report.markdown import markdown
from leakgauge.report.reading import Run, RunError, read
from leakgauge.report.writing import FILES, FormatError, report

__all__ = [
    "FILES",
    "Comparison",
    "FormatError",
    "Run",
    "RunError",
    "compare",
    "html",
    "junit",
    "markdown",
    "read",
    "report",
]
