"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge.cli.terminal import printable


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under heads. Long cells wrap, so nothing is lost in a narrow terminal or a pipe.

    The first column, which users search for and copy, stays on one line.
    """
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(heads):
        grid.add_column(head, overflow="fold", no_wrap=i == 0)
    for row in rows:
        # Text: a cell like prior[0] must not be read as markup
        grid.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(grid)
