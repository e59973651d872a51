"""What does a TPM 2.0 quote say?  [TPM 2.0 Library part 2: structures, rev. 1.59]"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from attestation.errors import MalformedEvidence, PolicyViolation, UnsupportedEvidence

MAX_ATTEST_BYTES = 4096
MAX_SELECTIONS = 8
MAX_SELECT_BYTES = 8
TPM_GENERATED = 0xFF544347  # what the TPM itself made, and no caller chose
TPM_ST_ATTEST_QUOTE = 0x8018
TPM_ALG_RSASSA = 0x0014
TPM_ALG_SHA256 = 0x000B
_CLOCK_INFO_BYTES = 17
_FIRMWARE_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmQuote:
    """A TPMS_ATTEST of type quote; nothing is verified yet.

    ``pcrs`` are the selected PCRs of the SHA-256 bank; ``pcr_digest`` is over their values.
    """

    extra_data: bytes
    pcrs: tuple[int, ...]
    pcr_digest: bytes


@dataclass(slots=True)
class _Reader:
    """Big-endian, from the front; a length that runs over the end is a format error."""

    data: bytes
    offset: int = 0

    def take(self, num_bytes: int) -> bytes:
        end = self.offset + num_bytes
        if end > len(self.data):
            raise MalformedEvidence("format", "TPM structure: ends too early")
        chunk, self.offset = self.data[self.offset : end], end
        return chunk

    def number(self, num_bytes: int) -> int:
        return int.from_bytes(self.take(num_bytes), "big")

    def sized(self) -> bytes:
        """A TPM2B."""
        return self.take(self.number(2))

    def finish(self) -> None:
        if self.offset != len(self.data):
            raise MalformedEvidence("trailing_bytes", "TPM structure: bytes after its end")


def parse_tpm_quote(data: bytes) -> TpmQuote:
    """Raises: MalformedEvidence: format, trailing_bytes; UnsupportedEvidence."""
    if len(data) > MAX_ATTEST_BYTES:
        raise MalformedEvidence("format", f"TPM quote: {len(data)} bytes")
    reader = _Reader(data)
    if reader.number(4) != TPM_GENERATED or reader.number(2) != TPM_ST_ATTEST_QUOTE:
        raise MalformedEvidence("format", "TPM quote: not a quote that a TPM made")
    reader.sized()  # qualifiedSigner: a name that says nothing which the signature does not
    extra_data = reader.sized()
    reader.take(_CLOCK_INFO_BYTES + _FIRMWARE_BYTES)
    pcrs = _pcr_selection(reader)
    pcr_digest = reader.sized()
    reader.finish()
    return TpmQuote(extra_data=extra_data, pcrs=pcrs, pcr_digest=pcr_digest)


def parse_tpm_signature(data: bytes) -> bytes:
    """The RSASSA-SHA256 signature in a TPMT_SIGNATURE.

    Raises: MalformedEvidence: format, trailing_bytes; UnsupportedEvidence("unsupported_algorithm").
    """
    reader = _Reader(data)
    if (reader.number(2), reader.number(2)) != (TPM_ALG_RSASSA, TPM_ALG_SHA256):
        raise UnsupportedEvidence("unsupported_algorithm", "TPM signature: not RSASSA with SHA-256")
    signature = reader.sized()
    reader.finish()
    return signature


def require_pcrs(quote: TpmQuote, expected: Mapping[int, bytes]) -> None:
    """Exactly these PCRs of the SHA-256 bank were quoted, with these values (32 bytes each).

    Raises: PolicyViolation("measurement_mismatch").
    """
    if quote.pcrs != tuple(sorted(expected)):
        raise PolicyViolation("measurement_mismatch", f"TPM quote is over PCRs {quote.pcrs}")
    digest = hashlib.sha256(b"".join(expected[index] for index in quote.pcrs)).digest()
    if not hmac.compare_digest(digest, quote.pcr_digest):
        raise PolicyViolation("measurement_mismatch", "a quoted PCR is not its reference value")


def _pcr_selection(reader: _Reader) -> tuple[int, ...]:
    """TPML_PCR_SELECTION; only the SHA-256 bank may be selected."""
    num_selections = reader.number(4)
    if num_selections > MAX_SELECTIONS:
        raise MalformedEvidence("format", f"TPM quote: {num_selections} PCR selections")
    pcrs: list[int] = []
    banks: set[int] = set()
    for _ in range(num_selections):
        bank, num_select_bytes = reader.number(2), reader.number(1)
        if bank in banks or num_select_bytes > MAX_SELECT_BYTES:
            raise MalformedEvidence("format", "TPM quote: PCR bank twice or bitmap too long")
        banks.add(bank)
        bitmap = int.from_bytes(reader.take(num_select_bytes), "little")
        if bank != TPM_ALG_SHA256 and bitmap:
            raise UnsupportedEvidence("unsupported_algorithm", "TPM quote: PCRs not of SHA-256")
        pcrs += [index for index in range(8 * num_select_bytes) if bitmap >> index & 1]
    return tuple(pcrs)
