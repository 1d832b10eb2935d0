"""The page of the standings: Markdown, with the interval and the command of every row."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from leakgauge.attacks.standard import Standard
from leakgauge.audit.store import canonical
from leakgauge.standings.rows import Score
from leakgauge.standings.set_ups import VERSION, Client

_HEAD = """\
# Standings, version {version}

Written by `leakgauge standings`{size}. Each row is one client under one defense against one attack: the mean SSIM of
{updates} updates' records with its 95 % interval (higher is worse for the client), the mean PSNR (at most 100 dB for a
record), how many records are recognisable (SSIM of at least 0.5), and the command that measures it again. Clients,
defenses, seeds and budgets are fixed by the version: rows of one version can be compared, yours among them.
Plain attacks take {evaluations} steps per update; some add a second stage, and spend up to twice as many evaluations
(`standings.json` has the number of every row). `standard()`, version {standard}, also chooses its settings, on records
that are not reported. A low score says what these attacks reach and proves nothing, and what a defense costs in
accuracy is not in it.
"""
EXACT = 100.0
"""The PSNR in dB from which a record counts as copied: one exact copy would outweigh all others in a mean."""
NO_UPDATE = "a guess without any update"
_PUBLISHED = "† Published with leakgauge: measured elsewhere, by parts of the same versions, and not in this folder."


def page(scores: Sequence[Score], notes: Sequence[str] = ()) -> str:
    """The page of these rows, of one size."""
    size = scores[0].row.size
    head = _HEAD.format(
        version=VERSION,
        size=" --quick" if size.name == "quick" else "",
        updates=size.updates,
        evaluations=f"{size.evaluations:,}",
        standard=Standard.version,
    )
    # clients in the order of their first row: rows of one's own may come last
    clients = list(dict.fromkeys(score.row.client for score in scores))
    marked = [_PUBLISHED] if any(score.published for score in scores) else []
    parts = [head, *(f"{note}\n" for note in (*notes, *marked)), _summary(scores, clients), _attacks(scores)]
    parts += [_client(client, [score for score in scores if score.row.client == client]) for client in clients]
    return "\n".join(parts)


def _summary(scores: Sequence[Score], clients: Sequence[Client]) -> str:
    """Defense by client: the highest mean SSIM of any attack."""
    lines = [
        "## The strongest attack on every defense",
        "",
        "Highest mean SSIM, and which attack reached it; below, the null: the mean image of the class.",
        "",
    ]
    lines += _table(["defense", *(client.name for client in clients)])
    for defense in dict.fromkeys(score.row.defense for score in scores):
        cells = [_code(defense)]
        for client in clients:
            best = strongest(scores, client, defense)
            cells.append("" if best is None else f"{best.interval.mean:.2f} {_code(best.row.attack.partition('(')[0])}")
        lines.append(_line(cells))
    blind = [guessed(scores, client) for client in clients]
    lines.append(_line([f"*{NO_UPDATE}*", *("" if one is None else f"{one:.2f}" for one in blind)]))
    return "\n".join([*lines, ""])


def guessed(scores: Sequence[Score], client: Client) -> float | None:
    """The mean SSIM of the mean image of the class, a guess without any update; None where nothing was scored."""
    return next((score.blind for score in scores if score.row.client == client and not score.fault), None)


def strongest(scores: Sequence[Score], client: Client, defense: str) -> Score | None:
    """The row with the highest mean SSIM among those of a client under a defense; None where no attack applies."""
    here = [s for s in scores if s.row.client == client and s.row.defense == defense and not s.fault]
    return max(here, key=lambda s: s.interval.mean, default=None)


def _attacks(scores: Sequence[Score]) -> str:
    """Attacks that met every defense of every client here, by their mean SSIM where all of them apply."""
    met: dict[str, dict[tuple[Client, str], Score]] = {}
    for score in scores:
        met.setdefault(score.row.attack, {})[score.row.client, score.row.defense] = score
    pairs = dict.fromkeys((score.row.client, score.row.defense) for score in scores)
    general = [attack for attack, rows in met.items() if len(rows) == len(pairs)]
    common = [pair for pair in pairs if not any(met[attack][pair].fault for attack in general)]
    if len(general) < 2 or not common:
        return ""
    every = {pair: [rows[pair] for rows in met.values() if pair in rows and not rows[pair].fault] for pair in common}
    highest = {pair: max(_shown(score) for score in rows) for pair, rows in every.items()}
    means = {attack: sum(met[attack][pair].interval.mean for pair in common) / len(common) for attack in general}
    lines = ["## Attacks that meet every defense", ""]
    lines += [
        f"Their mean over the {len(common)} pairs of client and defense to which all of them apply, and in how many"
    ]
    lines += ["of these no attack on this page is above them (to two decimals).", ""]
    lines += _table(["attack", "mean SSIM", "none above it"])
    for attack in sorted(general, key=lambda one: -means[one]):
        first = sum(_shown(met[attack][pair]) == highest[pair] for pair in common)
        lines.append(_line([_code(attack), f"{means[attack]:.3f}", f"{first} of {len(common)}"]))
    return "\n".join([*lines, ""])


def _shown(score: Score) -> float:
    return round(score.interval.mean, 2)


def _client(client: Client, scores: Sequence[Score]) -> str:
    lines = [f"## {client.name}", "", f"{client.about}."]
    blind = guessed(scores, client)
    if blind is not None:
        lines.append(f"A guess without any update, the mean image of the class, has a mean SSIM of {blind:.2f}.")
    lines += ["", *_table(["defense", "attack", "SSIM", "PSNR", "recognisable", "command"])]
    order = list(dict.fromkeys(score.row.defense for score in scores))
    ranked = sorted(scores, key=lambda s: (order.index(s.row.defense), -s.interval.mean if not s.fault else 1.0))
    lines += [_line(_row(score)) for score in ranked if not score.fault]
    failed = [score for score in ranked if score.fault]
    if failed:
        lines += ["", "Does not apply:", ""]
        lines += [f"- {_code(s.row.attack)} against {_code(s.row.defense)}: {_text(s.fault or '')}" for s in failed]
    return "\n".join([*lines, ""])


def _row(score: Score) -> list[str]:
    between = score.interval
    psnr = sum(min(value, EXACT) for value in score.psnr) / len(score.psnr)
    return [
        _code(score.row.defense),
        _code(score.row.attack),
        f"{between.mean:.3f} [{between.low:.3f}, {between.high:.3f}]{' †' if score.published else ''}",
        f"{psnr:.1f} dB",
        f"{score.recognised} of {len(score.ssim)}",
        _code(score.row.command),
    ]


def _table(heads: Sequence[str]) -> list[str]:
    return [_line(heads), _line(["---"] * len(heads))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """Code in a cell of a table; a bar would end the cell."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>"


def _text(text: str) -> str:
    return escape(" ".join(text.split()), quote=False)


def summary(scores: Sequence[Score]) -> str:
    """The same rows as JSON."""
    return canonical({"version": VERSION, "rows": [score.as_json() for score in scores]})


__all__ = ["NO_UPDATE", "guessed", "page", "strongest", "summary"]
