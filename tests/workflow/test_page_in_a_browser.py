"""results/index.html in a real browser: opens from disk alone, in both colour schemes,
on a phone's width, and from the keyboard.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

#: Contrast of text that WCAG 2.2 asks for at level AA.
CONTRAST = 4.5
# Of each element with text of its own: the relative luminances (WCAG) of its colour and
# of the ground behind it.
LUMINANCES = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = colour => numbers(colour).slice(0, 3)
    .map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = element => {
    const colour = getComputedStyle(element).backgroundColor;
    const above = element.parentElement;
    return numbers(colour)[3] === 0 && above ? ground(above) : colour;
  };
  return [...document.body.querySelectorAll("*")]
    .filter(element => [...element.childNodes]
      .some(node => node.nodeType === 3 && node.textContent.trim()))
    .map(element => [luminance(getComputedStyle(element).color), luminance(ground(element))]);
}"""

# What is cut: cells that hold more than they show, or that do not scroll into sight;
# figures that are not to be seen; words of a chart that stick out of it.
CUT = """() => {
  const inside = (element, box) => {
    const {left, right} = element.getBoundingClientRect();
    return left >= box.left - 1 && right <= box.right + 1;
  };
  const scrolls = element => {
    const box = element.closest(".scroll");
    if (!box || getComputedStyle(box).overflowX !== "auto") return false;
    const {left} = box.getBoundingClientRect();
    return inside(element, {left, right: left + box.scrollWidth});
  };
  const cells = [...document.querySelectorAll("th, td")]
    .filter(cell => cell.scrollWidth > cell.clientWidth || !scrolls(cell));
  const figures = [...document.querySelectorAll("figure img")]
    .filter(image => !image.checkVisibility() || image.clientWidth < 100 || !scrolls(image));
  const words = [...document.querySelectorAll("svg text")]
    .filter(text => !inside(text, text.ownerSVGElement.getBoundingClientRect()));
  return [...cells, ...figures, ...words].map(element => element.outerHTML.slice(-200));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if not found:
        pytest.skip("no chromium here: the page is not opened in a browser (Debian: chromium)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found)
        yield running
        running.close()


def opened(
    browser: Browser, finished: Path, width: int = 1200, scheme: str = "light"
) -> tuple[Page, list[str], list[str]]:
    """The page, what the browser complained of, and what it asked for."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((finished / "results/index.html").as_uri())
    return page, complaints, requests


def unfold(page: Page) -> None:
    """Open all that is folded."""
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")


def test_it_loads_by_itself_and_shows_every_figure(browser: Browser, finished: Path):
    page, complaints, requests = opened(browser, finished)
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [
        (finished / "results/index.html").as_uri()
    ]
    images = page.locator("img")
    assert images.count() == len(list((finished / "results").glob("fig*.svg")))
    folded = page.locator("details img")
    assert 0 < folded.count() < images.count() and not folded.first.is_visible()
    unfold(page)
    for image in images.all():
        assert image.evaluate("image => image.complete && image.naturalWidth > 300")
        image.scroll_into_view_if_needed()
        assert image.is_visible() and image.get_attribute("alt")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_can_be_read(browser: Browser, finished: Path, width: int, scheme: str):
    """Nothing sticks out of the window (wide tables scroll by themselves), text has
    contrast and is no smaller than 12 pixels.
    """
    page, _, _ = opened(browser, finished, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT) == []
    luminances = page.evaluate(LUMINANCES)
    assert len(luminances) > 100
    for pair in luminances:
        dark, light = sorted(pair)
        assert (light + 0.05) / (dark + 0.05) >= CONTRAST
    text, ground = luminances[0]
    assert (text > ground) == (scheme == "dark")
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, li, td, th, figcaption, pre')].map(e =>"
        " parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    page.close()


def test_it_can_be_used_from_the_keyboard(browser: Browser, finished: Path):
    """Tab comes to every link and to everything that scrolls, and shows where it is;
    arrows scroll, Enter follows.
    """
    page, _, _ = opened(browser, finished, width=400)
    page.locator("#settings summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("details pre").is_visible()
    page.reload()
    unfold(page)
    stops = page.locator("a[href], [tabindex='0'], summary").count()
    assert stops >= 5
    reached = set()
    for _ in range(stops):
        page.keyboard.press("Tab")
        where = page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)")
        outline = page.evaluate(
            "(({outlineStyle, outlineWidth}) => outlineStyle +"
            " outlineWidth)(getComputedStyle(document.activeElement))"
        )
        assert "none" not in outline and not outline.endswith(" 0px")
        reached.add(where)
    assert len(reached) == stops
    wide = page.locator(".scroll").filter(has=page.locator("table")).first
    assert wide.evaluate("element => element.scrollWidth > element.clientWidth")
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("element => element.scrollLeft > 0", arg=wide.element_handle())
    link = page.locator("nav a").last
    link.press("Enter")
    page.wait_for_url("**#settings")
    page.close()
