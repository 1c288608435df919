"""The pictures of the page in README and docs, taken from the running page: make screenshots."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright

from nextapp.page.application import ServedPage, open_page
from nextapp.page.phone_room import synthetic_person

IMAGES = Path(__file__).parent / "images"
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDTH, HEIGHT = 1240, 1010
PATIENCE = 600_000  # ms: the first run compiles


def main() -> None:
    chromium = os.environ.get("NEXTAPP_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no browser here: apt-get install -y chromium")
    IMAGES.mkdir(exist_ok=True)
    with open_page() as page, sync_playwright() as driver:
        thread = threading.Thread(target=page.run)
        thread.start()
        try:
            browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            for scheme in ("light", "dark"):
                tab = _opened(browser, page, scheme)
                _take_phone(tab, IMAGES / f"page-phone-{scheme}.png")
                _take_crowd(tab, IMAGES / f"page-crowd-{scheme}.png")
                _take_log(tab, IMAGES / f"page-log-{scheme}.png")
                tab.context.close()
            browser.close()
        finally:
            page.server.should_exit = True
            thread.join()


def _opened(browser: Any, page: ServedPage, scheme: str) -> Tab:
    context = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
    tab: Tab = context.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(page.file.as_uri())
    tab.wait_for_url(f"http://127.0.0.1:{page.port}/")
    tab.goto(f"http://127.0.0.1:{page.port}/#phone")
    return tab


def _take_phone(tab: Tab, file: Path) -> None:
    tab.wait_for_selector("#suggestions .app")
    tab.fill("#speed", "5")
    tab.click("#play")
    while int(tab.inner_text("#played").split()[0]) < 200:
        tab.wait_for_timeout(100)
    tab.click("#play")
    tab.wait_for_timeout(500)
    tab.set_viewport_size({"width": WIDTH, "height": 1190})  # with the whole chart
    _take(tab, file)
    tab.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def _take_crowd(tab: Tab, file: Path) -> None:
    tab.click("nav a[data-room=crowd]")
    tab.wait_for_selector("#curve svg circle >> nth=9", state="attached")
    _take(tab, file)


def _take_log(tab: Tab, file: Path) -> None:
    tab.click("nav a[data-room=log]")
    tab.set_input_files(
        "#file", {"name": "synthetic-person.csv", "mimeType": "text/csv", "buffer": _log()}
    )
    tab.wait_for_selector("#portrait .card")
    tab.locator("#portrait").scroll_into_view_if_needed()
    tab.evaluate("document.getElementById('portrait').scrollIntoView()")
    tab.evaluate("scrollBy(0, -80)")
    tab.wait_for_timeout(400)
    tab.screenshot(path=file)
    tab.click("#forget")


def _take(tab: Tab, file: Path) -> None:
    tab.evaluate("scrollTo(0, 0)")
    tab.mouse.move(2, 2)
    tab.wait_for_timeout(400)
    tab.screenshot(path=file)


def _log() -> bytes:
    """A synthetic person's launches as a CSV file."""
    rows = [
        f"{datetime.fromtimestamp(when, UTC).isoformat()},{app}"
        for app, when in synthetic_person(4).launches
    ]
    return "\n".join(["timestamp,app_name", *rows]).encode()


if __name__ == "__main__":
    main()
