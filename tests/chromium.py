"""Pages in a real browser: the one named in $CHROMIUM, an installed Chromium or Chrome, or playwright's own.

`python -m tests.chromium`, which `make test` runs once, downloads playwright's where no other starts.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Error, Page, sync_playwright

INSTALLED = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DOWNLOAD_SECONDS = 300


class NoBrowserError(Exception):
    """None starts; says how to get one."""


def find() -> str | None:
    """None: playwright's own, if it was downloaded."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, INSTALLED)), None)


@contextmanager
def launch() -> Iterator[Browser]:
    executable = find()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        except Error:
            failed = f"{executable} does not start" if executable else None
            raise NoBrowserError(failed or "install Chromium or Chrome, or name one in $CHROMIUM") from None
        yield browser
        browser.close()


def starts() -> bool:
    try:
        with launch():
            return True
    except NoBrowserError:
        return False


def download() -> None:
    """Best effort, within a bounded time; processes that the installer started end with it."""
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    silence = subprocess.DEVNULL
    installer = subprocess.Popen(command, stdout=silence, stderr=silence, start_new_session=True)
    try:
        installer.wait(DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(installer.pid, signal.SIGKILL)
        installer.wait()


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


if __name__ == "__main__" and not starts() and find() is None:
    download()
