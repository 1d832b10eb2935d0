"""Write ``docs/papers.md`` and its figures from what ``leakgauge papers run … --record`` stored.

python docs/make_papers.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.papers.catalogue import tables
from leakgauge.papers.contract import SCALES, Figure, Scale, Table
from leakgauge.papers.gradattack import trade_off as plots
from leakgauge.papers.judging import NOT_SETTLED, Row, judged, judged_again, shown
from leakgauge.papers.recording import command, is_older, recorded, state_of
from leakgauge.report import svg
from leakgauge.report.svg import element, marker, tick

HERE = Path(__file__).parent
FIGURES = HERE / "papers"
COLOURS = ("#0b6e99", "#c2410c", "#1a7a5e", "#8a3d78", "#765700", "#41454f")
TRADE_OFF = "gradattacktable-2-trade-off.svg"
WITHOUT_NUMBER = ("not run", "cannot be run")
FOLDED_ABOVE = 10
"""How many cells without a number are listed in the open."""
WIDTH, HEIGHT, LEFT, TOP = 640.0, 300.0, 64.0, 24.0
HEAD = """# The papers, reproduced

Tables, figures and theorems of the papers that leakgauge builds on, as one command each; our number beside the
paper's. This page is generated (`python docs/make_papers.py`) from stored results; each has its command and commit.

- **reproduced**: same network, data and metric, within the stated tolerance.
- **holds when reduced**: within the tolerance or as claimed, with less of something; what was reduced is listed.
- **differs**: outside the tolerance, or not as claimed; with the reason, as far as it is known.
- **cannot be run**: what is missing is said. **not run**: nobody has recorded it yet.
- **measured**: the paper has no such number, or a `smoke` has it beside the paper's without comparing.
- **smoke only**: of a table, that nothing but stand-ins for the paper's data was judged, at the smallest scale.

The paper's column has its number with the tolerance that we allow, or what it says in words as ≥ or ≤. "(our bar)"
marks a bar that the paper does not state; not every table marks its own yet. The verdict follows from our mean alone. A
cell is **not settled** if its mean meets the bar and part of its interval does not. "Older than its code" says that a
reproduction's own file or settings have changed since it was recorded.

Left out, because they print no measured number: Tables 3 and 4 of the Bayesian framework (the layers of its networks
ConvBig and ConvNet), and of GradAttack's paper Table 1 (what earlier attacks assume) and Table 4 (which images each of
its experiments uses). Of the figures, Figure 1 of the Bayesian framework and that of LRP illustrate a text;
GradAttack's Figures 3, 6, 7 and 9 to 12 are pictures of what its Tables 2 and 5 count; its Figures 4 and 5, pictures by
the weight of a prior, were not repeated.

`leakgauge papers` prints the list, `leakgauge papers run bayes/table-2 --scale small --workers 2` runs one; the
scales are `smoke` (seconds; other data or networks stand in), `small` (minutes on two cores) and `full` (the paper's
sizes). A `smoke` compares no printed number; it asks whether the finding is there at all, of two or three images, and
its wide intervals say how little that proves. [How to add one](how-to/add-a-reproduction.md).

The drawings are SVG of our own, from the numbers that are stored with the sources: they need no further package, are
the same to the byte on every machine (a test compares them), and stay sharp. Intervals are 95 % of the mean over
images or runs; a "differs" without a known reason says so.

