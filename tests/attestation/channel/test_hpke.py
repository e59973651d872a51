"""HPKE against RFC 9180's own vectors, and the rules that no vector shows."""

import json
from typing import Any

import pytest

from attestation.channel.errors import DecryptFailed, KeyConfigError, UnsupportedSuite
from attestation.channel.hkdf import MAX_EXPAND_BYTES, expand
from attestation.channel.hpke import (
    KEM_X25519,
    KEM_XWING,
    PrivateKey,
    Suite,
    new_aead,
    setup_recipient,
    setup_sender,
)
from tests.attestation.channel.keys import fixed_rng
from tests.support.resources import vectors_dir

MODE_BASE = 0

# RFC 9180 Appendix A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode.
A1_INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
A1_SK_E = bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736")
A1_SK_R = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
A1_PT = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
A1_ENC = "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
A1_CT_0 = (
    "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
)
A1_EXPORT_EMPTY = "3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee"


def load(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((vectors_dir() / "protocol" / name).read_text())[
        "vectors"
    ]
    return vectors


def suite_of(vector: dict[str, Any]) -> Suite:
    return Suite(vector["kem_id"], vector["kdf_id"], vector["aead_id"])


def test_rfc9180_appendix_a1() -> None:
    recipient_key = PrivateKey.from_bytes(A1_SK_R)
    suite = Suite(KEM_X25519)
    ephemeral = PrivateKey.from_bytes(A1_SK_E)
    sender = setup_sender(recipient_key.public_key, A1_INFO, suite, ephemeral=ephemeral)
    assert sender.enc.hex() == A1_ENC
    assert sender.seal(b"Count-0", A1_PT).hex() == A1_CT_0
    assert sender.export(b"", 32).hex() == A1_EXPORT_EMPTY


def test_every_rfc9180_vector_is_met_or_refused() -> None:
    num_met = 0
    for vector in load("hpke_rfc9180.json"):
        suite = suite_of(vector)
        if suite.is_supported and vector["mode"] == MODE_BASE:
            check_vector(vector)
            num_met += 1
        elif not suite.is_supported:
            with pytest.raises(UnsupportedSuite):
                setup_sender(bytes.fromhex(vector["pkRm"]), b"", suite)
    assert num_met == 2  # the file has base mode with AES-128-GCM and AES-256-GCM


def check_vector(vector: dict[str, Any]) -> None:
    info, suite = bytes.fromhex(vector["info"]), suite_of(vector)
    private_key = PrivateKey.from_bytes(bytes.fromhex(vector["skRm"]))
    ephemeral = PrivateKey.from_bytes(bytes.fromhex(vector["skEm"]))
    assert private_key.public_key.hex() == vector["pkRm"]
    sender = setup_sender(private_key.public_key, info, suite, ephemeral=ephemeral)
    recipient = setup_recipient(sender.enc, private_key, info, suite)
    assert sender.enc.hex() == vector["enc"]
    expected = {entry["seq"]: entry for entry in vector["encryptions"]}
    assert sorted(expected) == [0, 1, 2, 4, 255, 256]
    for sequence in range(257):
        entry = expected.get(sequence, {"aad": "", "pt": "00", "ct": None})
        aad, plaintext = bytes.fromhex(entry["aad"]), bytes.fromhex(entry["pt"])
        sealed = sender.seal(aad, plaintext)
        assert entry["ct"] in (None, sealed.hex())
        assert recipient.open(aad, sealed) == plaintext
    for export in vector["exports"]:
        context = bytes.fromhex(export["exporter_context"])
        assert sender.export(context, export["L"]).hex() == export["exported_value"]
        assert recipient.export(context, export["L"]).hex() == export["exported_value"]


def test_pq_draft_vectors_open_or_are_refused() -> None:
    num_opened = 0
    for vector in load("hpke_pq_draft.json"):
        suite, info = suite_of(vector), bytes.fromhex(vector["info"])
        if not suite.is_supported:
            with pytest.raises(UnsupportedSuite):
                setup_sender(bytes.fromhex(vector["pkRm"]), info, suite)
            continue
        key = PrivateKey.from_bytes(bytes.fromhex(vector["skRm"]), suite.kem_id)
        assert key.public_key.hex() == vector["pkRm"]
        assert key.decapsulate(bytes.fromhex(vector["enc"])).hex() == vector["shared_secret"]
        recipient = setup_recipient(bytes.fromhex(vector["enc"]), key, info, suite)
        for entry in vector["encryptions"]:
            opened = recipient.open(bytes.fromhex(entry["aad"]), bytes.fromhex(entry["ct"]))
            assert opened.hex() == entry["pt"]
        for export in vector["exports"]:
            context = bytes.fromhex(export["exporter_context"])
            assert recipient.export(context, export["L"]).hex() == export["exported_value"]
        num_opened += 1
    assert num_opened == 1


def test_xwing_vectors_open() -> None:
    for vector in load("hpke_xwing_singleshot.json"):
        key = PrivateKey.from_bytes(bytes.fromhex(vector["skR_seed"]), vector["kem_id"])
        assert key.public_key.hex() == vector["pkR"]
        enc, info = bytes.fromhex(vector["enc"]), bytes.fromhex(vector["info"])
        recipient = setup_recipient(enc, key, info, suite_of(vector))
        assert recipient.open(b"", bytes.fromhex(vector["ct"])).hex() == vector["pt"]


@pytest.mark.parametrize("kem_id", [KEM_X25519, KEM_XWING])
@pytest.mark.parametrize("aead_id", [1, 2, 3])
def test_round_trip_with_fresh_keys(kem_id: int, aead_id: int) -> None:
    key, suite = PrivateKey.generate(kem_id), Suite(kem_id, 1, aead_id)
    sender = setup_sender(key.public_key, b"info", suite)
    recipient = setup_recipient(sender.enc, key, b"info", suite)
    for message in (b"", b"one", b"two" * 1000):
        assert recipient.open(b"aad", sender.seal(b"aad", message)) == message
    assert sender.export(b"x", 77) == recipient.export(b"x", 77)


def test_a_failed_open_leaves_the_sequence_where_it_was() -> None:
    key, suite = PrivateKey.generate(), Suite(KEM_X25519)
    sender = setup_sender(key.public_key, b"", suite)
    recipient = setup_recipient(sender.enc, key, b"", suite)
    sealed = sender.seal(b"", b"message")
    for bad in (sealed[:-1], b"", sealed + b"\x00", bytes(len(sealed))):
        with pytest.raises(DecryptFailed):
            recipient.open(b"", bad)
    assert recipient.open(b"", sealed) == b"message"


@pytest.mark.parametrize("kem_id", [KEM_X25519, KEM_XWING])
def test_another_info_or_key_does_not_open(kem_id: int) -> None:
    key, suite = PrivateKey.generate(kem_id), Suite(kem_id)
    sender = setup_sender(key.public_key, b"info", suite)
    sealed = sender.seal(b"", b"message")
    for other_key, info in ((key, b"other"), (PrivateKey.generate(kem_id), b"info")):
        with pytest.raises(DecryptFailed):
            setup_recipient(sender.enc, other_key, info, suite).open(b"", sealed)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_low_order_points_are_refused(point: bytes) -> None:
    suite = Suite(KEM_X25519)
    with pytest.raises(KeyConfigError):
        setup_sender(point, b"", suite)
    with pytest.raises(DecryptFailed) as caught:
        setup_recipient(point, PrivateKey.generate(), b"", suite)
    assert caught.value.detail == "decrypt"


def test_wrong_lengths_and_foreign_kems_are_refused() -> None:
    key, suite = PrivateKey.generate(), Suite(KEM_X25519)
    with pytest.raises(KeyConfigError):
        setup_sender(key.public_key + b"\x00", b"", suite)
    with pytest.raises(KeyConfigError):
        setup_sender(b"\xff" * 1216, b"", Suite(KEM_XWING))  # not reduced modulo q
    with pytest.raises(KeyConfigError):
        PrivateKey.from_bytes(bytes(31))
    with pytest.raises(UnsupportedSuite):
        PrivateKey.generate(0x0010)
    with pytest.raises(UnsupportedSuite):
        new_aead(0xFFFF, b"")
    with pytest.raises(UnsupportedSuite):
        setup_recipient(bytes(1120), key, b"", Suite(KEM_XWING))
    with pytest.raises(DecryptFailed) as caught:
        setup_recipient(bytes(31), key, b"", suite)
    assert caught.value.detail == "malformed"


def test_secrets_stay_out_of_repr() -> None:
    secret = fixed_rng("secret")(32)
    for kem_id in (KEM_X25519, KEM_XWING):
        key = PrivateKey.from_bytes(secret, kem_id)
        sender = setup_sender(key.public_key, b"", Suite(kem_id))
        recipient = setup_recipient(sender.enc, key, b"", Suite(kem_id))
        text = repr((key, sender, recipient, vars(type(key)).get("__slots__")))
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text


def test_hkdf_lengths_are_bounded() -> None:
    assert len(expand(bytes(32), b"", MAX_EXPAND_BYTES)) == MAX_EXPAND_BYTES
    for length in (-1, MAX_EXPAND_BYTES + 1):
        with pytest.raises(ValueError, match="HKDF length"):
            expand(bytes(32), b"", length)
    # RFC 5869 test case 1
    prk = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    okm = expand(prk, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), 42).hex()
    assert okm.startswith("3cb25f25faacd57a90434f64d0362f2a")
    assert okm.endswith("34007208d5b887185865")
