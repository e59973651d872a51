"""Is this TCB info or QE identity Intel's own word, and what does it say?  [Intel PCS API v4]

The signature is over the text as received. Each object has its own type that only its ``verify_*``
makes, so an appraisal cannot take an unverified one. Members are read by an explicit list; an
unknown TCB status is an error, not a default.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from attestation.errors import (
    EndorsementCode,
    EndorsementMismatch,
    MalformedEvidence,
    UntrustedEndorsement,
)
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    array,
    hex_bytes,
    integer,
    parse_object,
    text,
    utc_time,
)
from attestation.tdx.quote import Tee
from attestation.x509 import VerifiedChain

LevelStatus = Literal[  # what a TCB level of the collateral may say
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "Revoked",
]
TcbStatus = Literal[  # and what comes of comparing levels
    LevelStatus, "TDRelaunchAdvised", "TDRelaunchAdvisedConfigurationNeeded"
]

Level = TypeVar("Level")

MAX_OBJECT_BYTES = 256 * 1024
MAX_OBJECT_DEPTH = 8
MAX_LEVELS = 128
MAX_ADVISORIES = 256
NUM_COMPONENTS = 16
MAX_SVN = 0xFF
SIGNATURE_BYTES = 64
_PLATFORM_STATUSES: frozenset[LevelStatus] = frozenset(get_args(LevelStatus))
_ENCLAVE_STATUSES: frozenset[LevelStatus] = frozenset(  # of a QE or a TDX module
    {"UpToDate", "OutOfDate", "Revoked"}
)
_TCB_INFO_IDS: dict[Tee, str] = {"tdx": "TDX", "sgx": "SGX"}
_QE_IDS: dict[Tee, str] = {"tdx": "TD_QE", "sgx": "QE"}
_TCB_INFO_VERSION = 3
_QE_IDENTITY_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbLevel:
    """What a TCB level means to those who reach it, and no higher one."""

    status: TcbStatus
    tcb_date: datetime
    advisories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformLevel(TcbLevel):
    """One TCB level of the platform; ``tdx_svns`` is empty for SGX."""

    sgx_svns: tuple[int, ...]
    pce_svn: int
    tdx_svns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnclaveLevel(TcbLevel):
    """One TCB level of a Quoting Enclave or TDX module."""

    isv_svn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxModule:
    """Who signs a TDX module and with which attributes; ``levels`` is empty for major version 0."""

    module_id: str
    mr_signer: bytes
    attributes: bytes
    attributes_mask: bytes
    levels: tuple[EnclaveLevel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTcbInfo:
    """Made by ``verify_tcb_info`` alone; whether it is current is a separate question."""

    issue_date: datetime
    next_update: datetime
    fmspc: bytes
    pce_id: bytes
    tcb_evaluation_data_number: int
    module: TdxModule | None
    module_identities: tuple[TdxModule, ...]
    levels: tuple[PlatformLevel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedQeIdentity:
    """Made by ``verify_qe_identity`` alone; masked values are as the report lays them out."""

    issue_date: datetime
    next_update: datetime
    tcb_evaluation_data_number: int
    misc_select: bytes
    misc_select_mask: bytes
    attributes: bytes
    attributes_mask: bytes
    mr_signer: bytes
    isv_prod_id: int
    levels: tuple[EnclaveLevel, ...]


def verify_tcb_info(
    signed_text: str, signature: bytes, *, signer: VerifiedChain, tee: Tee
) -> VerifiedTcbInfo:
    """TCB info for ``tee``, signed by the TCB signer.

    Raises: UntrustedEndorsement("tcb_info_signature"); EndorsementMismatch("tcb_info_mismatch");
    MalformedEvidence("format").
    """
    info = _signed_object(
        signed_text, signature, signer, what="TCB info", code="tcb_info_signature"
    )
    want = (_TCB_INFO_IDS[tee], _TCB_INFO_VERSION, 0)
    if (info.get("id"), info.get("version"), info.get("tcbType")) != want:
        raise EndorsementMismatch(
            "tcb_info_mismatch", f"TCB info: id, version, type are not {want}"
        )
    return VerifiedTcbInfo(
        issue_date=utc_time(info.get("issueDate"), "TCB info issueDate"),
        next_update=utc_time(info.get("nextUpdate"), "TCB info nextUpdate"),
        fmspc=hex_bytes(info.get("fmspc"), "TCB info fmspc", num_bytes=6),
        pce_id=hex_bytes(info.get("pceId"), "TCB info pceId", num_bytes=2),
        tcb_evaluation_data_number=_evaluation_number(info),
        module=_module(_object(info.get("tdxModule"), "tdxModule"), "") if tee == "tdx" else None,
        module_identities=tuple(
            _module_identity(_object(item, "tdxModuleIdentities"))
            for item in array(
                info.get("tdxModuleIdentities", ()), "tdxModuleIdentities", max_items=MAX_LEVELS
            )
        ),
        levels=_levels(info, lambda level: _platform_level(level, tee)),
    )


def verify_qe_identity(
    signed_text: str, signature: bytes, *, signer: VerifiedChain, tee: Tee
) -> VerifiedQeIdentity:
    """The identity of the Quoting Enclave for ``tee``, signed by the TCB signer.

    Raises: UntrustedEndorsement("qe_identity_signature");
    EndorsementMismatch("qe_identity_mismatch"); MalformedEvidence("format").
    """
    identity = _signed_object(
        signed_text, signature, signer, what="QE identity", code="qe_identity_signature"
    )
    want = (_QE_IDS[tee], _QE_IDENTITY_VERSION)
    if (identity.get("id"), identity.get("version")) != want:
        raise EndorsementMismatch(
            "qe_identity_mismatch", f"QE identity: id and version are not {want}"
        )
    return VerifiedQeIdentity(
        issue_date=utc_time(identity.get("issueDate"), "QE identity issueDate"),
        next_update=utc_time(identity.get("nextUpdate"), "QE identity nextUpdate"),
        tcb_evaluation_data_number=_evaluation_number(identity),
        misc_select=hex_bytes(identity.get("miscselect"), "miscselect", num_bytes=4),
        misc_select_mask=hex_bytes(identity.get("miscselectMask"), "mask", num_bytes=4),
        attributes=hex_bytes(identity.get("attributes"), "attributes", num_bytes=16),
        attributes_mask=hex_bytes(identity.get("attributesMask"), "mask", num_bytes=16),
        mr_signer=hex_bytes(identity.get("mrsigner"), "mrsigner", num_bytes=32),
        isv_prod_id=integer(identity.get("isvprodid"), "isvprodid", maximum=0xFFFF),
        levels=_levels(identity, _enclave_level),
    )


def require_current(what: str, issue_date: datetime, next_update: datetime, at: datetime) -> None:
    """issueDate <= at < nextUpdate.

    Raises: UntrustedEndorsement: collateral_not_yet_valid, collateral_expired.
    """
    if at < issue_date:
        raise UntrustedEndorsement(
            "collateral_not_yet_valid", f"{what}: issued {issue_date:%Y-%m-%d %H:%M}, later"
        )
    if at >= next_update:
        raise UntrustedEndorsement(
            "collateral_expired", f"{what}: its next update was due {next_update:%Y-%m-%d %H:%M}"
        )


def _signed_object(
    signed_text: str,
    signature: bytes,
    signer: VerifiedChain,
    *,
    what: str,
    code: EndorsementCode,
) -> JsonObject:
    """The object in the text, read only once its signature holds."""
    data = signed_text.encode("utf-8")
    if not _is_signed(data, signature, signer):
        raise UntrustedEndorsement(code, f"{what}: signature does not hold")
    return parse_object(data, what=what, max_bytes=MAX_OBJECT_BYTES, max_depth=MAX_OBJECT_DEPTH)


def _is_signed(data: bytes, signature: bytes, signer: VerifiedChain) -> bool:
    if len(signature) != SIGNATURE_BYTES:
        return False
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        signer.leaf.ec_key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _levels(container: JsonObject, parse: Callable[[JsonObject], Level]) -> tuple[Level, ...]:
    items = array(container.get("tcbLevels"), "tcbLevels", max_items=MAX_LEVELS)
    if not items:
        raise MalformedEvidence("format", "tcbLevels: empty")
    return tuple(parse(_object(item, "tcbLevels")) for item in items)


def _platform_level(level: JsonObject, tee: Tee) -> PlatformLevel:
    tcb = _object(level.get("tcb"), "tcb")
    return PlatformLevel(
        sgx_svns=_svns(tcb.get("sgxtcbcomponents")),
        pce_svn=integer(tcb.get("pcesvn"), "pcesvn", maximum=0xFFFF),
        tdx_svns=_svns(tcb.get("tdxtcbcomponents")) if tee == "tdx" else (),
        status=_status(level, _PLATFORM_STATUSES),
        tcb_date=utc_time(level.get("tcbDate"), "tcbDate"),
        advisories=_advisories(level),
    )


def _enclave_level(level: JsonObject) -> EnclaveLevel:
    tcb = _object(level.get("tcb"), "tcb")
    return EnclaveLevel(
        isv_svn=integer(tcb.get("isvsvn"), "isvsvn", maximum=0xFFFF),
        status=_status(level, _ENCLAVE_STATUSES),
        tcb_date=utc_time(level.get("tcbDate"), "tcbDate"),
        advisories=_advisories(level),
    )


def _module_identity(entry: JsonObject) -> TdxModule:
    module = _module(entry, text(entry.get("id"), "tdxModuleIdentities id"))
    return replace(module, levels=_levels(entry, _enclave_level))


def _module(entry: JsonObject, module_id: str) -> TdxModule:
    return TdxModule(
        module_id=module_id,
        mr_signer=hex_bytes(entry.get("mrsigner"), "module mrsigner", num_bytes=48),
        attributes=hex_bytes(entry.get("attributes"), "module attributes", num_bytes=8),
        attributes_mask=hex_bytes(entry.get("attributesMask"), "module mask", num_bytes=8),
        levels=(),
    )


def _svns(value: JsonValue) -> tuple[int, ...]:
    components = array(value, "TCB components", max_items=NUM_COMPONENTS)
    if len(components) != NUM_COMPONENTS:
        raise MalformedEvidence("format", f"TCB components: {len(components)}, want 16")
    return tuple([_svn(item) for item in components])


def _svn(item: JsonValue) -> int:
    svn = _object(item, "TCB component").get("svn")
    if type(svn) is int and 0 <= svn <= MAX_SVN:  # quick, as there are hundreds; never a bool
        return svn
    return integer(svn, "svn", maximum=MAX_SVN)


def _status(level: JsonObject, known: frozenset[LevelStatus]) -> LevelStatus:
    status = text(level.get("tcbStatus"), "tcbStatus")
    if status not in known:
        raise MalformedEvidence("format", "tcbStatus: not a status that this object may have")
    return status


def _advisories(level: JsonObject) -> tuple[str, ...]:
    items = array(level.get("advisoryIDs", ()), "advisoryIDs", max_items=MAX_ADVISORIES)
    return tuple(text(item, "advisoryIDs") for item in items)


def _evaluation_number(container: JsonObject) -> int:
    return integer(container.get("tcbEvaluationDataNumber"), "tcbEvaluationDataNumber")


def _object(value: JsonValue, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise MalformedEvidence("format", f"{what}: not an object")
    return value
