"""Writing reports beside their run, as private files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from leakgauge.audit.judge.words import Word
from leakgauge.errors import LeakgaugeError, nearest, printable
from leakgauge.report.html import html
from leakgauge.report.junit import junit
from leakgauge.report.markdown import markdown
from leakgauge.report.reading import Run, read
from leakgauge.storage.private import write

FILES = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}


class FormatError(LeakgaugeError):
    """A format that reports do not have."""


def report(
    folder: Path,
    *,
    formats: Iterable[str] = tuple(FILES),
    redact: bool = False,
    fail_on: Word = "recognisable",
    out: Path | None = None,
) -> list[Path]:
    """Write the reports of a run folder, mode 0600, and return their paths; nothing is imported or fetched."""
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in FILES:
            raise FormatError(f"there is no format {name!r}", where="--format", remedy=nearest(name, FILES))
    if not wanted:
        raise FormatError("no format is given", where="--format", remedy=f"use {','.join(FILES)}, or leave it out")
    run = read(folder, redact=redact)
    makers: Mapping[str, Callable[[Run], str]] = {
        "html": html,
        "md": markdown,
        "junit": lambda run: junit(run, fail_on=fail_on),
    }
    written = []
    for name in wanted:
        path = (out or folder) / FILES[name]
        try:
            write(path, printable(makers[name](run)).encode())
        except OSError as fault:
            raise LeakgaugeError(
                f"cannot be written ({fault.strerror})", where=str(path), remedy="name another folder with --out"
            ) from None
        written.append(path)
    return written
