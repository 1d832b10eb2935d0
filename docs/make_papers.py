"""Write ``docs/papers.md`` and its figures from what ``leakgauge papers run … --record`` stored.

python docs/make_papers.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.papers.catalogue import tables
from leakgauge.papers.contract import Figure, Table
from leakgauge.papers.recording import recorded, state_of
from leakgauge.report.svg import Scale, element, marker, tick

HERE = Path(__file__).parent
FIGURES = HERE / "papers"
COLOURS = ("#0b6e99", "#c2410c", "#1a7a5e", "#8a3d78", "#765700", "#41454f")
WIDTH, HEIGHT, LEFT, TOP = 620.0, 300.0, 60.0, 20.0
HEAD = """# The papers, reproduced

Every table, figure and theorem of the papers that leakgauge builds on, as one command each; our number beside the
paper's. This page is generated (`python docs/make_papers.py`) from stored results; each has its command and commit.

- **reproduced**: same network, data and metric, within the stated tolerance.
- **holds when reduced**: within the tolerance or as claimed, with less of something; what was reduced is listed.
- **differs**: with the reason, as far as it is known.
- **cannot be run**: what is missing is said. **not run**: nobody has recorded it yet, or it waits for a part.
- **measured**: the paper has no such number.

`leakgauge papers` prints the list, `leakgauge papers run bayes/table-2 --scale small --workers 2` runs one; the
scales are `smoke` (seconds; other data or networks stand in), `small` (minutes on two cores) and `full` (the paper's
sizes). [How to add one](how-to/add-a-reproduction.md).

"""


def page() -> str:
    known = tables()
    parts = [HEAD, "| | what | state |\n|---|---|---|\n"]
    parts += [f"| [`{name}`](#{anchor(name)}) | {one.title} | {state_of(one)} |\n" for name, one in known.items()]
    for one in known.values():
        parts.append(section(one))
    return "".join(parts)


def anchor(name: str) -> str:
    return name.replace("/", "")


def section(table: Table) -> str:
    result = recorded(table)
    source = f"{table.paper.citation} {table.paper.url}".strip()
    lines = [f"\n## {table.name}\n\n{table.title}. {source}\n"]
    about = " ".join(table.about.split())
    if about:
        lines.append(f"\n{about}\n")
    lines.append(f"\nState: **{state_of(table)}**.\n")
    if result is None:
        printed = [cell for cell in table.cells if cell.expected is not None]
        if printed and not table.sizes:
            lines.append(f"\n{len(printed)} printed numbers wait, from {printed[0].name} ({printed[0].expected}) on.\n")
        return "".join(lines)
    lines.append(f"\n    {result['command']}\n")
    lines.append(
        f"\nCommit {result['commit']}, {result['date']}, {result['seconds']:.0f} processor seconds; "
        f"{result['machine']}.\n"
    )
    if result["reduced"]:
        lines.append(f"\nReduced: {'; '.join(result['reduced'])}.\n")
    lines.append(rows_of(result))
    if table.figure is not None and result["curves"]:
        lines.append(f"\n![{table.title}](papers/{anchor(table.name)}.svg)\n")
    return "".join(lines)


def figures() -> dict[Path, str]:
    """The drawing of every table that has curves."""
    results = [(table, recorded(table)) for table in tables().values() if table.figure is not None]
    return {
        FIGURES / f"{anchor(table.name)}.svg": drawn(result["curves"], table.figure, table.title)
        for table, result in results
        if table.figure is not None and result is not None and result["curves"]
    }


def rows_of(result: Mapping[str, Any]) -> str:
    """The rows that were measured, or cannot be; those that only another scale measures are counted."""
    same = "; ".join(result["reduced"])
    rows = [row for row in result["rows"] if row["verdict"] != "not run"]
    lines = ["\n| cell | paper | ours | verdict | why |\n|---|---|---|---|---|\n"]
    for row in rows:
        ours = "" if row["value"] is None else f"{row['value']:.5g} {row['unit']}".strip()
        if row["low"] is not None:
            ours += f" [{row['low']:.4g}, {row['high']:.4g}]"
        why = "" if row["why"] == same else row["why"]
        name = row["name"].replace("|", "\\|")
        lines.append(f"| {name} | {row['paper']} | {ours} | {row['verdict']} | {why} |\n")
    left = len(result["rows"]) - len(rows)
    return "".join(lines) + (f"\n{left} more cells are not run at this scale.\n" if left else "")


def drawn(curves: Mapping[str, Sequence[Sequence[float]]], how: Figure, title: str) -> str:
    """One line per curve, with its own marker and colour, and a legend."""

    def moved(value: float, log: bool) -> float:
        return math.log10(max(value, 1e-300)) if log else value

    points = {
        name: sorted((moved(x, how.log_x), moved(y, how.log_y)) for x, y in some) for name, some in curves.items()
    }
    xs, ys = ([point[i] for some in points.values() for point in some] for i in (0, 1))
    x = Scale(min(xs), max(xs), LEFT, WIDTH - 20)
    y = Scale(min(ys), max(ys), TOP + HEIGHT, TOP)
    parts: list[str] = []
    for scale, vertical in ((x, False), (y, True)):
        for value in scale.ticks():
            at, label = scale(value), tick(value)
            line = (
                {"y1": at, "y2": at, "x1": LEFT, "x2": WIDTH - 20}
                if vertical
                else {"x1": at, "x2": at, "y1": TOP, "y2": TOP + HEIGHT}
            )
            place = (
                {"x": LEFT - 6, "y": at + 4, "text_anchor": "end"}
                if vertical
                else {"x": at, "y": TOP + HEIGHT + 16, "text_anchor": "middle"}
            )
            parts += [element("line", **line, stroke="#ddd"), element("text", label, **place)]
    for i, (name, some) in enumerate(points.items()):
        colour, place = COLOURS[i % len(COLOURS)], TOP + HEIGHT + 60 + 16 * i
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in some)
        look = f"c{i}"
        parts.append(element("style", f".{look} {{ fill: {colour} }}"))
        parts.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width="1.5"))
        parts += [marker(i, x(a), y(b), look, 3.5) for a, b in some] if len(some) < 30 else []
        parts += [marker(i, LEFT + 6, place - 4, look, 4.0), element("text", name, x=LEFT + 18, y=place)]
    names = [f"log10 {label}" if log else label for label, log in ((how.x, how.log_x), (how.y, how.log_y))]
    parts.append(element("text", names[0], x=(LEFT + WIDTH) / 2, y=TOP + HEIGHT + 36, text_anchor="middle"))
    parts.append(element("text", names[1], x=4, y=12))
    height = TOP + HEIGHT + 60 + 16 * len(points)
    whole = element(
        "svg",
        element("title", title),
        element("style", "text { font: 12px sans-serif; fill: #222 }"),
        element("rect", width=WIDTH, height=height, fill="#fff"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
    )
    return f"{whole}\n"


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for path, text in figures().items():
        path.write_text(text, encoding="utf-8")
    (HERE / "papers.md").write_text(page(), encoding="utf-8")
    print("wrote docs/papers.md")
