"""Does the dashboard show what the observatory knows, in every scheme and width?"""

import gzip

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.observatory import HOSTILE
from tests.browser.reading import CONTRAST, card, clock, duration, seconds, worker
from tests.support.resources import dashboard_dir

pytestmark = pytest.mark.browser

MAX_GZIP_BYTES = 100_000


def test_bundle_is_under_100_kilobytes_gzipped() -> None:
    sizes = {f.name: len(gzip.compress(f.read_bytes(), 9)) for f in dashboard_dir().iterdir()}
    assert sizes.keys() >= {"index.html", "app.js", "app.css", "favicon.svg"}
    assert sum(sizes.values()) < MAX_GZIP_BYTES


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 820, 360])
def test_page_fits_its_width(busy_url: str, open_page: OpenPage, scheme: str, width: int) -> None:
    page = open_page(busy_url, width=width, scheme=scheme)
    expect(page.get_by_role("heading", name="Starshade observatory")).to_be_visible()
    expect(page.locator("time-chart canvas")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(busy_url: str, open_page: OpenPage, scheme: str) -> None:
    page = open_page(busy_url, scheme=scheme)
    ratios = page.evaluate(CONTRAST)
    assert len(ratios) > 100
    assert [found for found in ratios if found["ratio"] < 4.5] == []


def test_key_numbers_carry_their_samples_and_sums(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    totals = page.request.get(f"{busy_url}/api/overview").json()["totals"]
    ttft = card(page, "TTFT")
    expect(ttft).to_contain_text(duration(totals["ttft_s"]["p50"]))
    expect(ttft).to_contain_text(duration(totals["ttft_s"]["p99"]))
    count = totals["ttft_s"]["count"]
    assert 300 <= count < 3000  # enough for p90, too few for p99
    expect(ttft).to_contain_text(f"few samples (n={count}): p99")
    cached, prompt = totals["cached_tokens"], totals["prompt_tokens"]
    expect(card(page, "Cache hit rate")).to_contain_text(f"{cached:,} of {prompt:,} prompt tokens")
    hit_rate = f"{100 * cached / prompt:.0f}\u00a0% · {cached:,} of {prompt:,} prompt tokens"
    expect(page.locator('time-chart[data-chart="cache"]')).to_contain_text(hit_rate)
    expect(card(page, "Requests")).to_contain_text(f"{totals['errors']} (")


@pytest.mark.parametrize(
    ("key", "columns"), [("ttft", 3), ("itl", 3), ("e2e", 3), ("requests", 1), ("cache", 1)]
)
def test_table_twin_equals_the_chart(
    busy_url: str, open_page: OpenPage, key: str, columns: int
) -> None:
    page = open_page(busy_url)
    chart = page.locator(f'time-chart[data-chart="{key}"]')
    chart.get_by_text("Numbers").click()
    rows = chart.locator("tbody tr").evaluate_all(
        "rs => rs.map(r => [...r.cells].map(c => c.textContent))"
    )
    plotted = chart.evaluate("chart => chart.plotted")
    drawn = {
        clock(time_s): [series[idx] for series in plotted[1:]]
        for idx, time_s in enumerate(plotted[0])
        if plotted[1][idx]
    }
    assert len(rows) == len(drawn) > 20
    first = 3 if key == "requests" else 1
    for cells in rows:
        got = [seconds(cell) for cell in cells[first : first + columns]]
        assert got == pytest.approx(
            drawn[cells[0]][:columns], rel=0.006, abs=0.006 if key == "cache" else 0
        )


def test_few_samples_are_marked_in_words_in_the_runs(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    few = page.locator("run-table tbody", has=page.get_by_role("link", name="smoke", exact=True))
    expect(few).to_contain_text("few samples (n=42)")
    expect(few).to_contain_text("few samples (n=630): p99")
    expect(few).to_contain_text("valid")
    many = page.locator("run-table tbody", has=page.get_by_role("link", name="steady 10 req/s"))
    expect(many).to_contain_text("n=3,197")
    expect(many).not_to_contain_text("few samples")
    expect(many).to_contain_text("not valid: generator late")


def test_trust_is_said_in_words(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    badge = "trust-badge"
    expect(worker(page, "worker-0").locator(badge)).to_have_text("warning")
    expect(worker(page, "worker-1").locator(badge)).to_have_text("affirming")
    rejected = worker(page, "worker-2")
    expect(rejected.locator(badge)).to_have_text("contraindicated: tcb_status")
    expect(rejected).to_contain_text("firmware level")
    expired = worker(page, "worker-3")
    expect(expired.locator(badge)).to_have_text("expired (was affirming)")
    assert expired.locator(badge).get_attribute("data-tier") == "none"
    expect(worker(page, "worker-1")).to_contain_text("42\u00a0s ago")
    expect(worker(page, "worker-1")).to_contain_text("for another 1\u00a0h")
    expect(page.get_by_role("note")).to_contain_text("SIMULATED TEE: the evidence of worker-0")


def test_names_that_try_to_be_markup_stay_text(busy_url: str, open_page: OpenPage) -> None:
    page = open_page(busy_url)
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    expect(page.locator("request-table")).to_contain_text(HOSTILE)
    expect(page.locator("option", has_text=HOSTILE)).to_have_count(1)
    assert page.locator('img[src="x"]').count() == 0


def test_first_day_says_what_to_do(empty_url: str, open_page: OpenPage) -> None:
    page = open_page(empty_url)
    expect(page.get_by_role("heading", name="No requests yet")).to_be_visible()
    expect(page.locator("#empty code")).to_have_text("starshade load run smoke")
    expect(page.locator("worker-list")).to_contain_text("starshade up")
    expect(page.locator("run-table")).to_contain_text("starshade load run smoke")
    expect(page.locator("time-chart").first).to_be_hidden()
    expect(page.get_by_role("note")).to_be_hidden()
