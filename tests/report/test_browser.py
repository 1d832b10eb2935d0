"""The report in a real browser, from disk: it works, it is legible, it fetches nothing.

Needs Debian's Chromium (``apt-get install chromium``) and playwright; without them these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evidence.browser import ARGUMENTS, CHROMIUM, CONTRAST, Watched, examine
from leakgauge.report import report
from tests.report.samples import ALL, make

HOSTILE = "<script>console.error('run')</script>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is absent; apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make(tmp_path_factory.mktemp("browser") / "run", {"none": "exact", **ALL, HOSTILE: "detectable"}, (0, 10))
    return report(folder, formats=["html"])[0]


def test_it_opens_from_disk_and_fetches_nothing(browser: Any, path: Path) -> None:
    seen = Watched(browser, path)
    seen.page.wait_for_timeout(200)
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith("data:")] == [path.as_uri()]
    assert seen.page.locator("script").count() == 1


def test_every_image_has_pixels(browser: Any, path: Path) -> None:
    seen = Watched(browser, path)
    seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    sizes = seen.page.evaluate(
        "Promise.all([...document.images].map((i) => i.decode().then(() => [i.naturalWidth, i.clientWidth])))"
    )
    assert len(sizes) == 2 * 7 * 3 * 3  # checkpoints, finished defenses, records, pictures
    assert all(natural > 1 and shown > 1 for natural, shown in sizes)


def test_tables_sort_by_keyboard(browser: Any, path: Path) -> None:
    page = Watched(browser, path).page
    head = page.locator("#records th", has_text="ssim")
    head.locator("button").focus()
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        assert head.get_attribute("aria-sort") == order
        column = page.evaluate(
            "[...document.querySelectorAll('#records tbody tr')].map((r) => Number(r.cells[4].dataset.value))"
        )
        assert column == sorted(column, reverse=order == "descending")
        assert len(set(column)) > 3
    assert page.locator("#records th[aria-sort=none]").count() == page.locator("#records thead th").count() - 1


def test_verdicts_sort_by_severity_and_unknown_numbers_stay_last(browser: Any, path: Path) -> None:
    page = Watched(browser, path).page
    page.locator("#defenses th", has_text="verdict").locator("button").press("Enter")
    words = page.locator("#defenses tbody .badge").all_inner_texts()
    assert words[0] == "no evidence"
    assert words[-1] == "invalid"
    for _ in range(2):
        page.locator("#defenses th", has_text="gain").locator("button").press("Enter")
        gains = page.evaluate("[...document.querySelectorAll('#defenses tbody tr')].map((r) => r.cells[3].textContent)")
        assert gains[-4:] == ["–"] * 4
        assert "–" not in gains[:-4]


def test_the_first_tab_stop_skips_to_the_verdicts(browser: Any, path: Path) -> None:
    page = Watched(browser, path).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#verdicts"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(browser: Any, path: Path, scheme: str) -> None:
    page = Watched(browser, path, color_scheme=scheme).page
    found = page.evaluate(CONTRAST)
    cards = [ratio for ratio, card, _ in found if card]
    assert len(cards) > 50
    assert min(cards) >= 4.5
    assert not [(round(ratio, 2), text) for ratio, _, text in found if ratio < 4.5]


def test_it_prints_and_fits_a_narrow_screen(browser: Any, path: Path) -> None:
    page = Watched(browser, path, viewport={"width": 360, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_examined_as_the_demo_is(browser: Any, path: Path) -> None:
    seen = examine(path, browser=browser)
    assert (seen.said, seen.fetched, seen.blank, seen.sorts) == ([], [], 0, True)
    assert min(seen.contrast.values()) >= 4.5
