"""Nitro documents with exactly one fault each: the code that must be found, and by which check.

Each is the good document with one fact changed, signed anew where it is signed, so that no earlier
check can hide the one under test. All are judged at AT under POLICY and the three bindings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from tests.attestation.nitro.samples import (
    AT,
    INSTANCE,
    LEAF,
    PCRS,
    POLICY,
    REGIONAL,
    ROOT,
    ZONAL,
    Document,
    Indefinite,
    Raw,
    Tagged,
    cbor,
    good_document,
    leaf,
    with_chain,
    with_members,
    with_parts,
)
from tests.support import p384

_PAST = AT - timedelta(seconds=1)
_MADE_AT_MS = int(AT.timestamp() * 1000)
_UNMEASURED: dict[str, Any] = {**POLICY, "measurements": {"mode": "not_checked"}}


@dataclass(frozen=True)
class Case:
    """``make`` gives the faulty document, ``policy`` what to judge it under."""

    change: str
    code: str | None
    check: str | None
    make: Callable[[], Document]
    policy: dict[str, Any] | None = None


def _format(change: str, *, drop: tuple[str, ...] = (), **members: Any) -> Case:
    return Case(change, "format", "document_format", lambda: with_members(drop, **members))


def _outer(change: str, edit: Callable[[bytes], bytes], code: str = "format") -> Case:
    return Case(change, code, "document_format", lambda: with_parts(edit=edit))


def _payload(change: str, edit: Callable[[bytes], bytes], code: str = "format") -> Case:
    """A payload that is edited before it is signed."""

    def make() -> Document:
        payload = edit(cbor(Indefinite(good_document().members)))
        return with_parts(payload=payload)

    return Case(change, code, "document_format", make)


def _chain(change: str, code: str, index: int, make: Callable[[], Any]) -> Case:
    """One certificate of the chain, leaf first, replaced."""
    return Case(
        change,
        code,
        "dates" if code == "certificate_time" else "document_chain",
        lambda: with_chain(lambda chain: chain.__setitem__(index, make())),
    )


def _pcrs(**changes: Any) -> dict[int, Any]:
    return {**PCRS, **{int(name[3:]): value for name, value in changes.items()}}


def _flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _sign_wide(name: str, data: bytes) -> bytes:
    """The same two numbers, the second in a byte more."""
    signature = p384.sign(name, data)
    return signature[:48] + b"\0" + signature[48:]


def _after(text: bytes, edit: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Edits what follows the one place where ``text`` is."""

    def apply(data: bytes) -> bytes:
        before, after = data.split(text)
        return before + text + edit(after)

    return apply


GOOD: tuple[Case, ...] = (
    Case("tagged", None, None, lambda: with_parts(edit=lambda data: b"\xd2" + data)),
    Case("map of definite length", None, None, lambda: with_parts(is_map_definite=True)),
    Case(
        "one PCR more",
        None,
        None,
        lambda: with_members(pcrs=_pcrs(pcr31=bytes(48))),
    ),
)

