"""Copy the figures of a finished study into docs/examples/, and take pictures of its
results/index.html. Run by `make pictures`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
EXAMPLES = DOCS / "examples"
RUN = RESULTS / "ml-100k/loo/sasrec/seed=1"
#: Name, width and height of the window in pixels, colour scheme, what is scrolled to.
VIEWS = (
    ("page_light", 1000, 1100, "light", "header"),
    ("page_dark", 1000, 1100, "dark", "#tables"),
    ("page_phone", 400, 900, "light", "#figures"),
)


def main() -> None:
    """Copy, and take the pictures."""
    EXAMPLES.mkdir(exist_ok=True)
    for figure in sorted(RESULTS.glob("fig?.png")):
        shutil.copy(figure, EXAMPLES)
    shutil.copy(RUN / "learning_curve.png", EXAMPLES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome")
        )
        for name, width, height, scheme, place in VIEWS:
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto((RESULTS / "index.html").resolve().as_uri())
            page.locator(place).first.evaluate("element => element.scrollIntoView()")
            page.screenshot(path=EXAMPLES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
