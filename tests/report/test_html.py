"""The HTML report: verdicts first, nothing from outside, nothing unescaped, nothing private when redacted."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from leakgauge.audit.judge.words import WORDS
from leakgauge.report import charts, html, read
from leakgauge.report.exhibits import exhibits
from leakgauge.report.html import MOST_ROWS
from leakgauge.report.pictures import data_uri
from tests.report.samples import ALL, make, originals

HOSTILE = '<script>alert("x")</script><img src=http://evil.example/a.png onerror=alert(1)>'


class Page(HTMLParser):
    """Tags with their attributes, and whether every opened tag is closed."""

    VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_verdicts_come_before_pictures_and_numbers(tmp_path: Path) -> None:
    text = html(read(make(tmp_path / "run")))
    order = [text.index(f'id="{name}"') for name in ("verdicts", "pictures", "scores", "tables", "ledger", "reproduce")]
    assert order == sorted(order)
    assert "No evidence of leakage through the defense; this is no proof of safety" in text
    assert "no proven bound" in text
    assert "membership and property inference are not tested" in text


def test_every_verdict_has_its_word_its_meaning_and_its_own_icon(tmp_path: Path) -> None:
    text = html(read(make(tmp_path / "run", ALL)))
    assert len({m.icon for m in WORDS.values()}) == len(WORDS)
    for meaning in WORDS.values():
        assert f'data-verdict="{meaning.word}"' in text
        assert meaning.plain in text


@pytest.mark.parametrize("word", ["too weak", "incomplete", "invalid"])
def test_what_could_not_be_judged_is_never_called_safe(tmp_path: Path, word: str) -> None:
    text = html(read(make(tmp_path / "run", {"noisy": word}, (0, 10))))
    title = text.split("<h1>")[1].split("</h1>")[0]
    assert "No evidence" not in title
    assert "could not be judged" in title or "cannot be used" in title


def test_a_worse_checkpoint_decides_the_card(tmp_path: Path) -> None:
    from tests.report.samples import defense

    checkpoints = [
        {"step": step, "accuracy": 0.1 + step / 20, "defenses": [defense("noisy", word)]}
        for step, word in ((0, "no evidence"), (9, "detectable"))
    ]
    text = html(read(make(tmp_path / "run", checkpoints=checkpoints)))
    assert text.count('data-verdict="detectable"') == 1
    assert 'data-verdict="no evidence"' not in text
    assert "Leakage over training" in text


def test_stroke_and_picture_show_the_same_median(tmp_path: Path) -> None:
    from tests.report.samples import defense

    made = defense("noisy", "detectable")
    scores = [0.4, 0.35, 0.3, 0.12, 0.1, 0.0]
    rows = [{**made["records"][0], "record": i, "row": min(i, 4), "score": s} for i, s in enumerate(scores)]
    made["records"] = rows
    run = read(make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}]))
    checkpoint = run.result.checkpoints[0]
    assert [e.row.score for e in exhibits(run, checkpoint.defenses[0])] == [0.4, 0.3, 0.0]
    drawing = str(charts.distributions(run.result, checkpoint))
    x = charts._scores_axis(run.result, checkpoint.defenses)
    strokes = [float(v) for v in re.findall(r'x1="([\d.]+)"[^>]*class="median"', drawing)]
    assert strokes[0] == pytest.approx(x(0.21), abs=0.05)  # between 0.30 and 0.12


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", {HOSTILE: "exact", "none": "too weak"}, (0, 5), faults={HOSTILE: HOSTILE})
    page = Page(html(read(folder)))
    assert len(page.of("script")) == 1
    assert all((i["src"] or "").startswith("data:image/png;base64,") for i in page.of("img"))
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]


def test_nothing_comes_from_outside(tmp_path: Path) -> None:
    text = html(read(make(tmp_path / "run", ALL, (0, 10))))
    page = Page(text)
    for tag, attrs in page.tags:
        for key in ("src", "href"):
            value = attrs.get(key)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"url\(|@import|https?://", text)
    assert not page.of("link")
    assert not any("style" in attrs for _, attrs in page.tags)  # the policy would refuse them
    policy = next(m["content"] for m in page.of("meta") if m.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_pictures_have_alternatives_and_the_page_a_language(tmp_path: Path) -> None:
    page = Page(html(read(make(tmp_path / "run"))))
    assert page.of("html") == [{"lang": "en"}]
    assert len(page.of("img")) == 2 * 3 * 3  # two defenses, three records, three pictures
    assert all(i["alt"] for i in page.of("img"))
    assert [a for a in page.of("a") if a.get("class") == "skip"]
    assert all("aria-sort" in th for th in page.of("th") if th.get("aria-sort") is not None)


def test_redaction_leaves_no_picture_and_no_label(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    open_, closed = html(read(folder)), html(read(folder, redact=True))
    pixels = [data_uri(original) for original in originals()]
    assert any(p in open_ for p in pixels if p)
    assert not any(p in closed for p in pixels if p)
    assert "data:image" not in closed
    assert not Page(closed).of("img")
    assert ">label<" in open_
    assert ">label<" not in closed
    assert "redacted" in closed


def test_a_missing_or_broken_picture_does_not_stop_the_report(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    (folder / "records.safetensors").unlink()
    (folder / "cells" / "aa.safetensors").write_bytes(b"\x00broken")
    assert html(read(folder)).count("no picture stored") == 2 * 3 * 2


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", ALL, (0, 10))
    assert html(read(folder)) == html(read(folder))


@pytest.mark.parametrize("count", [1, 2])
def test_few_records_are_shown_once_each(tmp_path: Path, count: int) -> None:
    from tests.report.samples import defense

    few = defense("noisy", "detectable")
    few["records"] = few["records"][:count]
    page = Page(html(read(make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [few]}]))))
    assert len(page.of("img")) == 3 * count


def test_of_very_many_records_the_most_exposed_are_listed(tmp_path: Path) -> None:
    """Ten thousand rows, and as many dots twice, would keep a browser busy for seconds."""
    from tests.report.samples import defense

    many = defense("noisy", "detectable")
    first, *_ = many["records"]
    many["records"] = [{**first, "record": i, "score": round(0.9 - 1e-5 * i, 6)} for i in range(10_000)]
    run = make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [many]}])
    text = html(read(run))
    rows = re.findall(r'<td class="number" data-value="(\d+)">\1</td>', text[text.index('id="records"') :])
    assert rows[0] == "0"
    assert text.count("<tr>") < 1.2 * MOST_ROWS
    assert f"of a defense the {MOST_ROWS} most exposed are listed" in text
    assert 2 <= text.count("<circle") < 2000


def test_pictures_are_png_of_images_only() -> None:
    made = data_uri(originals()[0])
    assert made is not None
    assert base64.b64decode(made.partition(",")[2]).startswith(b"\x89PNG")
    assert data_uri(originals()[0][0]) is None
    assert data_uri(None) is None
