"""A keyset is exactly its known members, or it is refused."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.keyset import Keyset, OhttpKey, ReceiptKey, TlsKey, build_keyset, parse_keyset
from tests.attestation import samples


def test_built_keysets_parse_back() -> None:
    ohttp = OhttpKey(key_id=255, kem=0x647A, config_sha256="ab" * 32)
    tls = TlsKey(spki_sha256="cd" * 32, host="localhost")
    receipt = ReceiptKey(kid="r1", alg="Ed25519", x="ef" * 32)
    # a local time with microseconds travels as whole seconds in UTC
    not_after = datetime(2026, 12, 1, 2, 5, 0, 999, tzinfo=timezone(timedelta(hours=2)))

    keyset = parse_keyset(
        build_keyset(
            not_after=not_after,
            replica="worker-0",
            mode="pass-through",
            ohttp=[ohttp],
            tls=[tls],
            receipt=[receipt],
            policy_sha256="00" * 32,
            weights_sha256=["11" * 32],
        )
    )

    assert keyset.not_after == datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
    assert (keyset.ohttp, keyset.tls, keyset.receipt) == ((ohttp,), (tls,), (receipt,))
    assert (keyset.mode, keyset.weights_sha256) == ("pass-through", ("11" * 32,))


_OHTTP = {"key_id": 1, "kem": 32, "config_sha256": "11" * 32}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("v", 2),
        ("v", True),
        ("not_after", "2026-12-01T00:05:00+00:00"),
        ("not_after", "2026-12-1T00:05:00Z"),
        ("not_after", None),
        ("replica", 7),
        ("mode", "open"),
        ("ohttp", None),
        ("ohttp", [_OHTTP, _OHTTP]),
        ("ohttp", [{**_OHTTP, "key_id": 256}]),
        ("ohttp", [{**_OHTTP, "config_sha256": "AA" * 32}]),
        ("ohttp", [{**_OHTTP, "more": 1}]),
        ("tls", [{"spki_sha256": "11" * 32}]),
        ("receipt", [{"kid": "r", "alg": "none", "x": "11" * 32}]),
        ("policy_sha256", "11"),
        ("weights_sha256", ["11" * 32] * 65),
        ("build", {"version": 1}),
        ("build", []),
        ("extra", 1),
    ],
)
def test_bad_members_are_refused(member: str, value: Any) -> None:
    with pytest.raises(AttestationError) as caught:
        parse_keyset({**samples.keyset(), member: value})

    assert caught.value.code == "format"


def _with(**members: Any) -> Keyset:
    return parse_keyset({**samples.keyset(), **members})


@pytest.mark.parametrize(
    ("member", "make", "most"),
    [
        ("ohttp", lambda n: [{**_OHTTP, "key_id": i} for i in range(n)], 255),
        ("tls", lambda n: [{"spki_sha256": "11" * 32, "host": "h"}] * n, 255),
        ("weights_sha256", lambda n: ["11" * 32] * n, 64),
        ("build", lambda n: {str(i): "" for i in range(n)}, 64),
        ("ohttp", lambda n: [{**_OHTTP, "kem": n}], 65535),
        ("ohttp", lambda n: [{**_OHTTP, "key_id": n}], 255),
    ],
)
def test_how_much_a_keyset_holds(member: str, make: Callable[[int], Any], most: int) -> None:
    _with(**{member: make(most)})
    with pytest.raises(AttestationError):
        _with(**{member: make(most + 1)})


def test_what_would_not_parse_is_not_built() -> None:
    ohttp = OhttpKey(key_id=256, kem=32, config_sha256="ab" * 32)
    with pytest.raises(AttestationError):
        build_keyset(
            not_after=samples.AT,
            replica="worker-0",
            mode="terminate",
            ohttp=[ohttp],
            policy_sha256="00" * 32,
        )


def test_a_missing_member_is_refused() -> None:
    keyset = dict(samples.keyset())
    del keyset["tls"]

    with pytest.raises(AttestationError, match="missing tls"):
        parse_keyset(keyset)


def test_pins_are_the_digests_of_all_tls_keys() -> None:
    digests = (b"1" * 32, b"2" * 32)
    keyset = parse_keyset(samples.keyset(tls_keys=digests))
    assert keyset.tls_pins == set(digests)
    assert replace(keyset, tls=()).tls_pins == frozenset()
