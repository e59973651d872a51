"""What does NRAS say about one device, and is all of it good?  [NVIDIA NRAS claims 2.0 and 3.0]

Every claim that a good device has must be there and say so; a claim that says false refuses the
device even when nobody here knows its name. Version 3.0 tells more of the certificates than that
somebody validated them: their status, their OCSP answer and their end.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from attestation import strict_json
from attestation.errors import EndorsementMismatch, MalformedEvidence, PolicyViolation
from attestation.strict_json import JsonObject, JsonValue

DeviceKind = Literal["gpu", "switch"]
ClaimsVersion = Literal["2.0", "3.0"]

MAX_WARNING_CHARS = 1024
_NAME = re.compile(r"(GPU|SWITCH)-(?:0|[1-9][0-9]?)")
_SHORT_TEXT = re.compile(r"[\x20-\x7e]{1,64}")
_UEID = re.compile(r"[0-9]{1,64}")
_GPU_OEM_ID = "5703"  # NVIDIA's enterprise number; switches say null
_OVERALL_ONLY = ("submods", "x-nvidia-overall-att-result")
_ERROR = "x-nvidia-error-details"
_CHAIN_SUFFIX = "-cert-chain"
_REPORT = (
    "arch-check",
    "attestation-report-nonce-match",
    "attestation-report-parsed",
    "attestation-report-signature-verified",
)
_RIM = ("fetched", "measurements-available", "schema-validated", "signature-verified")
_RIMS: Mapping[DeviceKind, tuple[str, ...]] = {
    "gpu": ("driver-rim", "vbios-rim"),
    "switch": ("bios-rim",),
}
_EXTRA: Mapping[DeviceKind, tuple[str, ...]] = {"gpu": ("vbios-index-no-conflict",), "switch": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaims:
    """One device that NRAS found good; made by ``require_good_device`` alone.

    ``name`` is its submodule name; ``driver_version`` is None for a switch, whose ``vbios_version``
    is that of its BIOS. ``certificates_end``: the first end of a chain, which only 3.0 tells.
    """

    name: str
    kind: DeviceKind
    hw_model: str
    ueid: str
    driver_version: str | None
    vbios_version: str
    warning: str | None
    certificates_end: datetime | None


def parse_device_name(name: str) -> DeviceKind:
    """The kind of a submodule from its name.  Raises: MalformedEvidence("format")."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise MalformedEvidence("format", "a submodule that is neither GPU-n nor SWITCH-n")
    return "gpu" if match[1] == "GPU" else "switch"


def require_no_error(claims: JsonObject, what: str) -> None:
    """Raises: PolicyViolation("claims"): NRAS tells an error instead of a result."""
    details = claims.get(_ERROR)
    if details is not None:
        code = details.get("code") if isinstance(details, Mapping) else None
        told = f"error {code}" if isinstance(code, int) else "an error"
        raise PolicyViolation("claims", f"{what}: NRAS answered with {told}")


def require_device_token(claims: JsonObject, name: str) -> None:
    """Raises: EndorsementMismatch("token_type"): it is an overall token."""
    if "sub" in claims or any(member in claims for member in _OVERALL_ONLY):
        raise EndorsementMismatch("token_type", f"{name}: not a device token")


def require_good_device(
    claims: JsonObject, name: str, version: ClaimsVersion, at: datetime
) -> DeviceClaims:
    """What is known of a device once every claim about it is good.

    Steps: 1. nothing says false; 2. what EAT defines; 3. what NVIDIA adds, by version.

    Raises: PolicyViolation("claims"); MalformedEvidence("format").
    """
    kind = parse_device_name(name)
    for claim, value in claims.items():  # 1
        if value is False:
            raise PolicyViolation("claims", f"{name}: {_quoted(claim)} is false")
    _require(claims, name, "measres", "success")  # 2
    _require(claims, name, "secboot", True)
    _require(claims, name, "dbgstat", "disabled")
    _require(claims, name, "oemid", _GPU_OEM_ID if kind == "gpu" else None)
    prefix = f"x-nvidia-{kind}-"
    for claim in _required_true(kind, version):  # 3
        _require(claims, name, prefix + claim, True)
    return DeviceClaims(
        name=name,
        kind=kind,
        hw_model=_matching(claims, name, "hwmodel", _SHORT_TEXT),
        ueid=_matching(claims, name, "ueid", _UEID),
        driver_version=(
            _matching(claims, name, f"{prefix}driver-version", _SHORT_TEXT)
            if kind == "gpu"
            else None
        ),
        vbios_version=_matching(
            claims,
            name,
            prefix + ("vbios-version" if kind == "gpu" else "bios-version"),
            _SHORT_TEXT,
        ),
        warning=_parse_warning(claims.get("x-nvidia-attestation-warning"), name),
        certificates_end=_require_chains(claims, name, kind, version, at),
    )


