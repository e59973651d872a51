"""Are profiles read strictly, with an error that names the key?"""

from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import ProfileError
from loadtest.load_profile import load_profile, parse_profile, profile_names

GOOD: dict[str, Any] = {
    "description": "d",
    "seed": 1,
    "max_in_flight": 4,
    "arrivals": {"kind": "poisson", "rate_per_s": 2},
    "phases": {"warmup_s": 0, "measure_s": 1.5},
    "workload": {
        "prompt_words_min": 1,
        "prompt_words_max": 2,
        "shared_prefix_words": 0,
        "shared_prefixes": 0,
        "output_tokens_min": 1,
        "output_tokens_max": 2,
    },
    "slo": {"ttft_s": 1.0},
}


def test_every_shipped_profile_loads() -> None:
    assert "smoke" in profile_names()
    for name in profile_names():
        assert load_profile(name).name == name


def test_a_whole_number_is_a_rate() -> None:
    assert parse_profile(GOOD, name="p").arrivals.rate_per_s == 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "unknown key 'colour'"),
        ({"arrivals": {"kind": "uniform", "rate_per_s": 2}}, "arrivals.kind"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": 0}}, "arrivals.rate_per_s"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": float("nan")}}, "arrivals.rate_per_s"),
        ({"arrivals": {"kind": "poisson"}}, "arrivals: missing"),
        ({"phases": {"warmup_s": -1, "measure_s": 1}}, "phases.warmup_s"),
        ({"phases": {"warmup_s": 0, "measure_s": 1e9}}, "exceed"),
        ({"seed": True}, "profile.seed"),
        ({"seed": "1"}, "profile.seed"),
        ({"slo": None}, "[slo] is missing"),
        ({"workload": {**GOOD["workload"], "prompt_words_max": 0}}, "prompt_words"),
        ({"workload": {**GOOD["workload"], "shared_prefix_words": 5}}, "shared_prefixes"),
    ],
)
def test_a_bad_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile({**GOOD, **change}, name="p")
    assert message in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ProfileError, match="smoke"):
        load_profile("no-such-profile")


@pytest.mark.parametrize("text", [b"\xff\xfe = [", b"a = " + b"[" * 9999, b"a = " + b"9" * 9999])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text)
    with pytest.raises(ProfileError, match="not TOML"):
        load_profile(str(path))
