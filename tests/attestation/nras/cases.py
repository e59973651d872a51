"""NRAS answers with exactly one fault each: the code that must be found, and the check finding it.

Each is the good answer with one fact changed, signed anew where it is signed, so that no earlier
check can hide the one under test. All are judged at AT under POLICY.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.attestation.nras.samples import (
    AT,
    KID,
    POLICY,
    Answer,
    Token,
    changed,
    device_claims,
    digest,
    encode,
    good_answer,
    jwk,
    set_claims,
    to_json,
)
from tests.support import p384

_GPU = "GPU-0"
_NOW = int(AT.timestamp())
_DRIVER_CHAIN = "x-nvidia-gpu-driver-rim-cert-chain"


@dataclass(frozen=True)
class Case:
    """``make`` gives the faulty answer, ``policy`` what to judge it under."""

    change: str
    code: str | None
    check: str | None
    make: Callable[[], Answer]
    policy: dict[str, Any] | None = None


def _overall(change: str, code: str, check: str, **claims: Any) -> Case:
    return Case(change, code, check, lambda: set_claims("overall", claims))


def _device(change: str, claims: dict[str, Any], code: str = "claims") -> Case:
    return Case(change, code, "device_claims", lambda: set_claims(_GPU, claims))


def _header(header: dict[str, Any], *, device: bool = False) -> Callable[[], Answer]:
    def change(answer: Answer) -> None:
        (answer.devices[_GPU] if device else answer.overall).header = header

    return lambda: changed(change)


def _text(edit: Callable[[str], str]) -> Callable[[], Answer]:
    """The overall token edited after it was signed."""

    def change(answer: Answer) -> None:
        answer.texts["overall"] = edit(answer.bundle()[0][1])

    return lambda: changed(change)


def _jwks(change: Callable[[dict[str, Any]], object]) -> Callable[[], Answer]:
    return lambda: changed(lambda answer: change(answer.jwks))


def _key(**members: Any) -> Callable[[], Answer]:
    return _jwks(lambda jwks: jwks["keys"][0].update(members))


def _part(index: int, edit: Callable[[str], str]) -> Callable[[str], str]:
    def apply(token: str) -> str:
        parts = token.split(".")
        parts[index] = edit(parts[index])
        return ".".join(parts)

    return apply


def _sign_der(token: str) -> str:
    signed = token.rsplit(".", 1)[0]
    return f"{signed}.{encode(p384.sign_der('nras signer', signed.encode()))}"


def _raw_claims(text: str) -> Callable[[], Answer]:
    """An overall token that is signed well over claims that are not strict JSON."""

    def change(answer: Answer) -> None:
        signed = f"{encode(to_json(answer.overall.header))}.{encode(text.encode())}"
        signature = encode(p384.sign(answer.overall.signer, signed.encode()))
        answer.texts["overall"] = f"{signed}.{signature}"

    return lambda: changed(change)


def _fixed_submods(submods: Callable[[str], Any]) -> Callable[[], Answer]:
    """``submods`` makes the list from the device's token, instead of the right one."""

    def change(answer: Answer) -> None:
        answer.are_digests_fixed = True
        answer.overall.claims["submods"] = submods(answer.devices[_GPU].compact())

    return lambda: changed(change)


def _signed_by_another(*, device: bool) -> Callable[[], Answer]:
    def change(answer: Answer) -> None:
        (answer.devices[_GPU] if device else answer.overall).signer = "another signer"

    return lambda: changed(change)


def _wider(coordinate: str) -> str:
    """The same number in a byte more."""
    return encode(b"\0" + base64.urlsafe_b64decode(coordinate))


def _two_gpus(answer: Answer) -> None:
    answer.devices["GPU-1"] = Token(device_claims(_GPU))


def _chain(**members: Any) -> dict[str, Any]:
    chain: dict[str, Any] = device_claims(_GPU)[_DRIVER_CHAIN]
    return {
        _DRIVER_CHAIN: chain
        | {f"x-nvidia-cert-{k.replace('_', '-')}": v for k, v in members.items()}
    }


