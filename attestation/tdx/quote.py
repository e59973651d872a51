"""What does an Intel quote say, byte for byte?  [Intel TDX DCAP Quoting Library API, appendix 3]

Versions 3 (SGX), 4 (SGX or TD 1.0) and 5 (typed body: SGX, TD 1.0, 1.5, 1.5-ex). Every length is
bounded before use and every declared byte is consumed; after the declared end only zero padding,
as drivers return, is accepted. Parsing verifies nothing.
"""

import struct
from dataclasses import dataclass
from typing import Literal

from attestation.errors import EndorsementMismatch, MalformedEvidence, UnsupportedEvidence

Tee = Literal["tdx", "sgx"]

MAX_QUOTE_BYTES = 64 * 1024  # real ones have 5 to 8 KB
HEADER_BYTES = 48
INTEL_QE_VENDOR_ID = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
_ECDSA_P256 = 2
_TEES: dict[int, Tee] = {0x00: "sgx", 0x81: "tdx"}
_PCK_CHAIN_PEM = 5
_QE_REPORT_DATA = 6
_ENCLAVE_REPORT_BYTES = 384
_TD10_BYTES = 584
_TD15_BYTES = 648
_TD15_EX_BYTES = 885
# version, key type, TEE type; QE and PCE SVN in v3, reserved later; QE vendor; user data
_HEADER = struct.Struct("<HHI 4x 16s 20x")
# SVN, module (3), attributes, XFAM, MRTD, config and owners (3), RTMRs (4), report data
_TD10 = struct.Struct("16s 48s 48s 8s 8s 8s 48s 48s 48s 48s 48s 48s 48s 48s 64s")
_TD15 = struct.Struct("16s 48s")
_TD15_EX = struct.Struct("B 32s 48s 48s 8s 16s 16s 12s 48s 8s")
_V5_BODIES: dict[int, tuple[Tee, int]] = {
    1: ("sgx", _ENCLAVE_REPORT_BYTES),
    2: ("tdx", _TD10_BYTES),
    3: ("tdx", _TD15_BYTES),
    4: ("tdx", _TD15_EX_BYTES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TdExtension:
    """What a TD 1.5-ex body adds: the TD's own identity, and how it was before it migrated."""

    vm_id: int
    td_id: bytes
    device_info_hash: bytes
    init_service_td_hash: bytes
    init_service_td_attributes: bytes
    init_cpu_svn: bytes
    init_tee_tcb_svn: bytes
    init_fmspc: bytes
    current_service_td_hash: bytes
    current_service_td_attributes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TdReport:
    """The TD report body.

    ``tee_tcb_svn`` is that of the TDX module at the TD's launch, ``tee_tcb_svn_2`` the module's
    now; it and ``mr_service_td`` are None before TD 1.5, ``extension`` before TD 1.5-ex.
    """

    tee_tcb_svn: bytes
    mr_seam: bytes
    mr_signer_seam: bytes
    seam_attributes: bytes
    td_attributes: bytes
    xfam: bytes
    mr_td: bytes
    mr_config_id: bytes
    mr_owner: bytes
    mr_owner_config: bytes
    rtmrs: tuple[bytes, bytes, bytes, bytes]
    report_data: bytes
    tee_tcb_svn_2: bytes | None
    mr_service_td: bytes | None
    extension: TdExtension | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnclaveReport:
    """The SGX report body: the quoted enclave's, or the Quoting Enclave's own."""

    raw: bytes
    cpu_svn: bytes
    misc_select: bytes
    attributes: bytes
    mr_enclave: bytes
    mr_signer: bytes
    isv_prod_id: int
    isv_svn: int
    report_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A parsed quote.  Signatures are raw r||s; ``attestation_key`` is x||y on P-256."""

    version: int
    tee: Tee
    body: TdReport | EnclaveReport
    signed_bytes: bytes
    signature: bytes
    attestation_key: bytes
    qe_report: EnclaveReport
    qe_report_signature: bytes
    qe_auth_data: bytes
    pck_chain_pem: bytes


class _Reader:
    """Consumes bytes front to back; asking beyond the end is the format error."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.offset = 0

    def take(self, num_bytes: int) -> bytes:
        end = self.offset + num_bytes
        if end > len(self._data):
            raise MalformedEvidence(
                "format", f"{self._what}: {len(self._data)} bytes, want at least {end}"
            )
        chunk = self._data[self.offset : end]
        self.offset = end
        return chunk

    def uint(self, num_bytes: int) -> int:
        return int.from_bytes(self.take(num_bytes), "little")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self.offset)

    def require_end(self) -> None:
        if self.offset != len(self._data):
            unread = len(self._data) - self.offset
            raise MalformedEvidence("format", f"{self._what}: {unread} undeclared bytes")


def parse_quote(data: bytes) -> Quote:
    """Steps: 1. header; 2. body; 3. padding; 4. signature data.

    Raises: MalformedEvidence: format, trailing_bytes. UnsupportedEvidence: unsupported_version,
    unsupported_key_type, unsupported_cert_data. EndorsementMismatch: tee_type, qe_vendor.
    """
    if len(data) > MAX_QUOTE_BYTES:
        raise MalformedEvidence("format", f"quote: {len(data)} bytes, at most {MAX_QUOTE_BYTES}")
    reader = _Reader(data, "quote")
    version, tee = _parse_header(reader.take(HEADER_BYTES))  # 1
    body_bytes = _body_bytes(reader, version, tee)  # 2
    raw_body = reader.take(body_bytes)
    body = _parse_enclave_report(raw_body) if tee == "sgx" else _parse_td_report(raw_body)
    signed_bytes = data[: reader.offset]
    signature_data = _Reader(reader.take(reader.uint(4)), "quote signature data")
    if any(reader.rest()):  # 3
        raise MalformedEvidence("trailing_bytes", "quote: non-zero bytes after its declared end")
    signature, attestation_key = signature_data.take(64), signature_data.take(64)  # 4
    certification = signature_data
    if version >= 4:
        certification = _Reader(_typed(signature_data, _QE_REPORT_DATA), "QE report data")
        signature_data.require_end()
    qe_report = _parse_enclave_report(certification.take(_ENCLAVE_REPORT_BYTES))
    qe_report_signature = certification.take(64)
    qe_auth_data = certification.take(certification.uint(2))
    pck_chain_pem = _typed(certification, _PCK_CHAIN_PEM)
    certification.require_end()
    return Quote(
        version=version,
        tee=tee,
        body=body,
        signed_bytes=signed_bytes,
        signature=signature,
        attestation_key=attestation_key,
        qe_report=qe_report,
        qe_report_signature=qe_report_signature,
        qe_auth_data=qe_auth_data,
        pck_chain_pem=pck_chain_pem,
    )


def _parse_header(header: bytes) -> tuple[int, Tee]:
    version, key_type, tee_type, qe_vendor_id = _HEADER.unpack(header)
    if version not in (3, 4, 5):
        raise UnsupportedEvidence("unsupported_version", f"quote version {version}, want 3 to 5")
    if key_type != _ECDSA_P256:
        raise UnsupportedEvidence("unsupported_key_type", f"quote key type {key_type}, want 2")
    tee = _TEES.get(tee_type)
    if tee is None or (version == 3 and tee != "sgx"):
        raise EndorsementMismatch("tee_type", f"TEE type {tee_type:#x} in a v{version} quote")
    if qe_vendor_id != INTEL_QE_VENDOR_ID:
        raise EndorsementMismatch("qe_vendor", "quote: the Quoting Enclave is not Intel's")
    return version, tee


def _body_bytes(reader: _Reader, version: int, tee: Tee) -> int:
    """The length of the body; moves past v5's body descriptor."""
    if version < 5:
        return _ENCLAVE_REPORT_BYTES if tee == "sgx" else _TD10_BYTES
    body_type, size = reader.uint(2), reader.uint(4)
    if body_type not in _V5_BODIES:
        raise UnsupportedEvidence("unsupported_version", f"quote body type {body_type}, want 1..4")
    body_tee, want = _V5_BODIES[body_type]
    if body_tee != tee:
        raise EndorsementMismatch("tee_type", f"body type {body_type} under TEE type of {tee}")
    if size != want:
        raise MalformedEvidence("format", f"quote body: {size} bytes declared, want {want}")
    return want


def _parse_td_report(raw: bytes) -> TdReport:
    """``raw`` has one of the three lengths of ``_V5_BODIES``."""
    fields = _TD10.unpack_from(raw)
    is_td15 = len(raw) >= _TD15_BYTES
    svn_2, mr_service_td = _TD15.unpack_from(raw, _TD10_BYTES) if is_td15 else (None, None)
    return TdReport(
        tee_tcb_svn=fields[0],
        mr_seam=fields[1],
        mr_signer_seam=fields[2],
        seam_attributes=fields[3],
        td_attributes=fields[4],
        xfam=fields[5],
        mr_td=fields[6],
        mr_config_id=fields[7],
        mr_owner=fields[8],
        mr_owner_config=fields[9],
        rtmrs=fields[10:14],
        report_data=fields[14],
        tee_tcb_svn_2=svn_2,
        mr_service_td=mr_service_td,
        extension=_parse_td_extension(raw) if len(raw) == _TD15_EX_BYTES else None,
    )


def _parse_td_extension(raw: bytes) -> TdExtension:
    fields = _TD15_EX.unpack_from(raw, _TD15_BYTES)
    return TdExtension(
        vm_id=fields[0],
        td_id=fields[1],
        device_info_hash=fields[2],
        init_service_td_hash=fields[3],
        init_service_td_attributes=fields[4],
        init_cpu_svn=fields[5],
        init_tee_tcb_svn=fields[6],
        init_fmspc=fields[7],
        current_service_td_hash=fields[8],
        current_service_td_attributes=fields[9],
    )


def _parse_enclave_report(raw: bytes) -> EnclaveReport:
    return EnclaveReport(
        raw=raw,
        cpu_svn=raw[0:16],
        misc_select=raw[16:20],
        attributes=raw[48:64],
        mr_enclave=raw[64:96],
        mr_signer=raw[128:160],
        isv_prod_id=int.from_bytes(raw[256:258], "little"),
        isv_svn=int.from_bytes(raw[258:260], "little"),
        report_data=raw[320:384],
    )


def _typed(reader: _Reader, want_type: int) -> bytes:
    """The data of one certification field: type u16, size u32, data."""
    data_type = reader.uint(2)
    if data_type != want_type:
        raise UnsupportedEvidence(
            "unsupported_cert_data", f"certification data type {data_type}, want {want_type}"
        )
    return reader.take(reader.uint(4))
