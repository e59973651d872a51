"""Values are taken in one spelling only."""

from collections.abc import Callable

import pytest

from attestation import strict_json
from attestation.errors import AttestationError


@pytest.mark.parametrize(
    "read",
    [
        lambda: strict_json.hex_bytes("aa bb", "x", num_bytes=2),
        lambda: strict_json.hex_bytes("aabb", "x", num_bytes=1),
        lambda: strict_json.hex_bytes("zz", "x", num_bytes=1),
        lambda: strict_json.integer(-1, "x"),
        lambda: strict_json.integer(True, "x"),
        lambda: strict_json.integer(256, "x", maximum=255),
        lambda: strict_json.text(None, "x"),
        lambda: strict_json.array({}, "x", max_items=1),
        lambda: strict_json.array([1, 2], "x", max_items=1),
        lambda: strict_json.utc_time("2026-12-01", "x"),
        lambda: strict_json.utc_time("2026-12-01T00:00:60Z", "x"),
        lambda: strict_json.utc_time("2026-2-01T00:00:00Z", "x"),
        lambda: strict_json.sha256_hex("AB" * 32, "x"),
        lambda: strict_json.require_keys([], "x", required=frozenset()),
    ],
)
def test_other_spellings_are_refused(read: Callable[[], object]) -> None:
    with pytest.raises(AttestationError) as caught:
        read()

    assert caught.value.code == "format"


def test_vendor_hex_may_be_upper_case() -> None:
    assert strict_json.hex_bytes("AbCd", "x", num_bytes=2) == b"\xab\xcd"
