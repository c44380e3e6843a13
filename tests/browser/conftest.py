"""A browser, a local server, a demo book, and pages that note what they ask for and complain about."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Complaints of the theme on each page, also where there is no widget.
KNOWN_ERRORS = ("Identifier 'THEBE_JS_URL' has already been declared", "Got invalid theme mode: .")


def find_chromium() -> str | None:
    """Return the path of the Chromium or Chrome to drive, as the Makefile finds it."""
    code = "import find_browser as f; print(f.find_browser() or '')"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=True
    )
    return result.stdout.strip() or None


@pytest.fixture(scope="session")
def browser() -> Iterator:
    path = find_chromium()
    if path is None:
        message = (
            "no Chromium or Chrome found: install one (apt install chromium), or set CHROMIUM to its path"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of localhost; give its address."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Visit:
    """One page in its own browser context, with what it asked for outside and what it complained about."""

    def __init__(
        self, browser, url: str, *, width: int = 1280, dark: bool = False, script: bool = True, **options
    ):
        self.base = url
        self.outside: list[str] = []
        self.missing: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 844 if width < 600 else 900},
            java_script_enabled=script,
            color_scheme="dark" if dark else "light",
            has_touch=width < 600,
            **options,
        )
        if dark and script:
            self.context.add_init_script(
                "localStorage.setItem('mode', 'dark'); localStorage.setItem('theme', 'dark')"
            )
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.errors.append(error.message))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("response", lambda r: self.missing.append(r.url) if r.status >= 400 else None)

    def _route(self, route) -> None:
        """Let the page have what is on this machine; note and refuse the rest."""
        url = route.request.url
        if url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:", "about:")):
            route.continue_()
        else:
            self.outside.append(url)
            route.abort()

    def check(self) -> None:
        """Fail when the page asked for anything outside, missed a file, or complained."""
        assert not self.outside, f"{self.base} asks for {self.outside}"
        missing = [url for url in self.missing if not url.endswith("/favicon.ico")]
        assert not missing, f"{self.base} misses {missing}"
        # the browser's own words for a missing favicon
        new = [e for e in self.errors if not e.startswith((*KNOWN_ERRORS, "Failed to load resource"))]
        assert not new, f"{self.base} complains: {new}"

    def check_width(self) -> None:
        """Fail when the page is wider than the screen."""
        wide, screen = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen, f"{self.base} is {wide} pixels wide on a screen of {screen}"


@pytest.fixture
def visit(browser) -> Iterator:
    """Open a page: ``visit(url, width=390, dark=True)``."""
    visits: list[Visit] = []

    def go(url: str, *, wait: bool = True, **options) -> Visit:
        one = Visit(browser, url, **options)
        visits.append(one)
        one.page.goto(url)
        if wait and options.get("script", True):
            wait_for_widgets(one.page)
        return one

    yield go
    for one in visits:
        one.context.close()


def wait_for_widgets(page) -> None:
    """Wait until every widget that the page holds is drawn."""
    page.wait_for_load_state("load")
    page.wait_for_function(
        """() => [...document.querySelectorAll('script[type$="widget-view+json"]')]
             .every((view) => view.parentElement.querySelector('.lm-Widget'))"""
    )
    page.wait_for_function(
        """() => [...document.querySelectorAll('.conceptbind-controls')]
             .every((bar) => bar.parentElement.querySelector('.widget-html-content')?.childNodes.length)"""
    )


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build tests/browser/demo.py into HTML, with the repository's own assets and Sphinx settings."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(ROOT / "book" / "assets", folder / "book" / "assets")
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    kept = {
        key: config[key] for key in ("execute", "parse", "sphinx", "only_build_toc_files") if key in config
    }
    settings = kept["sphinx"]["config"]
    # the demo has no bibliography, and Jupyter Book loads that extension only with one
    kept["sphinx"]["config"] = {k: v for k, v in settings.items() if not k.startswith("bibtex_")}
    # the scripts must stay in their order
    text = yaml.safe_dump({"title": "Demo", **kept}, sort_keys=False)
    (folder / "_config.yml").write_text(text, encoding="utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/demo\n", encoding="utf-8")
    environment = {**os.environ, "CONCEPTBIND_WIDGETS": "book", "PYTHONWARNINGS": "ignore"}
    tools = Path(sys.executable).parent
    for command in (
        [tools / "jupytext", "--quiet", "--to", "ipynb", "-o", folder / "in.ipynb", HERE / "demo.py"],
        [
            tools / "papermill",
            "-k",
            "python3",
            "--no-progress-bar",
            folder / "in.ipynb",
            folder / "book/demo.ipynb",
        ],
        [tools / "jupyter-book", "build", "-W", "-n", "--keep-going", folder],
    ):
        done = subprocess.run(
            list(map(str, command)), env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (
            f"{command[0].name} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return folder / "_build" / "html"


@pytest.fixture(scope="session")
def demo_url(demo_folder: Path) -> Iterator[str]:
    with serve(demo_folder) as address:
        yield f"{address}/book/demo.html"


@pytest.fixture(scope="session")
def serve_folder():
    """Give :func:`serve`: test files cannot import this one."""
    return serve
