"""Which values pass between Attester, Verifier and RelyingParty?  [RFC 9334]

An EvidenceBundle is what an Attester sends; an AttestationResult is what the RelyingParty gets.
Parsing proves shape only: nothing here is verified.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NewType

from attestation.errors import MalformedEvidence
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.wire import endorsements_from_json, endorsements_to_json
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    array,
    format_time,
    parse_object,
    require_keys,
    text,
)
from attestation.tdx.endorsements import TdxCollateral

Nonce = NewType("Nonce", bytes)
Tier = Literal["affirming", "warning", "contraindicated", "none"]
Outcome = Literal["pass", "fail", "warn", "not_applicable"]
ClaimValue = str | int | tuple[str, ...]

NONCE_BYTES = 32
MAX_BUNDLE_BYTES = 4 * 1024 * 1024
MAX_BUNDLE_DEPTH = 16
MAX_GPUS = 16
MAX_RIMS = 2 * MAX_GPUS
MAX_OCSP_ANSWERS = 3 * MAX_GPUS  # of each device chain's certificates 1 to 3
_BUNDLE_KEYS = frozenset({"tee", "quote_b64", "event_log", "statement", "keyset", "gpu"})
_GPU_KEYS = frozenset({"arch", "cert_chain", "report"})
GPU_ARCHS = frozenset({"HOPPER", "BLACKWELL", "LS10"})
_NONCE_HEX = re.compile(r"[0-9a-f]{64}")


def parse_nonce(value: str) -> Nonce:
    """Exactly 64 lower-case hex digits.  Raises: MalformedEvidence("nonce_length")."""
    if _NONCE_HEX.fullmatch(value) is None:
        raise MalformedEvidence("nonce_length", "nonce: want exactly 64 lower-case hex digits")
    return Nonce(bytes.fromhex(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEntry:
    """One GPU's or switch's report with its certificate chain (PEM, leaf first)."""

    arch: str
    cert_chain: bytes
    report: bytes

    def to_json_value(self) -> JsonObject:
        """The entry as it travels, and as ``gpu_sha256`` covers it."""
        return {
            "arch": self.arch,
            "cert_chain": base64.b64encode(self.cert_chain).decode("ascii"),
            "report": base64.b64encode(self.report).decode("ascii"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEndorsements:
    """What NVIDIA signed about devices, whoever brought it: RIMs (XML) and OCSP answers (DER)."""

    rims: tuple[bytes, ...]
    ocsp: tuple[bytes, ...]

    def to_json_value(self) -> JsonObject:
        """As it travels."""
        return {
            "rims": [base64.b64encode(rim).decode("ascii") for rim in self.rims],
            "ocsp": [base64.b64encode(answer).decode("ascii") for answer in self.ocsp],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle:
    """One replica's Evidence: quote, what its REPORT_DATA commits to, and optional endorsements.

    ``quote`` is a TDX quote or an SNP report. ``nras`` is NVIDIA's detached EAT as received, for
    the nonce that the GPUs were asked with; the keys to check it are never the Attester's.
    """

    tee: str
    quote: bytes
    event_log: str | None
    statement: str
    keyset: JsonObject
    gpu: tuple[GpuEntry, ...]
    collateral: TdxCollateral | SnpEndorsements | None
    gpu_endorsements: GpuEndorsements | None = None
    nras: bytes | None = None

    def to_json(self) -> bytes:
        """The bundle as it travels; ``parse_bundle`` reads it back."""
        bundle: dict[str, JsonValue] = {
            "tee": self.tee,
            "quote_b64": base64.b64encode(self.quote).decode("ascii"),
            "event_log": self.event_log,
            "statement": self.statement,
            "keyset": self.keyset,
            "gpu": [entry.to_json_value() for entry in self.gpu],
            "collateral": _collateral_to_json(self.collateral),
        }
        if self.gpu_endorsements is not None:
            bundle["gpu_endorsements"] = self.gpu_endorsements.to_json_value()
        if self.nras is not None:
            bundle["nras"] = self.nras.decode("utf-8")
        return json.dumps(bundle, separators=(",", ":")).encode("utf-8")


def parse_bundle(data: bytes) -> EvidenceBundle:
    """Strict: bounded, no duplicate and no unknown members.

    Raises: MalformedEvidence("format").
    """
    bundle = require_keys(
        parse_object(data, what="bundle", max_bytes=MAX_BUNDLE_BYTES, max_depth=MAX_BUNDLE_DEPTH),
        "bundle",
        required=_BUNDLE_KEYS,
        optional=frozenset({"collateral", "gpu_endorsements", "nras"}),
    )
    keyset, nras, tee = bundle["keyset"], bundle.get("nras"), text(bundle["tee"], "bundle.tee")
    if not isinstance(keyset, Mapping):
        raise MalformedEvidence("format", "bundle.keyset: not an object")
    event_log = bundle["event_log"]
    return EvidenceBundle(
        tee=tee,
        quote=_base64(bundle["quote_b64"], "bundle.quote_b64"),
        event_log=None if event_log is None else text(event_log, "bundle.event_log"),
        statement=text(bundle["statement"], "bundle.statement"),
        keyset=keyset,
        gpu=tuple(
            _gpu_entry(item) for item in array(bundle["gpu"], "bundle.gpu", max_items=MAX_GPUS)
        ),
        collateral=_collateral(bundle.get("collateral"), tee),
        gpu_endorsements=_gpu_endorsements(bundle.get("gpu_endorsements")),
        nras=None if nras is None else text(nras, "bundle.nras").encode("utf-8"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked; ``code`` is set when it failed, ``reason`` is for people."""

    name: str
    outcome: Outcome
    code: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submodule:
    """One piece of Evidence inside a verdict: what it claims once verified, and how it fared."""

    status: Tier
    trust_anchor: str
    claims: Mapping[str, ClaimValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationResult:
    """The verdict on one piece of Evidence under one AppraisalPolicy at one moment.

    ``code`` is the first failing class, None when accepted. ``claims`` are the CPU TEE's and the
    keyset's; ``submods`` has those of each piece of Evidence by itself ("cpu", "gpu-0", "nras").
    ``not_after`` is the earliest end of what the verdict rests on; of a rejection it is the moment
    of appraisal.
    """

    tier: Tier
    code: str | None
    checks: tuple[Check, ...]
    claims: Mapping[str, ClaimValue]
    not_covered: tuple[str, ...]
    simulated: bool
    trust_anchor: str
    policy_name: str
    policy_sha256: str
    evidence_sha256: str
    verdict_id: str
    appraised_at: datetime
    not_after: datetime
    submods: Mapping[str, Submodule] = field(default_factory=dict)

    @property
    def is_accepted(self) -> bool:
        """Affirming, or warning: a policy that does not allow a warning turns it into a reject."""
        return self.code is None and self.tier in ("affirming", "warning")

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, times in RFC 3339 UTC."""
        return {
            "tier": self.tier,
            "accepted": self.is_accepted,
            "code": self.code,
            "checks": [
                {"name": c.name, "outcome": c.outcome, "code": c.code, "reason": c.reason}
                for c in self.checks
            ],
            "claims": _plain(self.claims),
            "submods": {
                name: {
                    "status": submodule.status,
                    "trust_anchor": submodule.trust_anchor,
                    "claims": _plain(submodule.claims),
                }
                for name, submodule in self.submods.items()
            },
            "not_covered": list(self.not_covered),
            "simulated": self.simulated,
            "trust_anchor": self.trust_anchor,
            "policy": {"name": self.policy_name, "sha256": self.policy_sha256},
            "evidence_sha256": self.evidence_sha256,
            "verdict_id": self.verdict_id,
            "appraised_at": format_time(self.appraised_at),
            "not_after": format_time(self.not_after),
        }


def _plain(claims: Mapping[str, ClaimValue]) -> dict[str, object]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in claims.items()
    }


def _gpu_entry(value: JsonValue) -> GpuEntry:
    entry = require_keys(value, "bundle.gpu", required=_GPU_KEYS)
    arch = text(entry["arch"], "bundle.gpu.arch")
    if arch not in GPU_ARCHS:
        raise MalformedEvidence("format", "bundle.gpu.arch: not a known architecture")
    return GpuEntry(
        arch=arch,
        cert_chain=_base64(entry["cert_chain"], "bundle.gpu.cert_chain"),
        report=_base64(entry["report"], "bundle.gpu.report"),
    )


def _gpu_endorsements(value: JsonValue) -> GpuEndorsements | None:
    if value is None:
        return None
    what = "bundle.gpu_endorsements"
    members = require_keys(value, what, required=frozenset({"rims", "ocsp"}))
    rims = array(members["rims"], f"{what}.rims", max_items=MAX_RIMS)
    answers = array(members["ocsp"], f"{what}.ocsp", max_items=MAX_OCSP_ANSWERS)
    return GpuEndorsements(
        rims=tuple(_base64(rim, f"{what}.rims") for rim in rims),
        ocsp=tuple(_base64(answer, f"{what}.ocsp") for answer in answers),
    )


def _collateral(value: JsonValue, tee: str) -> TdxCollateral | SnpEndorsements | None:
    if value is None:
        return None
    if tee == "snp":
        return endorsements_from_json(value)
    return TdxCollateral.from_json_value(value)


def _collateral_to_json(collateral: TdxCollateral | SnpEndorsements | None) -> JsonObject | None:
    if isinstance(collateral, SnpEndorsements):
        return endorsements_to_json(collateral)
    return None if collateral is None else collateral.to_json_value()


def _base64(value: JsonValue, what: str) -> bytes:
    encoded = text(value, what)
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: not base64") from err
    if base64.b64encode(raw).decode("ascii") != encoded:
        raise MalformedEvidence("format", f"{what}: not canonical base64")
    return raw
