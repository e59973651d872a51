"""Is this detached EAT bundle NRAS's answer to our nonce, about good devices?  [RFC 9711]

The overall token lists the devices with the digests of their tokens; every token is signed on its
own. The overall result alone means nothing: each device's claims are judged again.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from attestation import strict_json
from attestation.checks import CheckLog
from attestation.errors import (
    BadSignature,
    EndorsementMismatch,
    MalformedEvidence,
    PolicyViolation,
    StaleEvidence,
    UnsupportedEvidence,
    UntrustedEndorsement,
)
from attestation.nras.device import (
    ClaimsVersion,
    DeviceClaims,
    require_device_token,
    require_good_device,
    require_no_error,
)
from attestation.nras.eat import DetachedEat, parse_eat
from attestation.nras.jwks import Jwks, SigningKey
from attestation.nras.jws import Jws, verify_jws
from attestation.strict_json import JsonObject, JsonValue

ISSUER = "https://nras.attestation.nvidia.com"
SUBJECT = "NVIDIA-PLATFORM-ATTESTATION"
VERSIONS = ("2.0", "3.0")
NONCE_BYTES = 32
_MAX_TIME = 253402300799  # the last second of year 9999
_DIGEST_ALGORITHM = "SHA-256"


@dataclass(frozen=True, slots=True, kw_only=True)
class NrasClaims:
    """What NRAS says of good devices; made by ``verify_nras`` alone.

    ``not_after``: the first end of a token or of a signing certificate.
    """

    version: ClaimsVersion
    nonce: bytes
    devices: tuple[DeviceClaims, ...]
    issued_at: datetime
    verified_at: datetime
    not_after: datetime

    def fields(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of what is verified, for people."""
        shown = [
            ("issuer", ISSUER),
            ("claims_version", self.version),
            ("eat_nonce", self.nonce.hex()),
            ("issued_at", self.issued_at.isoformat()),
            ("not_after", self.not_after.isoformat()),
        ]
        for device in self.devices:
            shown += [
                (f"{device.name}.hwmodel", device.hw_model),
                (f"{device.name}.ueid", device.ueid),
                (f"{device.name}.driver_version", device.driver_version or ""),
                (f"{device.name}.vbios_version", device.vbios_version),
                (f"{device.name}.warning", device.warning or ""),
            ]
        return tuple(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verified:
    """A token whose signature holds: its claims and the key that made it."""

    what: str
    claims: JsonObject
    key: SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    issued_at: datetime
    not_after: datetime


def verify_nras(eat: bytes, jwks: Jwks, *, nonce: bytes, at: datetime, log: CheckLog) -> NrasClaims:
    """Claims of a genuine, fresh answer in which every device is good.

    ``nonce`` is the 32 bytes that the GPUs were asked with, computed by the protocol in use and
    never read from the Evidence. ``log`` receives one entry a step.

    Raises: AttestationError: the code of the step that failed.
    """
    with log.step("token_format", "the bundle follows its format"):  # 1
        bundle = parse_eat(eat)
    with log.step("token_signature", "the overall token is signed by a key of the JWKS"):  # 2
        overall = _verify_signature(bundle.overall, jwks)
    with log.step("token_type", "it is NRAS's overall token"):  # 3
        version = _require_overall(overall.claims)
    with log.step("token_dates", "the overall token and its signing key are current"):  # 4
        life = _require_current(overall, at)
    with log.step("nonce", "it answers the nonce that was asked with"):  # 5
        _require_nonce(overall, nonce)
    with log.step("submods", "it lists exactly these device tokens"):  # 6
        _require_same_submods(overall.claims.get("submods"), bundle)
    with log.step("device_signatures", "each device token is signed by a key of the JWKS"):  # 7
        tokens = {n: _verify_signature(token, jwks) for n, token in bundle.devices.items()}
    with log.step("device_tokens", "each device token is NRAS's, current and for this nonce"):  # 8
        lives = [_require_device_token(token, n, nonce, at) for n, token in tokens.items()]
    with log.step("device_claims", "every claim about every device is good"):  # 9
        devices = tuple(
            require_good_device(token.claims, n, version, at) for n, token in tokens.items()
        )
        _require_good_result(overall.claims, devices)
    chains = [device.certificates_end for device in devices if device.certificates_end is not None]
    return NrasClaims(
        version=version,
        nonce=nonce,
        devices=devices,
        issued_at=min(each.issued_at for each in (life, *lives)),
        verified_at=at,
        not_after=min(*(each.not_after for each in (life, *lives)), *chains),
    )


def _verify_signature(token: Jws, jwks: Jwks) -> _Verified:
    key = jwks.find(token.kid)
    return _Verified(what=token.what, claims=verify_jws(token, key.public_key), key=key)


def _require_overall(claims: JsonObject) -> ClaimsVersion:
    what = "overall token"
    if claims.get("sub") != SUBJECT:
        raise EndorsementMismatch("token_type", f"{what}: its subject is not {SUBJECT}")
    _require_issuer(claims, what)
    version = claims.get("x-nvidia-ver")
    if version not in VERSIONS:
        raise UnsupportedEvidence(
            "unsupported_version", f"{what}: its claims are not of version {' or '.join(VERSIONS)}"
        )
    return cast("ClaimsVersion", version)


def _require_issuer(claims: JsonObject, what: str) -> None:
    if claims.get("iss") != ISSUER:
        raise PolicyViolation("claims", f"{what}: its issuer is not {ISSUER}")


def _require_current(token: _Verified, at: datetime) -> _Life:
    """nbf and iat <= at < exp, and the signing key's certificate lives too.  [RFC 7519 sec. 4.1]"""
    issued_at, not_before, not_after = (
        _time(token.claims, name, token.what) for name in ("iat", "nbf", "exp")
    )
    if at < max(issued_at, not_before):
        raise StaleEvidence("token_not_yet_valid", f"{token.what}: from {not_before:%H:%M:%S} on")
    if at >= not_after:
        raise StaleEvidence("token_expired", f"{token.what}: expired {not_after.isoformat()}")
    if not token.key.not_before <= at <= token.key.not_after:
        raise UntrustedEndorsement(
            "certificate_time", f"key {token.key.kid}: its certificate is not current"
        )
    return _Life(issued_at=issued_at, not_after=min(not_after, token.key.not_after))


def _require_nonce(token: _Verified, nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise MalformedEvidence("nonce_length", f"nonce: {len(nonce)} bytes, want {NONCE_BYTES}")
    got = strict_json.text(_present(token.claims, "eat_nonce", token.what), token.what)
    if not hmac.compare_digest(got.encode("utf-8"), nonce.hex().encode("ascii")):
        raise StaleEvidence("nonce_mismatch", f"{token.what}: answers another nonce")


def _require_same_submods(submods: JsonValue, bundle: DetachedEat) -> None:
    if not isinstance(submods, Mapping) or not submods or submods.keys() != bundle.devices.keys():
        raise BadSignature("submod_set", "overall token: lists other devices than the bundle has")
    for name, token in bundle.texts.items():
        listed = hashlib.sha256(token.encode("ascii")).hexdigest()
        if not hmac.compare_digest(_submod_digest(submods[name], name), listed):
            raise BadSignature("submod_digest", f"overall token: lists another token for {name}")


def _submod_digest(value: JsonValue, name: str) -> str:
    """["DIGEST", ["SHA-256", hex]]  [RFC 9711 sec. 4.2.18.2]"""
    labelled = strict_json.array(value, name, max_items=2)
    if len(labelled) != 2 or labelled[0] != "DIGEST":
        raise MalformedEvidence("format", f"overall token: {name} is not a digest")
    digest = strict_json.array(labelled[1], name, max_items=2)
    if len(digest) != 2 or digest[0] != _DIGEST_ALGORITHM:
        raise BadSignature("algorithm", f"overall token: {name} is not a SHA-256")
    return strict_json.sha256_hex(digest[1], name)


def _require_device_token(token: _Verified, name: str, nonce: bytes, at: datetime) -> _Life:
    require_device_token(token.claims, name)
    _require_issuer(token.claims, token.what)
    life = _require_current(token, at)
    require_no_error(token.claims, token.what)  # such a token has no nonce
    _require_nonce(token, nonce)
    return life


def _require_good_result(overall: JsonObject, devices: tuple[DeviceClaims, ...]) -> None:
    require_no_error(overall, "overall token")
    if overall.get("x-nvidia-overall-att-result") is not True:
        raise PolicyViolation("claims", "overall token: its result is not true")
    if len({device.ueid for device in devices}) != len(devices):
        raise PolicyViolation("claims", "one device is told twice")


def _time(claims: JsonObject, name: str, what: str) -> datetime:
    value = _present(claims, name, what)
    seconds = strict_json.integer(value, f"{what} {name}", maximum=_MAX_TIME)
    return datetime.fromtimestamp(seconds, UTC)


def _present(claims: JsonObject, name: str, what: str) -> JsonValue:
    if name not in claims:
        raise PolicyViolation("claims", f"{what}: {name} is missing")
    return claims[name]
