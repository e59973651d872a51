"""How does a machine without a TEE attest?  FakeTee: a real TDX quote under a root nobody trusts.

The quote and its collateral have every part of the real ones and go through the same TdxVerifier;
what tells them apart is the root. Nothing here protects anything.
"""

import hashlib
import struct
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from cryptography import x509

from attestation.fake.pki import PCK_NAME, TCB_SIGNER_NAME, FakePki, pem
from attestation.fake.platform import FakePlatform
from attestation.strict_json import format_time
from attestation.tdx.endorsements import TdxCollateral

COLLATERAL_LIFETIME = timedelta(days=30)
REPORT_DATA_BYTES = 64
_ATTESTATION_KEY = "attestation key"
_QE_AUTH_DATA = bytes(range(32))
_CERT_TYPE_PCK_CHAIN = 5
_CERT_TYPE_QE_REPORT = 6


@dataclass(frozen=True)
class FakeTee:
    """Attests anything it is asked to.  Same inputs, same bytes; safe to share between threads."""

    platform: FakePlatform = field(default_factory=FakePlatform)
    pki: FakePki = field(default_factory=FakePki)
    tee: str = "fake-tdx"

    def attest(self, report_data: bytes, *, at: datetime) -> tuple[bytes, TdxCollateral]:
        """(quote, collateral current at ``at``); ``report_data`` has 64 bytes.

        Raises: ValueError: ``report_data`` of another length.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report_data: {len(report_data)} bytes, want {REPORT_DATA_BYTES}")
        return self.quote(report_data), self.collateral(at)

    def quote(self, report_data: bytes) -> bytes:
        """A version 4 TDX quote over ``report_data``."""
        signed = self.platform.header_and_td_report(report_data)
        signature = self.pki.sign(_ATTESTATION_KEY, signed)
        signature_data = (
            signature
            + self.pki.public_point(_ATTESTATION_KEY)
            + _typed(_CERT_TYPE_QE_REPORT, self._certification)
        )
        return signed + struct.pack("<I", len(signature_data)) + signature_data

    def collateral(self, at: datetime) -> TdxCollateral:
        """Collateral issued at the midnight (of ``at``'s zone) before the last, for 30 days."""
        issued = at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        found = self._collateral_by_day.get(format_time(issued))
        if found is None:
            found = self._issue_collateral(issued, issued + COLLATERAL_LIFETIME)
            self._collateral_by_day.clear()  # one day is enough
            self._collateral_by_day[format_time(issued)] = found
        return found

    @cached_property
    def pck(self) -> x509.Certificate:
        """The platform's certificate."""
        return self.pki.issue_pck(self.platform.sgx_extension())

    @cached_property
    def _certification(self) -> bytes:
        """QE report with its signature, and the PCK chain: the same for every quote."""
        key = self.pki.public_point(_ATTESTATION_KEY)
        named = hashlib.sha256(key + _QE_AUTH_DATA).digest() + bytes(32)
        qe_report = self.platform.qe_report(named)
        chain = pem((self.pck, self.pki.pck_ca, self.pki.root))
        return (
            qe_report
            + self.pki.sign(PCK_NAME, qe_report)
            + struct.pack("<H", len(_QE_AUTH_DATA))
            + _QE_AUTH_DATA
            + _typed(_CERT_TYPE_PCK_CHAIN, chain)
        )

    @cached_property
    def _collateral_by_day(self) -> dict[str, TdxCollateral]:
        return {}

    def _issue_collateral(self, issued: datetime, next_update: datetime) -> TdxCollateral:
        signer_chain = pem((self.pki.tcb_signer, self.pki.root)).decode("ascii")
        tcb_info = self.platform.tcb_info(issued, next_update)
        qe_identity = self.platform.qe_identity(issued, next_update)
        return TdxCollateral(
            pck_crl=self.pki.pck_crl(issued, next_update),
            root_ca_crl=self.pki.root_crl(issued, next_update),
            tcb_info=tcb_info,
            tcb_info_signature=self.pki.sign(TCB_SIGNER_NAME, tcb_info.encode("utf-8")),
            tcb_info_issuer_chain=signer_chain,
            qe_identity=qe_identity,
            qe_identity_signature=self.pki.sign(TCB_SIGNER_NAME, qe_identity.encode("utf-8")),
            qe_identity_issuer_chain=signer_chain,
        )


def _typed(data_type: int, data: bytes) -> bytes:
    return struct.pack("<HI", data_type, len(data)) + data
