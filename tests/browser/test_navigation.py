"""Does the URL hold the whole view, and does a refresh leave the reader where they were?"""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.reading import card

pytestmark = pytest.mark.browser


def test_permalink_round_trip(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    page.get_by_role("link", name="6 h").click()
    page.get_by_role("combobox", name="Model").select_option("smollm2-135m")
    page.locator('time-chart[data-chart="itl"]').get_by_text("Numbers").click()
    page.get_by_role("link", name="Show only failed").click()
    page.get_by_role("link", name="Pause").click()
    expected = {
        "window": ["21600"],
        "model": ["smollm2-135m"],
        "open": ["itl"],
        "requests": ["failed"],
        "refresh": ["off"],
    }
    assert parse_qs(urlsplit(page.url).query) == expected
    again = open_page(page.url)
    assert again.url == page.url
    expect(again.get_by_role("link", name="6 h")).to_have_attribute("aria-current", "true")
    expect(again.get_by_role("combobox", name="Model")).to_have_value("smollm2-135m")
    expect(again.locator('time-chart[data-chart="itl"] table')).to_be_visible()
    expect(again.get_by_role("link", name="Show all of the latest")).to_be_visible()
    expect(again.get_by_role("link", name="Resume")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("link", name="Pause")).to_be_visible()


def test_a_url_that_asks_for_nonsense_shows_the_present(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{busy_url}?window=x&until=99999999999&model={'m' * 129}&open=,..&run=none")
    expect(page.get_by_role("link", name="1 h")).to_have_attribute("aria-current", "true")
    expect(page.locator("#notice")).to_be_hidden()


def test_a_run_leads_to_its_window_and_back(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    page.get_by_role("link", name="smoke", exact=True).click()
    query = parse_qs(urlsplit(page.url).query)
    assert query["run"] == ["run-few"]
    assert query.keys() == {"run", "window", "until"}
    expect(page.locator("run-table tbody.selected")).to_contain_text("smoke")
    expect(page.locator("view-controls")).to_contain_text("until")
    page.get_by_role("link", name="Now").click()
    assert urlsplit(page.url).query == ""


def test_dragging_across_a_chart_looks_closer(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    plot = page.locator("time-chart .u-over").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url("**until=*")
    window_s = int(parse_qs(urlsplit(page.url).query)["window"][0])
    assert 800 < window_s < 1000


def test_keyboard_reaches_the_numbers(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the numbers")).to_be_focused()
    plot = page.locator("time-chart .plot").first
    plot.focus()
    legend = page.locator("time-chart .legend").first
    before = legend.inner_text()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("time-chart .cursor-time").first).to_contain_text("from ")
    assert legend.inner_text() != before
    page.keyboard.press("Escape")
    expect(page.locator("time-chart .cursor-time").first).to_have_text("whole window")


def test_refresh_keeps_focus_and_old_numbers(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    page.clock.install()
    page.reload()
    page.locator("body[data-loaded]").wait_for()
    link = page.get_by_role("link", name="24 h")
    link.focus()
    link.evaluate("node => node.classList.add('before')")
    page.clock.run_for(5_100)
    expect(page.locator("a.before")).to_have_count(0)  # drawn anew
    expect(link).to_be_focused()
    page.route("**/api/**", lambda route: route.fulfill(status=503, body=""))
    with page.expect_response("**/api/requests*"):
        page.clock.run_for(5_100)
    notice = page.locator("#notice")
    expect(notice).to_contain_text("Not up to date (the observatory answered 503)")
    expect(notice).to_contain_text("12:00:00 UTC")
    expect(card(page, "TTFT")).to_contain_text("ms")
    page.unroute("**/api/**")
    with page.expect_response("**/api/requests*"):
        page.clock.run_for(5_100)
    expect(notice).to_be_hidden()


def test_empty_window_leads_to_the_data(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{busy_url}/?window=900&until=1700000000")
    expect(page.get_by_role("heading", name="No requests in this window")).to_be_visible()
    page.get_by_role("link", name="Show the last 15 min").click()
    expect(page.locator("time-chart").first).to_be_visible()