_FORMAT: tuple[Case, ...] = (
    _outer("empty", lambda data: b""),
    _outer("cut short", lambda data: data[:-1]),
    _outer("a byte more", lambda data: data + b"\0", "trailing_bytes"),
    _outer("tagged twice", lambda data: b"\xd2\xd2" + data),
    _outer("another tag", lambda data: b"\xd1" + data),
    _outer("array of indefinite length", lambda data: b"\x9f" + data[1:] + b"\xff"),
    _outer("array of three", lambda data: b"\x83" + data[1:-98]),
    _payload("payload that is no map", lambda data: cbor([1])),
    _payload("a byte more in the payload", lambda data: data + b"\0", "trailing_bytes"),
    _payload("member that occurs twice", lambda data: data[:-1] + cbor("nonce") + b"\xf6\xff"),
    _payload("number not in shortest form", _after(b"pcrs\xb0", lambda data: b"\x18" + data)),
    _payload(
        "text of indefinite length",
        lambda data: data.replace(b"\x66SHA384", b"\x7f\x66SHA384\xff"),
    ),
    _payload("text that is not UTF-8", lambda data: data.replace(b"i-0-enc0", b"i-0-enc\xff")),
    _payload("key that is a byte string", lambda data: data[:-1] + b"\x41a\xf6\xff"),
    _format("float", timestamp=Raw(b"\xfb" + bytes(8))),
    _format("tag inside", timestamp=Tagged(1, _MADE_AT_MS)),
    _format("undefined", nonce=Raw(b"\xf7")),
    _format("nested too deeply", user_data=[[[[]]]]),
    _format("array that claims too much", cabundle=Raw(b"\x9b" + b"\xff" * 8)),
    _format("string that claims too much", nonce=Raw(b"\x5b" + b"\xff" * 8)),
    _format("member missing", drop=("module_id",)),
    _format("unknown member", comment="x"),
    _format("another digest", digest="SHA512"),
    _format("no module", module_id=""),
    _format("no time", timestamp=0),
    _format("time beyond every calendar", timestamp=1 << 60),
    _format("PCR of 32 bytes", pcrs=_pcrs(pcr0=bytes(range(32)))),
    _format("PCR 32", pcrs=_pcrs(pcr32=bytes(48))),
    _format("PCR with a name", pcrs={**PCRS, "0": bytes(48)}),
    _format("no PCRs", pcrs={}),
    Case(
        "certificate that is no certificate",
        "format",
        "document_chain",
        lambda: with_members(certificate=b"\x30\0"),
    ),
    _format("certificate of 1025 bytes", certificate=bytes(1025)),
    _format("empty cabundle", cabundle=[]),
    _format("cabundle of 8", cabundle=[bytes(1)] * 8),
    _format("empty public key", public_key=b""),
    _format("public key of 1025 bytes", public_key=bytes(1025)),
    _format("user data of 513 bytes", user_data=bytes(513)),
    _format("nonce of 513 bytes", nonce=bytes(513)),
    Case(
        "unprotected header",
        "format",
        "document_format",
        lambda: with_parts(unprotected={4: b"key id"}),
    ),
    Case(
        "protected header with more",
        "format",
        "document_format",
        lambda: with_parts(protected=Raw(cbor({1: -35, 4: b"key id"}))),
    ),
    Case(
        "alg ES256",
        "algorithm",
        "document_format",
        lambda: with_parts(protected=Raw(cbor({1: -7}))),
    ),
    Case(
        "alg in the unprotected header",
        "algorithm",
        "document_format",
        lambda: with_parts(protected=b"", unprotected={1: -35}),
    ),
)

_CHAIN: tuple[Case, ...] = (
    _chain(
        "own root of the same name",
        "untrusted_root",
        4,
        lambda: p384.certificate(ROOT, ROOT, is_ca=True, key_name="x", issuer_key="x"),
    ),
    Case(
        "chain in the other order",
        "chain_order",
        "document_chain",
        lambda: with_members(cabundle=good_document().members["cabundle"][::-1]),
    ),
    Case(
        "certificate left out",
        "chain_order",
        "document_chain",
        lambda: with_chain(lambda chain: chain.pop(2)),
    ),
    _chain(
        "instance signed by another key",
        "chain_signature",
        1,
        lambda: p384.certificate(INSTANCE, ZONAL, path_length=0, issuer_key=REGIONAL),
    ),
    _chain(
        "issuer that is no CA",
        "chain",
        1,
        lambda: p384.certificate(INSTANCE, ZONAL, is_ca=False, usage={"key_cert_sign": False}),
    ),
    _chain(
        "issuer that may not sign certificates",
        "chain",
        1,
        lambda: p384.certificate(
            INSTANCE,
            ZONAL,
            path_length=0,
            usage={"key_cert_sign": False, "digital_signature": True},
        ),
    ),
    _chain(
        "path longer than allowed",
        "chain",
        3,
        lambda: p384.certificate(REGIONAL, ROOT, path_length=1),
    ),
    _chain("leaf that is a CA", "chain", 0, lambda: leaf(is_ca=True)),
    _chain(
        "leaf that may not sign",
        "signer_role",
        0,
        lambda: leaf(usage={"digital_signature": False, "key_agreement": True}),
    ),
    _chain(
        "leaf that may sign certificates too",
        "signer_role",
        0,
        lambda: leaf(usage={"key_cert_sign": True}),
    ),
    _chain("leaf on P-256", "bad_key", 0, lambda: leaf(curve=ec.SECP256R1())),
    _chain("leaf expired", "certificate_time", 0, lambda: leaf(not_after=_PAST)),
    _chain(
        "instance expired",
        "certificate_time",
        1,
        lambda: p384.certificate(INSTANCE, ZONAL, path_length=0, not_after=_PAST),
    ),
    _chain(
        "leaf of the future",
        "certificate_time",
        0,
        lambda: leaf(not_before=AT + timedelta(seconds=1)),
    ),
    Case(
        "made before its certificate",
        "certificate_time",
        "dates",
        lambda: with_members(timestamp=_MADE_AT_MS - 301_000),
    ),
)

