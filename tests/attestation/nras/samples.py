"""An NRAS of our own: detached EAT bundles under a JWKS whose keys anybody can compute."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from tests.support import p384

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
NONCE = bytes(range(32))
ISSUER = "https://nras.attestation.nvidia.com"
SIGNER = "nras signer"
KID = "test-kid-1"
_ISSUED_AT = int(AT.timestamp()) - 60

POLICY: dict[str, Any] = {
    "versions": ["2.0", "3.0"],
    "max_age_s": 600,
    "warnings": "refused",
    "devices": {
        "mode": "required",
        "gpus": 1,
        "hardware_models": ["GH100 A01 GSP BROM", "LS_10 A01 FSP BROM"],
        "driver_versions": ["550.90.07"],
        "vbios_versions": ["96.00.9F.00.01", "96.10.55.00.01"],
        "ueids": ["478176379286082186618948445787393647364802107249", "694931143880983876767"],
    },
}
_GOOD_CHAIN = {
    "x-nvidia-cert-status": "valid",
    "x-nvidia-cert-ocsp-status": "good",
    "x-nvidia-cert-expiration-date": "2027-06-01T02:08:29Z",
    "x-nvidia-cert-revocation-reason": None,
}
_TRUE = {
    "gpu": [
        "arch-check",
        "attestation-report-nonce-match",
        "attestation-report-parsed",
        "attestation-report-signature-verified",
        "vbios-index-no-conflict",
        "driver-rim-fetched",
        "driver-rim-measurements-available",
        "driver-rim-schema-validated",
        "driver-rim-signature-verified",
        "vbios-rim-fetched",
        "vbios-rim-measurements-available",
        "vbios-rim-schema-validated",
        "vbios-rim-signature-verified",
    ],
    "switch": [
        "arch-check",
        "attestation-report-nonce-match",
        "attestation-report-parsed",
        "attestation-report-signature-verified",
        "bios-rim-fetched",
        "bios-rim-measurements-available",
        "bios-rim-schema-validated",
        "bios-rim-signature-verified",
    ],
}
_RIMS = {"gpu": ("driver-rim", "vbios-rim"), "switch": ("bios-rim",)}
_IDENTITY: dict[str, dict[str, Any]] = {
    "gpu": {
        "oemid": "5703",
        "hwmodel": "GH100 A01 GSP BROM",
        "ueid": "478176379286082186618948445787393647364802107249",
        "x-nvidia-gpu-driver-version": "550.90.07",
        "x-nvidia-gpu-vbios-version": "96.00.9F.00.01",
    },
    "switch": {
        "oemid": None,
        "hwmodel": "LS_10 A01 FSP BROM",
        "ueid": "694931143880983876767",
        "x-nvidia-switch-bios-version": "96.10.55.00.01",
    },
}


@dataclass
class Token:
    """One token before it is signed; every part of it may be replaced."""

    claims: dict[str, Any]
    header: dict[str, Any] = field(default_factory=lambda: {"kid": KID, "alg": "ES384"})
    signer: str = SIGNER

    def compact(self) -> str:
        """Signed, in compact form."""
        signed = f"{encode(to_json(self.header))}.{encode(to_json(self.claims))}"
        return f"{signed}.{encode(p384.sign(self.signer, signed.encode()))}"


@dataclass
class Answer:
    """The parts of a bundle and its JWKS; ``texts`` overrides finished tokens by name."""

    overall: Token
    devices: dict[str, Token]
    jwks: dict[str, Any]
    texts: dict[str, str] = field(default_factory=dict)
    nonce: bytes = NONCE
    are_digests_fixed: bool = False

    def bundle(self) -> list[Any]:
        """The bundle as JSON values; digests are over the device tokens as they are now."""
        tokens = {name: token.compact() for name, token in self.devices.items()} | self.texts
        overall = tokens.pop("overall", None)
        if not self.are_digests_fixed:
            self.overall.claims["submods"] = {name: digest(text) for name, text in tokens.items()}
        return [["JWT", overall or self.overall.compact()], tokens]


def good_answer(version: str = "3.0", names: tuple[str, ...] = ("GPU-0",)) -> Answer:
    """Accepted at AT for NONCE under POLICY, when it has one GPU."""
    overall = {
        "sub": "NVIDIA-PLATFORM-ATTESTATION",
        "x-nvidia-ver": version,
        "x-nvidia-overall-att-result": True,
        **_registered("overall"),
    }
    return Answer(
        overall=Token(overall),
        devices={name: Token(device_claims(name, version)) for name in names},
        jwks={"keys": [jwk()]},
    )


def device_claims(name: str, version: str = "3.0") -> dict[str, Any]:
    """What NRAS says of a good device; devices of another number than 0 have their own ueid."""
    kind = "gpu" if name.startswith("GPU") else "switch"
    prefix = f"x-nvidia-{kind}-"
    claims = {
        **_registered(name),
        "measres": "success",
        "secboot": True,
        "dbgstat": "disabled",
        "x-nvidia-attestation-warning": None,
        **_IDENTITY[kind],
        **{prefix + claim: True for claim in _TRUE[kind]},
    }
    if not name.endswith("-0"):
        claims["ueid"] = str(1000 + int(name.split("-")[1]))
    if version == "2.0":
        claims |= {f"{prefix}{rim}-cert-validated": True for rim in _RIMS[kind]}
        claims[f"{prefix}attestation-report-cert-chain-validated"] = True
    else:
        chains = ("attestation-report", *_RIMS[kind])
        claims |= {f"{prefix}{what}-cert-chain": dict(_GOOD_CHAIN) for what in chains}
        claims |= {f"{prefix}{rim}-version-match": True for rim in _RIMS[kind]}
        claims[f"{prefix}attestation-report-cert-chain-fwid-match"] = True
    return claims


def jwk(
    kid: str = KID, signer: str = SIGNER, *, not_after: datetime = AT + timedelta(days=1)
) -> dict[str, Any]:
    """The key of ``signer`` with its certificate."""
    numbers = p384.key(signer).public_key().public_numbers()
    leaf = p384.certificate(
        signer, "nras intermediate", not_before=AT - timedelta(days=1), not_after=not_after
    )
    return {
        "kty": "EC",
        "crv": "P-384",
        "kid": kid,
        "x5c": [base64.b64encode(leaf.public_bytes(Encoding.DER)).decode()],
        "x": encode(numbers.x.to_bytes(48, "big")),
        "y": encode(numbers.y.to_bytes(48, "big")),
    }


def digest(token: str) -> list[Any]:
    """A submodule's entry in the overall token."""
    return ["DIGEST", ["SHA-256", hashlib.sha256(token.encode()).hexdigest()]]


def changed(change: Callable[[Answer], object]) -> Answer:
    """The good answer after ``change``, which is signed anew wherever it is signed."""
    answer = good_answer()
    change(answer)
    return answer


def set_claims(name: str, changes: Mapping[str, Any], *, drop: tuple[str, ...] = ()) -> Answer:
    """The good answer with claims of one token ("overall" or a device) set or dropped."""
    answer = good_answer()
    token = answer.overall if name == "overall" else answer.devices[name]
    token.claims.update(changes)
    for claim in drop:
        del token.claims[claim]
    return answer


def encode(data: bytes) -> str:
    """Unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def to_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def _registered(name: str) -> dict[str, Any]:
    return {
        "iss": ISSUER,
        "eat_nonce": NONCE.hex(),
        "nbf": _ISSUED_AT,
        "iat": _ISSUED_AT,
        "exp": _ISSUED_AT + 3600,
        "jti": str(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()),
    }
