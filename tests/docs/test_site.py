"""The documentation as a reader has it: built strictly, opened in a real browser, and searched.

The browser is found, or fetched once, by ``scripts/chromium.sh``; where it cannot start, these tests fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.docs.pages import ROOT

SCRIPT = ROOT / "scripts" / "chromium.sh"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, on loopback."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = subprocess.run(
        ["bash", str(SCRIPT), f"{sys.prefix}/chromium", sys.executable], stdout=subprocess.PIPE, text=True, check=False
    )
    if found.returncode:
        pytest.fail("no browser to open the documentation in: see what scripts/chromium.sh says above")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.stdout.strip())
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def test_the_site_opens_quietly_and_asks_nobody_else(site: str, page: Page) -> None:
    said: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(site)
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").first.inner_text().startswith("Tailrace")
    tabs = [text.strip() for text in page.locator(".md-tabs__link").all_inner_texts()]
    assert tabs[1:] == ["Tutorial", "How-to", "Reference", "Explanation", "Decisions"]
    assert said == []
    assert [url for url in requests if not url.startswith(site)] == []


def test_the_search_finds_an_option_and_leads_to_it(site: str, page: Page) -> None:
    page.goto(site)
    page.locator(".md-search__input").click()
    page.keyboard.type("heartbeatTimeout")
    found = page.locator(".md-search-result__link")
    found.first.wait_for(timeout=30_000)
    addresses = [found.nth(at).get_attribute("href") or "" for at in range(found.count())]
    assert any("reference/options.html" in address for address in addresses), addresses
    found.first.click()
    page.wait_for_url("**/*.html**")
    assert "heartbeatTimeout" in page.locator("article").inner_text()


def test_generated_pages_have_what_the_code_declares(site: str, page: Page) -> None:
    page.goto(f"{site}reference/options.html")
    options = page.locator("article").inner_text()
    for name in ("checkpointLocation", "memory", "shards", "commit"):
        assert name in options
    page.goto(f"{site}reference/cli.html")
    assert "tailrace bench rmw" in page.locator("article").inner_text()
    page.goto(f"{site}reference/api.html")
    words = page.locator("article").inner_text()
    for name in ("session_window", "count_distinct", "applyInWindow", "awaitTermination", "CheckpointError"):
        assert name in words