_SIGNATURE: tuple[Case, ...] = (
    Case(
        "payload edited",
        "cose_signature",
        "document_signature",
        lambda: with_parts(edit=lambda data: data.replace(b"i-0-enc0f", b"i-0-enc1f")),
    ),
    Case(
        "signature flipped",
        "cose_signature",
        "document_signature",
        lambda: with_parts(edit=_flip_last),
    ),
    Case(
        "signed by the instance",
        "cose_signature",
        "document_signature",
        lambda: with_parts(signer=INSTANCE),
    ),
    Case(
        "signature of zeros",
        "cose_signature",
        "document_signature",
        lambda: with_parts(sign=lambda name, data: bytes(96)),
    ),
    Case(
        "signature of 97 bytes",
        "cose_signature",
        "document_signature",
        lambda: with_parts(sign=_sign_wide),
    ),
    Case(
        "signature in DER",
        "cose_signature",
        "document_signature",
        lambda: with_parts(sign=p384.sign_der),
    ),
    Case(
        "leaf with another key",
        "cose_signature",
        "document_signature",
        lambda: with_chain(lambda chain: chain.__setitem__(0, leaf(key_name=f"other {LEAF}"))),
    ),
)

_POLICY: tuple[Case, ...] = (
    Case(
        "older than the policy wants",
        "evidence_age",
        "document_age",
        good_document,
        {**POLICY, "max_age_s": 1},
    ),
    Case(
        "from the future",
        "evidence_age",
        "document_age",
        lambda: with_members(timestamp=_MADE_AT_MS + 60_001),
    ),
    Case(
        "debug",
        "debug_enabled",
        "debug_off",
        lambda: with_members(pcrs=_pcrs(pcr0=bytes(48), pcr1=bytes(48), pcr2=bytes(48))),
        _UNMEASURED,
    ),
    Case(
        "PCR2 of zeros",
        "debug_enabled",
        "debug_off",
        lambda: with_members(pcrs=_pcrs(pcr2=bytes(48))),
        _UNMEASURED,
    ),
    Case(
        "PCR2 missing",
        "debug_enabled",
        "debug_off",
        lambda: with_members(pcrs={0: PCRS[0], 1: PCRS[1]}),
        _UNMEASURED,
    ),
    Case(
        "another image",
        "measurement_mismatch",
        "measurements",
        lambda: with_members(pcrs=_pcrs(pcr0=bytes([9] * 48))),
    ),
    Case("another nonce", "nonce_mismatch", "nonce", lambda: with_members(nonce=bytes(32))),
    Case(
        "nonce with a byte more",
        "nonce_mismatch",
        "nonce",
        lambda: with_members(nonce=bytes(range(33))),
    ),
    Case("no nonce", "nonce_mismatch", "nonce", lambda: with_members(nonce=None)),
    Case(
        "another public key", "channel_binding", "public_key", lambda: with_members(public_key=b"x")
    ),
    Case("no public key", "channel_binding", "public_key", lambda: with_members(("public_key",))),
    Case("other user data", "report_data", "user_data", lambda: with_members(user_data=b"")),
)

CASES = (*GOOD, *_FORMAT, *_CHAIN, *_SIGNATURE, *_POLICY)