"""


def page() -> str:
    known = tables()
    parts = [HEAD, "| | what | state |\n|---|---|---|\n"]
    parts += [f"| [`{name}`](#{anchor(name)}) | {one.title} | {state_of(one)} |\n" for name, one in known.items()]
    for one in known.values():
        parts.append(section(one))
    return "".join(parts).replace("``", "`")  # docstrings mark code as reStructuredText does


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
    if table.name == "gradattack/table-2":
        lines.append(f"\n![The plot beside Table 2: {plots.FIGURE.y}, by {plots.FIGURE.x}](papers/{TRADE_OFF})\n")
    if result is None:
        return "".join([*lines, *scales(table, ()), unmeasured(judged(table, None, {}))])
    lines.append(f"\n    {result['command']}\n")
    lines.append(
        f"\nCommit {result['commit']}, {result['date']}, {result['seconds']:.0f} processor seconds; "
        f"{result['machine']}.\n"
    )
    if is_older(table, result):
        lines.append("\nOlder than its code: what this reproduction computes has changed since; run it again.\n")
    if result["reduced"]:
        lines.append(f"\nReduced: {'; '.join(result['reduced'])}.\n")
    lines += [rows_of(judged_again(table, result), result), *remarks(table, result)]
    lines += scales(table, SCALES[: SCALES.index(result["scale"]) + 1])
    for how, _ in panels(table, result):
        lines.append(f"\n![{table.title}: {how.y} by {how.x}](papers/{panel_name(table, how)})\n")
    if result.get("pictures"):
        lines.append(f"\n![{table.title}: pictures](papers/{anchor(table.name)}-pictures.svg)\n")
    return "".join(lines)


def scales(table: Table, without: Sequence[Scale]) -> list[str]:
    """The commands of the other scales, and what each reduces."""
    others = [(scale, table.sizes[scale]) for scale in SCALES if scale in table.sizes and scale not in without]
    return [
        f"\nNot recorded: `{command(table, scale)}`{'; reduced: ' if size.reduced else ''}{'; '.join(size.reduced)}.\n"
        for scale, size in others
    ]


def remarks(table: Table, result: Mapping[str, Any]) -> list[str]:
    """What units of work noted, where no row of that name shows it."""
    shown = {row["name"] for row in result["rows"]}
    units = table.sizes[result["scale"]].work if result["scale"] in table.sizes else ()
    return [f"\n{unit}: {note}.\n" for unit, note in result["notes"].items() if unit in units and unit not in shown]


def unmeasured(rows: Sequence[Row]) -> str:
    """Cells without a number of ours, with the paper's: those of one reason together, long lists folded."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict in WITHOUT_NUMBER:
            head = f"{row.verdict.capitalize()}{', ' + row.why if row.why else ''}"
            groups.setdefault(head, []).append(f"{row.name} ({row.paper})" if row.paper else row.name)
    return "".join(listed(head, names) for head, names in groups.items())


def listed(head: str, names: Sequence[str]) -> str:
    text = "; ".join(names)
    if len(names) <= FOLDED_ABOVE:
        return f"\n{head}: {text}.\n".replace("|", "\\|")
    return f"\n<details><summary>{head}: {len(names)} cells</summary>\n\n{text}.\n\n</details>\n"


def trade_off() -> str:
    """The plot beside GradAttack's Table 2, of both halves of the table."""
    known = tables()
    halves = [recorded(known[f"gradattack/{name}"]) for name in ("table-2-utility", "table-2")]
    rows = [half["rows"] if half else [] for half in halves]
    curves = plots.printed() | plots.ours(*rows)
    return drawn(curves, plots.FIGURE, "Table 2: leakage against accuracy")


def figures() -> dict[Path, str]:
    """The drawings of every table that has curves, and the pictures of every table that shows them."""
    drawings: dict[Path, str] = {FIGURES / TRADE_OFF: trade_off()}
    for table in tables().values():
        result = recorded(table)
        if result is None:
            continue
        for how, curves in panels(table, result):
            drawings[FIGURES / panel_name(table, how)] = drawn(curves, how, table.title)
        if result.get("pictures"):
            drawings[FIGURES / f"{anchor(table.name)}-pictures.svg"] = grid(result["pictures"], table.title)
    return drawings


def panels(table: Table, result: Mapping[str, Any]) -> list[tuple[Figure, dict[str, Any]]]:
    """Every drawing of a table with the finite points of its curves, if one has more than a point."""
    finite = {
        name: [point for point in some if all(map(math.isfinite, point))] for name, some in result["curves"].items()
    }
    chosen = [
        (how, {name.removesuffix(how.of): some for name, some in finite.items() if name.endswith(how.of) and some})
        for how in table.figures
    ]
    return [(how, curves) for how, curves in chosen if any(len(points) > 1 for points in curves.values())]


def panel_name(table: Table, how: Figure) -> str:
    number = table.figures.index(how)
    return f"{anchor(table.name)}{f'-{number + 1}' if number else ''}.svg"


def rows_of(rows: Sequence[Row], result: Mapping[str, Any]) -> str:
    """The rows that were measured, each with its reason or note, then those that were not."""
    same = "; ".join(result["reduced"])
    measured = [row for row in rows if row.verdict not in WITHOUT_NUMBER]
    lines = ["\n| cell | paper | ours | verdict | remark |\n|---|---|---|---|---|\n"] if measured else []
    for row in measured:
        ours = "" if row.value is None else f"{shown(row.value)} {row.unit}".strip()
        if row.low is not None:
            ours += f" [{row.low:.4g}, {row.high:.4g}]"
        why = "" if row.why == same else row.why
        why = why if row.settled else NOT_SETTLED
        remark = "; ".join(text for text in (why, result["notes"].get(row.name, "")) if text)
        name, remark = (text.replace("|", "\\|") for text in (row.name, remark))
        lines.append(f"| {name} | {row.paper} | {ours} | {row.verdict} | {remark} |\n")
    return "".join(lines) + unmeasured(rows)


