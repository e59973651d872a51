"""What does an NVIDIA device report say, byte for byte?  [DMTF DSP0274 1.1 sec. 10.11]

A report is the SPDM GET_MEASUREMENTS request followed by the MEASUREMENTS response, one signature
over both. Every length is bounded before use and every byte is read, none is left over. What the
opaque data hold is in ``opaque.py``. Parsing verifies nothing.
"""

from dataclasses import dataclass

from attestation.errors import MalformedEvidence, UnsupportedEvidence
from attestation.nvidia.opaque import DeviceKind, OpaqueData, parse_opaque
from attestation.nvidia.reader import Field, Reader

MAX_REPORT_BYTES = 0x2000  # the buffer of nvmlDeviceGetConfComputeGpuAttestationReport
REQUEST_BYTES = 37
NONCE_BYTES = 32
SIGNATURE_BYTES = 96  # P-384 r||s, big-endian
DIGEST_BYTES = 48
_SPDM_1_1 = 0x11
_GET_MEASUREMENTS = 0xE0
_MEASUREMENTS = 0x60
_SIGNATURE_REQUESTED = 0x01
_ALL_MEASUREMENTS = 0xFF
_DMTF_SPECIFICATION = 0x01
_MAX_SLOT = 7  # DSP0274 sec. 10.6
_VALUE_HEADER_BYTES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A parsed report; ``measurements[i]`` is the value of SPDM block i + 1.

    ``signature`` is raw r||s over ``signed_bytes``.
    """

    kind: DeviceKind
    request_nonce: bytes
    response_nonce: bytes
    measurements: tuple[bytes, ...]
    opaque: OpaqueData
    signed_bytes: bytes
    signature: bytes


def parse_report(data: bytes, kind: DeviceKind) -> DeviceReport:
    """Steps: 1. request; 2. response header; 3. measurement blocks; 4. opaque data; 5. signature.

    Raises: MalformedEvidence: format, trailing_bytes. UnsupportedEvidence: unsupported_version.
    """
    return _parse(data, kind, None)


def report_fields(data: bytes, kind: DeviceKind) -> tuple[Field, ...]:
    """Name, offset, size and value of everything in a report, in order and without a gap.

    Raises: as ``parse_report``.
    """
    fields: list[Field] = []
    _parse(data, kind, fields)
    return tuple(fields)


def _parse(data: bytes, kind: DeviceKind, fields: list[Field] | None) -> DeviceReport:
    if len(data) > MAX_REPORT_BYTES:
        raise MalformedEvidence("format", f"report: {len(data)} bytes, at most {MAX_REPORT_BYTES}")
    reader = Reader(data, what="report", fields=fields)
    request_nonce, slot = _parse_request(reader.part(REQUEST_BYTES, "request"))  # 1
    num_blocks = _parse_response_header(reader, slot)  # 2
    record_bytes = reader.uint(3, "response.record_length")
    measurements = _parse_blocks(reader.part(record_bytes, "measurements"), num_blocks)  # 3
    response_nonce = reader.take(NONCE_BYTES, "response.nonce")
    opaque_bytes = reader.uint(2, "response.opaque_length")
    opaque = parse_opaque(reader.part(opaque_bytes, "opaque"), kind)  # 4
    signed_bytes = data[: reader.offset]
    signature = reader.take(SIGNATURE_BYTES, "response.signature")  # 5
    if reader.num_unread:
        raise MalformedEvidence("trailing_bytes", f"report: {reader.num_unread} bytes too many")
    return DeviceReport(
        kind=kind,
        request_nonce=request_nonce,
        response_nonce=response_nonce,
        measurements=measurements,
        opaque=opaque,
        signed_bytes=signed_bytes,
        signature=signature,
    )


def _parse_request(request: Reader) -> tuple[bytes, int]:
    """(nonce, slot) of a request for all measurements, signed."""
    _require_header(request, "request", _GET_MEASUREMENTS)
    request.expect(1, "request.param1", _SIGNATURE_REQUESTED)
    request.expect(1, "request.param2", _ALL_MEASUREMENTS)
    nonce = request.take(NONCE_BYTES, "request.nonce")
    slot = request.uint(1, "request.slot")
    if slot > _MAX_SLOT:
        raise MalformedEvidence("format", f"report: certificate slot {slot}, at most {_MAX_SLOT}")
    return nonce, slot


def _parse_response_header(response: Reader, slot: int) -> int:
    """The number of measurement blocks."""
    _require_header(response, "response", _MEASUREMENTS)
    response.expect(1, "response.param1", 0)
    response.expect(1, "response.param2", slot)
    num_blocks = response.uint(1, "response.num_blocks")
    if num_blocks == 0:
        raise MalformedEvidence("format", "report: no measurements")
    return num_blocks


def _require_header(message: Reader, name: str, code: int) -> None:
    version = message.uint(1, f"{name}.version")
    if version != _SPDM_1_1:
        raise UnsupportedEvidence(
            "unsupported_version", f"report {name}: SPDM version {version:#x}, want 0x11"
        )
    message.expect(1, f"{name}.code", code)


def _parse_blocks(record: Reader, num_blocks: int) -> tuple[bytes, ...]:
    """Values in the order of their indexes, which must be 1 to ``num_blocks``, each once."""
    values: dict[int, bytes] = {}
    for _ in range(num_blocks):
        index = record.uint(1, "block.index")
        if not 1 <= index <= num_blocks or index in values:
            raise MalformedEvidence("format", "report: block indexes are not each of 1..n once")
        name = f"block[{index}]"
        record.expect(1, f"{name}.specification", _DMTF_SPECIFICATION)
        size = record.uint(2, f"{name}.size")
        record.uint(1, f"{name}.value_type")
        value_bytes = record.uint(2, f"{name}.value_size")
        if size != value_bytes + _VALUE_HEADER_BYTES or value_bytes != DIGEST_BYTES:
            raise MalformedEvidence("format", f"report {name}: not one digest of {DIGEST_BYTES}")
        values[index] = record.take(value_bytes, f"{name}.value")
    if record.num_unread:
        raise MalformedEvidence("format", f"report: {record.num_unread} bytes after its last block")
    return tuple(values[index] for index in range(1, num_blocks + 1))
