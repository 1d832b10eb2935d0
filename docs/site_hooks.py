"""What the site needs beyond Markdown as GitHub reads it."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"`[^`\n]+`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    r"""Two differences between GitHub and Python-Markdown.

    In the rows of a table, ``\|`` inside code is ``|``: GitHub needs the backslash, Python-Markdown shows it. Empty
    brackets are text, not a reference.
    """
    markdown = markdown.replace("[] []", r"\[\] \[\]")
    return "\n".join(
        CODE.sub(lambda code: code[0].replace(r"\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )
