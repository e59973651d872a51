"""Fetch settings: every problem is named at once, and no credential is ever in an address."""

from pathlib import Path

import pytest

from attestation.fetch.config import (
    DEFAULT_URLS,
    FetchConfig,
    load_fetch_config,
    parse_fetch_config,
)
from attestation.fetch.errors import FetchConfigError

_ALL = """
[pcs]
urls = ["https://pccs.internal:8081", "https://api.trustedservices.intel.com"]
root_crl_urls = ["https://pccs.internal:8081/sgx/certification/v4/rootcacrl"]
update = "early"
tcb_evaluation_data_number = 17
[kds]
urls = ["https://kds.internal/amd"]
[rim]
urls = ["http://localhost:1"]
[ocsp]
urls = ["http://[::1]:2"]
[nras]
urls = ["https://nras.internal"]
[network]
proxy = "http://127.0.0.1:3128"
ca_file = "/etc/own-ca.pem"
timeout_s = 5
attempts = 1
[cache]
refresh_after_s = 60
max_bytes = 1000
"""


def test_nothing_set_is_the_vendors_own_services() -> None:
    assert parse_fetch_config({}) == FetchConfig()
    assert all(url.startswith("https://") for urls in DEFAULT_URLS.values() for url in urls)


def test_everything_set(tmp_path: Path) -> None:
    path = tmp_path / "fetch.toml"
    path.write_text(_ALL)

    config = load_fetch_config(path)

    assert config.urls["pcs"][0] == "https://pccs.internal:8081"
    assert config.urls["root_crl"] == ("https://pccs.internal:8081/sgx/certification/v4/rootcacrl",)
    assert config.urls["kds"] == ("https://kds.internal/amd",)
    assert (config.tcb_update, config.tcb_evaluation_data_number) == ("early", 17)
    assert (config.proxy, config.ca_file) == ("http://127.0.0.1:3128", Path("/etc/own-ca.pem"))
    assert (config.timeout_s, config.attempts) == (5, 1)
    assert (config.refresh_after_s, config.max_cache_bytes) == (60, 1000)


def test_the_page_shows_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs" / "collateral.md").read_text()
    for line in _ALL.strip().splitlines():
        name = line.split("=")[0].strip()
        assert f"\n{name}" in page, name


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(FetchConfigError) as caught:
        parse_fetch_config(
            {
                "pcs": {"urls": [], "update": "late", "colour": 1},
                "kds": {"urls": "https://x"},
                "rim": 5,
                "network": {"timeout_s": 0, "attempts": True, "proxy": ""},
                "cache": {"max_bytes": "all"},
                "own": {},
            }
        )

    for name in (
        "pcs.urls",
        "pcs.update",
        "pcs.colour: unknown",
        "kds.urls",
        "rim: not a table",
        "network.timeout_s",
        "network.attempts",
        "network.proxy",
        "cache.max_bytes",
        "own: unknown",
    ):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://pccs.internal",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "https://",
        "ftp://host",
        "https://name:s3cret@host",
        "https://s3cret@host",
        "https://host/?key=s3cret",
        "https://host/#s3cret",
        "https://host?",
        "https://host:port",
        "https://[::1",
        "https://ho st",
        "https://h\u00f6st",
        "https://ho\x1b[31mst",
        "https://host/\x7f",
        "https://[::1]host",
        "https://host[::1]:1",
        "https://[v1.a]",
        "https://127.0.0.256",
        "https://host/" + "x" * 2048,
        "",
    ],
)
def test_addresses_that_are_refused_and_never_repeated(url: str) -> None:
    for table in ({"kds": {"urls": [url]}}, {"network": {"proxy": url}}):
        with pytest.raises(FetchConfigError) as caught:
            parse_fetch_config(table)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(FetchConfigError):
        FetchConfig().with_urls("pcs", (url,))
    with pytest.raises(FetchConfigError):
        FetchConfig().with_network(proxy=url, ca_file=None)


@pytest.mark.parametrize("data", [b"[pcs", b"\xff", b"x = 1\n" * 20000])
def test_files_that_cannot_be_used(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "fetch.toml"
    path.write_bytes(data)
    with pytest.raises(FetchConfigError):
        load_fetch_config(path)
    with pytest.raises(FetchConfigError):
        load_fetch_config(tmp_path / "none.toml")


def test_flags_replace_what_they_name() -> None:
    config = FetchConfig().with_urls("pcs", ("https://a",)).with_urls("kds", ())
    config = config.with_network(proxy=None, ca_file=Path("x"))

    assert config.urls["pcs"] == ("https://a",)
    assert config.urls["kds"] == DEFAULT_URLS["kds"]
    assert (config.proxy, config.ca_file) == (None, Path("x"))
