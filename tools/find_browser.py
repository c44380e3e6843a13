"""Print the Chromium or Chrome that the browser tests can drive; exit 1 if there is none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MACOS = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)


def find_browser() -> str | None:
    """Give the path of `CHROMIUM`, of a browser on the PATH, or of the one that playwright installed."""
    if given := os.environ.get("CHROMIUM"):
        return given
    for name in NAMES:
        if path := shutil.which(name):
            return path
    for path in MACOS:
        if Path(path).exists():
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


if __name__ == "__main__":
    browser = find_browser()
    print(browser or "no Chromium or Chrome found")
    sys.exit(0 if browser else 1)
