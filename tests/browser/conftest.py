"""A Chromium, an observatory and a page that reports every console error and foreign request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.browser.observatory import full_house, observatory
from tests.support.patience import PATIENCE_S
from tests.support.resources import chromium_path

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
LAUNCH_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OpenPage = Callable[..., Page]
expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a module: between modules no event loop of Playwright's may be left."""
    path = chromium_path()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=LAUNCH_ARGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def busy_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An observatory with everything there is to see."""
    spans, runs = full_house()
    with observatory(tmp_path_factory.mktemp("busy"), spans=spans, runs=runs) as url:
        yield url


@pytest.fixture
def empty_url(tmp_path: Path) -> Iterator[str]:
    """An observatory on its first day."""
    with observatory(tmp_path) as url:
        yield url


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Open a URL and wait for its numbers; at the end: a screenshot, and no error on the way."""
    name = request.node.name.replace("/", "-")
    complaints: list[str] = []
    with ExitStack() as contexts:
        pages: list[Page] = []

        def open_(url: str, *, width: int = 1440, scheme: str = "light") -> Page:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
                timezone_id="Pacific/Auckland",  # the page must not care
            )
            contexts.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(PATIENCE_S * 1000)
            _listen(page, urlsplit(url).netloc, complaints)
            page.goto(url)
            page.locator("body[data-loaded]").wait_for()
            pages.append(page)
            return page

        yield open_
        ARTIFACTS.mkdir(exist_ok=True)
        for idx, page in enumerate(pages):
            page.screenshot(path=ARTIFACTS / f"{name}-{idx}.png", full_page=True)
    assert complaints == []


def _listen(page: Page, netloc: str, complaints: list[str]) -> None:
    def on_console(message: ConsoleMessage) -> None:
        # A test that takes the API away makes Chromium log the status; everything else counts.
        if message.type in ("error", "warning") and "503 (Service" not in message.text:
            complaints.append(f"console {message.type}: {message.text}")

    def on_request(request: Request) -> None:
        if urlsplit(request.url).netloc != netloc:
            complaints.append(f"request to {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
    page.on("request", on_request)
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
