"""A report in Debian's Chromium, opened from disk: what it says, fetches and shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
CONTRAST = """
() => {
  const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const colour = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const c = colour(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || node.closest("script, style, title, desc")) continue;
    const ink = node.closest("svg") ? getComputedStyle(node).fill : getComputedStyle(node).color;
    const [a, b] = [light(colour(ink)), light(behind(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), Boolean(node.closest(".card")), walker.currentNode.textContent.trim()]);
  }
  return found;
}
"""
"""[contrast of a text with what is behind it, whether it stands in a verdict card, the text]."""
PIXELS = "Promise.all([...document.images].map((i) => i.decode().then(() => [i.naturalWidth, i.clientWidth])))"
OPEN = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
COLUMN = "[...document.querySelectorAll('#records tbody tr')].map((r) => Number(r.cells[{place}].dataset.value))"


class Watched:
    """A page, with everything it said and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(**options)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())


@dataclass(frozen=True)
class Seen:
    """What a browser made of a report."""

    said: list[str]
    fetched: list[str]
    images: int
    blank: int
    sorts: bool
    contrast: dict[str, float]


def examine(path: Path, shots: Path | None = None, browser: Any = None) -> Seen:
    """Open a report in both colour schemes; with ``shots``, keep a screenshot of each."""
    if browser is None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as started:
            return examine(path, shots, started.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS))
    contrast, said, fetched = {}, [], []
    for scheme in ("light", "dark"):
        seen = Watched(browser, path, color_scheme=scheme)
        if shots is not None:
            seen.page.screenshot(path=shots / f"{scheme}.png", full_page=True)
        seen.page.evaluate(OPEN)
        sizes = seen.page.evaluate(PIXELS)
        contrast[scheme] = min(ratio for ratio, *_ in seen.page.evaluate(CONTRAST))
        sorts = _sorts(seen.page)
        said += seen.said
        fetched += [url for url in seen.asked if not url.startswith("data:") and url != path.as_uri()]
    return Seen(said, fetched, len(sizes), sum(min(size) < 2 for size in sizes), sorts, contrast)


PAINTED = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
)


def opening(path: Path) -> float:
    """Seconds from the navigation to a report until it is loaded and painted, by the browser's own clock."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(path.as_uri())
        return float(page.evaluate(PAINTED)) / 1000


def _sorts(page: Any) -> bool:
    """Whether the score column of the records sorts both ways, by keyboard."""
    heads = page.locator("#records thead th").all_inner_texts()
    place = next(i for i, head in enumerate(heads) if head.strip().startswith(("ssim", "psnr", "share of features")))
    button = page.locator("#records thead th").nth(place).locator("button")
    orders = []
    for descending in (False, True):
        button.press("Enter")
        column = page.evaluate(COLUMN.replace("{place}", str(place)))
        orders.append(column == sorted(column, reverse=descending) and len(set(column)) > 1)
    return all(orders)