def drawn(curves: Mapping[str, Sequence[Sequence[float]]], how: Figure, title: str) -> str:
    """One line per curve, with its own marker and colour, and a legend."""

    def moved(value: float, log: bool) -> float:
        return math.log10(max(value, 1e-300)) if log else value

    points = {
        name: sorted((moved(x, how.log_x), moved(y, how.log_y)) for x, y in some) for name, some in curves.items()
    }
    xs, ys = ([point[i] for some in points.values() for point in some] for i in (0, 1))
    x = svg.Scale(min(xs), max(xs), LEFT, WIDTH - 20)
    y = svg.Scale(min(ys), max(ys), TOP + HEIGHT, TOP)
    parts = [*axis(x, how.log_x, vertical=False), *axis(y, how.log_y, vertical=True)]
    for i, (name, some) in enumerate(points.items()):
        colour, place = COLOURS[i % len(COLOURS)], TOP + HEIGHT + 60 + 18 * i
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in some)
        look, dash = f"c{i}", {"stroke_dasharray": "6 3"} if i >= len(COLOURS) else {}
        parts.append(element("style", f".{look} {{ fill: {colour} }}"))
        parts.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width="1.5", **dash))
        parts += [marker(i, x(a), y(b), look, 3.5) for a, b in some] if len(some) < 30 else []
        parts += [marker(i, LEFT + 6, place - 4, look, 4.0), element("text", name, x=LEFT + 18, y=place)]
    parts.append(element("text", how.x, x=(LEFT + WIDTH) / 2, y=TOP + HEIGHT + 36, text_anchor="middle"))
    parts.append(element("text", how.y, x=4, y=12))
    return whole(title, WIDTH, TOP + HEIGHT + 60 + 18 * len(points), parts)


def axis(scale: svg.Scale, log: bool, *, vertical: bool) -> list[str]:
    """Grid lines and their numbers."""
    parts: list[str] = []
    ticks = scale.ticks()
    decades = [value for value in ticks if abs(value - round(value)) < 1e-9]
    for value in decades if log and len(decades) > 1 else ticks:
        at = scale(value)
        label = (f"{10**value:,.0f}" if value >= 1 else f"{10**value:.3g}") if log else tick(value)
        if vertical:
            parts.append(element("line", y1=at, y2=at, x1=LEFT, x2=WIDTH - 20, stroke="#ddd"))
            parts.append(element("text", label, x=LEFT - 6, y=at + 4, text_anchor="end"))
        else:
            parts.append(element("line", x1=at, x2=at, y1=TOP, y2=TOP + HEIGHT, stroke="#ddd"))
            parts.append(element("text", label, x=at, y=TOP + HEIGHT + 16, text_anchor="middle"))
    return parts


def grid(rows: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """Rows of pictures, each under its name, twice as large as they are."""
    parts: list[str] = []
    top = 0.0
    for name, row in sorted(rows.items(), key=lambda pair: not pair[0].endswith("original")):
        size = {"width": 2 * row["width"], "height": 2 * row["height"]}
        parts.append(element("text", name, x=4, y=top + 16))
        source = f"data:image/png;base64,{row['png']}"
        parts.append(element("image", href=source, x=4, y=top + 22, style="image-rendering: pixelated", **size))
        top += size["height"] + 30
    return whole(title, max([320.0, *(2.0 * row["width"] + 8 for row in rows.values())]), top, parts)


def whole(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    drawing = element(
        "svg",
        element("title", title),
        element("style", "text { font: 13px sans-serif; fill: #222 }"),
        element("rect", width=width, height=height, fill="#fff"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        role="img",
    )
    return f"{drawing}\n"


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    drawings = figures()
    for old in set(FIGURES.glob("*.svg")) - set(drawings):
        old.unlink()
    for path, text in drawings.items():
        path.write_text(text, encoding="utf-8")
    (HERE / "papers.md").write_text(page(), encoding="utf-8")
    print("wrote docs/papers.md")