def _under(**changes: Any) -> dict[str, Any]:
    return {**POLICY, "devices": {**POLICY["devices"], **changes}}


GOOD: tuple[Case, ...] = (
    Case("version 2.0", None, None, lambda: good_answer("2.0")),
    Case("with a switch", None, None, lambda: good_answer("3.0", (_GPU, "SWITCH-0"))),
    Case("with a switch of 2.0", None, None, lambda: good_answer("2.0", (_GPU, "SWITCH-0"))),
    Case("with a typ", None, None, _header({"alg": "ES384", "kid": KID, "typ": "JWT"})),
    Case("JWKS says alg and use", None, None, _key(alg="ES384", use="sig")),
    Case(
        "another key of a kind we do not take",
        None,
        None,
        _jwks(lambda jwks: jwks["keys"].append({"kty": "RSA", "kid": "rsa", "n": "AQ", "e": "AQ"})),
    ),
    Case(
        "end of a chain without Z",
        None,
        None,
        lambda: set_claims(_GPU, _chain(expiration_date="2027-06-01T02:08:29")),
    ),
)

_FORMAT: tuple[Case, ...] = (
    Case("two parts", "format", "token_format", _text(lambda token: token.rsplit(".", 1)[0])),
    Case("four parts", "format", "token_format", _text(lambda token: token + ".")),
    Case("space in the token", "format", "token_format", _text(_part(1, lambda part: part + " "))),
    Case("padded base64", "format", "token_format", _text(_part(2, lambda part: part + "="))),
    Case(
        "base64 of the other alphabet",
        "format",
        "token_format",
        _text(_part(1, lambda part: "+" + part[1:])),
    ),
    Case(
        "stray bits in base64",
        "format",
        "token_format",
        _text(_part(0, lambda part: part[:-1] + "R")),
    ),
    Case("header with crit", "format", "token_format", _header({"crit": [], "alg": "ES384"})),
    Case(
        "another typ",
        "format",
        "token_format",
        _header({"alg": "ES384", "kid": KID, "typ": "JWE"}),
    ),
    Case("kid that is no text", "format", "token_format", _header({"alg": "ES384", "kid": 1})),
    Case(
        "submodule of unknown kind",
        "format",
        "token_format",
        lambda: changed(lambda a: a.devices.update({"CPU-0": a.devices.pop(_GPU)})),
    ),
    Case(
        "own key in the header",
        "format",
        "token_signature",
        _header({"alg": "ES384", "kid": KID, "jwk": {"kty": "EC"}}),
    ),
    Case("claim that occurs twice", "format", "token_signature", _raw_claims('{"a":1,"a":1}')),
    Case("claim that is a float", "format", "token_signature", _raw_claims('{"exp":1.5}')),
    Case("claims that are a list", "format", "token_signature", _raw_claims("[]")),
)

_SIGNATURE: tuple[Case, ...] = (
    Case("alg ES256", "algorithm", "token_format", _header({"alg": "ES256", "kid": KID})),
    Case("alg none", "algorithm", "token_format", _header({"alg": "none", "kid": KID})),
    Case("no alg", "algorithm", "token_format", _header({"kid": KID})),
    Case(
        "device token of alg HS256",
        "algorithm",
        "token_format",
        _header({"alg": "HS256", "kid": KID}, device=True),
    ),
    Case("no kid", "unknown_kid", "token_format", _header({"alg": "ES384"})),
    Case(
        "kid of no key", "unknown_kid", "token_signature", _header({"alg": "ES384", "kid": "other"})
    ),
    Case(
        "signed by another key",
        "token_signature",
        "token_signature",
        _signed_by_another(device=False),
    ),
    Case(
        "signature of zeros",
        "token_signature",
        "token_signature",
        _text(_part(2, lambda _: encode(bytes(96)))),
    ),
    Case("no signature", "token_signature", "token_signature", _text(_part(2, lambda _: ""))),
    Case("signature in DER", "token_signature", "token_signature", _text(_sign_der)),
    Case(
        "JWKS with a key id twice",
        "format",
        "jwks",
        _jwks(lambda jwks: jwks["keys"].append(jwk())),
    ),
    Case("JWKS without keys", "format", "jwks", _jwks(lambda jwks: jwks["keys"].clear())),
    Case("JWKS with another member", "format", "jwks", _jwks(lambda jwks: jwks.update(next="x"))),
    Case("JWK of another curve", "bad_key", "token_signature", _key(crv="P-256")),
    Case("JWK of another point", "bad_key", "token_signature", _key(x=encode(bytes(48)))),
    Case(
        "JWK with a coordinate of 49 bytes",
        "bad_key",
        "token_signature",
        _jwks(lambda jwks: jwks["keys"][0].update(x=_wider(jwks["keys"][0]["x"]))),
    ),
    Case(
        "JWK with the certificate of another key",
        "bad_key",
        "token_signature",
        _key(x5c=jwk(signer="another signer")["x5c"]),
    ),
    Case("JWK without certificate", "format", "token_signature", _key(x5c=[])),
    Case("JWK for ES256", "algorithm", "token_signature", _key(alg="ES256")),
    Case("JWK for encryption", "algorithm", "token_signature", _key(use="enc")),
)

