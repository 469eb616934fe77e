"""Pages in a real browser. Needs Chromium: without one these tests fail, as they should."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def launch() -> Iterator[Browser]:
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert executable, "No Chromium was found: install it (Debian: apt-get install chromium), or name it in $CHROMIUM."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass(frozen=True)
class Heard:
    """All that a page complained of or asked for."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def listen_to(page: Page) -> Heard:
    heard = Heard()
    page.on("console", lambda message: heard.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda fault: heard.complaints.append(str(fault)))
    page.on("request", lambda request: heard.requests.append(request.url))
    return heard