def _required_true(kind: DeviceKind, version: ClaimsVersion) -> Sequence[str]:
    required = [*_REPORT, *_EXTRA[kind]]
    required += [f"{rim}-{what}" for rim in _RIMS[kind] for what in _RIM]
    if version == "2.0":
        required.append(f"attestation-report{_CHAIN_SUFFIX}-validated")
        required += [f"{rim}-cert-validated" for rim in _RIMS[kind]]
    else:
        required.append(f"attestation-report{_CHAIN_SUFFIX}-fwid-match")
        required += [f"{rim}-version-match" for rim in _RIMS[kind]]
    return required


def _require_chains(
    claims: JsonObject, name: str, kind: DeviceKind, version: ClaimsVersion, at: datetime
) -> datetime | None:
    """Version 3.0: the first end of the chains, of which each must be valid and unrevoked."""
    if version == "2.0":
        return None
    required = {
        f"x-nvidia-{kind}-{what}{_CHAIN_SUFFIX}" for what in ("attestation-report", *_RIMS[kind])
    }
    others = {claim for claim in claims if claim.endswith(_CHAIN_SUFFIX)}
    return min(_require_chain(claims, name, claim, at) for claim in sorted(required | others))


def _require_chain(claims: JsonObject, name: str, claim: str, at: datetime) -> datetime:
    chain = claims.get(claim)
    what = f"{name} {_quoted(claim)}"
    if not isinstance(chain, Mapping):
        raise PolicyViolation("claims", f"{what}: missing")
    _require(chain, what, "x-nvidia-cert-status", "valid")
    _require(chain, what, "x-nvidia-cert-ocsp-status", "good")
    _require(chain, what, "x-nvidia-cert-revocation-reason", None)
    stamp = strict_json.text(chain.get("x-nvidia-cert-expiration-date"), what)
    try:  # some releases leave out the Z
        end = datetime.strptime(stamp.removesuffix("Z"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError as err:
        raise MalformedEvidence("format", f"{what}: its end is not a time") from err
    if at >= end:
        raise PolicyViolation("claims", f"{what}: ended {end:%Y-%m-%d}")
    return end


def _require(claims: JsonObject, what: str, claim: str, want: JsonValue) -> None:
    if claim not in claims:
        raise PolicyViolation("claims", f"{what}: {claim} is missing")
    if claims[claim] != want or isinstance(claims[claim], bool) != isinstance(want, bool):
        raise PolicyViolation("claims", f"{what}: {claim} is not {want}")


def _matching(claims: JsonObject, name: str, claim: str, form: re.Pattern[str]) -> str:
    value = claims.get(claim)
    if value is None:
        raise PolicyViolation("claims", f"{name}: {claim} is missing")
    if not isinstance(value, str) or not form.fullmatch(value):
        raise MalformedEvidence("format", f"{name}: {claim} has another form")
    return value


def _parse_warning(value: JsonValue, name: str) -> str | None:
    if value is None:
        return None
    warning = strict_json.text(value, f"{name} warning")
    if len(warning) > MAX_WARNING_CHARS or not warning.isprintable():
        raise MalformedEvidence("format", f"{name}: its warning is not a short printable text")
    return warning


def _quoted(claim: str) -> str:
    """A name that NRAS chose, fit for a message."""
    return claim if _SHORT_TEXT.fullmatch(claim) else "a claim with a strange name"