_OVERALL: tuple[Case, ...] = (
    _overall("another subject", "token_type", "token_type", sub="NVIDIA-GPU-ATTESTATION"),
    _overall(
        "issuer is the staging service",
        "claims",
        "token_type",
        iss="https://nras.attestation-stg.nvidia.com",
    ),
    _overall(
        "claims of version 1.0", "unsupported_version", "token_type", **{"x-nvidia-ver": "1.0"}
    ),
    _overall("expired", "token_expired", "token_dates", exp=_NOW),
    _overall("not before a second from now", "token_not_yet_valid", "token_dates", nbf=_NOW + 1),
    _overall("issued a second from now", "token_not_yet_valid", "token_dates", iat=_NOW + 1),
    Case(
        "signing certificate expired",
        "certificate_time",
        "token_dates",
        _jwks(lambda jwks: jwks.update(keys=[jwk(not_after=AT - timedelta(seconds=1))])),
    ),
    _overall("another nonce", "nonce_mismatch", "nonce", eat_nonce="00" * 32),
    _overall("nonce with a byte more", "nonce_mismatch", "nonce", eat_nonce=bytes(range(33)).hex()),
    _overall("empty nonce", "nonce_mismatch", "nonce", eat_nonce=""),
    Case("no submodules", "submod_set", "submods", lambda: changed(lambda a: a.devices.clear())),
    Case(
        "a device token that is not listed",
        "submod_set",
        "submods",
        _fixed_submods(lambda token: {}),
    ),
    Case(
        "a listed device without a token",
        "submod_set",
        "submods",
        _fixed_submods(lambda token: {_GPU: digest(token), "GPU-1": digest(token)}),
    ),
    Case(
        "digest of another token",
        "submod_digest",
        "submods",
        _fixed_submods(lambda token: {_GPU: digest(token + "A")}),
    ),
    Case(
        "digest by another algorithm",
        "algorithm",
        "submods",
        _fixed_submods(lambda token: {_GPU: ["DIGEST", ["SHA-512", digest(token)[1][1]]]}),
    ),
    Case(
        "submodule that is no digest",
        "format",
        "submods",
        _fixed_submods(lambda token: {_GPU: ["JWT", token]}),
    ),
    _overall(
        "overall result is false",
        "claims",
        "device_claims",
        **{"x-nvidia-overall-att-result": False},
    ),
    _overall(
        "overall error",
        "claims",
        "device_claims",
        **{"x-nvidia-error-details": {"code": 4010}},
    ),
)

_DEVICE: tuple[Case, ...] = (
    Case(
        "device token signed by another key",
        "token_signature",
        "device_signatures",
        _signed_by_another(device=True),
    ),
    Case(
        "overall token as device token",
        "token_type",
        "device_tokens",
        lambda: changed(lambda a: a.devices.update({_GPU: Token(dict(a.overall.claims))})),
    ),
    Case(
        "device token of another issuer",
        "claims",
        "device_tokens",
        lambda: set_claims(_GPU, {"iss": "x"}),
    ),
    Case(
        "device token expired",
        "token_expired",
        "device_tokens",
        lambda: set_claims(_GPU, {"exp": _NOW}),
    ),
    Case(
        "device token for another nonce",
        "nonce_mismatch",
        "device_tokens",
        lambda: set_claims(_GPU, {"eat_nonce": "00" * 32}),
    ),
    Case(
        "device token without a nonce",
        "claims",
        "device_tokens",
        lambda: set_claims(_GPU, {}, drop=("eat_nonce",)),
    ),
    Case(
        "device error",
        "claims",
        "device_tokens",
        lambda: set_claims(_GPU, {"x-nvidia-error-details": {"code": 4010}}),
    ),
    _device("measurements do not match", {"measres": "fail"}),
    _device("no secure boot", {"secboot": False}),
    _device("secure boot is a number", {"secboot": 1}),
    _device("debug enabled", {"dbgstat": "enabled"}),
    _device("device of another maker", {"oemid": "1"}),
    _device("report answers another nonce", {"x-nvidia-gpu-attestation-report-nonce-match": False}),
    _device("RIM version does not match", {"x-nvidia-gpu-driver-rim-version-match": False}),
    _device("unknown claim is false", {"x-nvidia-gpu-something-new": False}),
    _device("certificate status is invalid", _chain(status="invalid")),
    _device("certificate is revoked", _chain(ocsp_status="revoked")),
    _device("certificate on hold", _chain(revocation_reason="certificateHold")),
    _device("certificate ended", _chain(expiration_date="2026-12-01T12:00:00Z")),
    _device("end of a certificate is no time", _chain(expiration_date="soon"), "format"),
    _device("certificate chain is only true", {_DRIVER_CHAIN: True}),
    _device("unknown certificate chain is invalid", {"x-nvidia-new-cert-chain": {}}),
    _device("device identity of another form", {"ueid": "0x1"}, "format"),
    _device("no hardware model", {"hwmodel": None}),
    Case(
        "report signature not told",
        "claims",
        "device_claims",
        lambda: set_claims(_GPU, {}, drop=("x-nvidia-gpu-attestation-report-signature-verified",)),
    ),
    Case("one device twice", "claims", "device_claims", lambda: changed(_two_gpus), _under(gpus=2)),
)

_POLICY: tuple[Case, ...] = (
    Case(
        "version that the policy refuses",
        "claims",
        "claims_version",
        lambda: good_answer("2.0"),
        {**POLICY, "versions": ["3.0"]},
    ),
    Case(
        "older than the policy wants",
        "evidence_age",
        "token_age",
        good_answer,
        {**POLICY, "max_age_s": 59},
    ),
    Case(
        "warning",
        "claims",
        "nras_warning",
        lambda: set_claims(_GPU, {"x-nvidia-attestation-warning": "CERTIFICATE_HOLD"}),
    ),
    Case("a GPU missing", "gpu_count", "gpu_count", good_answer, _under(gpus=8)),
    Case(
        "another hardware model",
        "gpu_arch",
        "hardware_model",
        lambda: set_claims(_GPU, {"hwmodel": "GB100 A01 GSP BROM"}),
    ),
    Case(
        "another driver",
        "measurement_mismatch",
        "driver_version",
        lambda: set_claims(_GPU, {"x-nvidia-gpu-driver-version": "535.86.09"}),
    ),
    Case(
        "another VBIOS",
        "measurement_mismatch",
        "vbios_version",
        lambda: set_claims(_GPU, {"x-nvidia-gpu-vbios-version": "96.00.30.00.01"}),
    ),
    Case(
        "another device",
        "platform_not_allowed",
        "device_identity",
        lambda: set_claims(_GPU, {"ueid": "1"}),
    ),
)

CASES = (*GOOD, *_FORMAT, *_SIGNATURE, *_OVERALL, *_DEVICE, *_POLICY)
