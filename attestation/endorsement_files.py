"""Which Endorsements are in these files?  Sorted by what each one is, verified by none of this.

Intel's collateral is JSON, AMD's and NVIDIA's certificates and CRLs are DER or PEM, RIMs are XML,
OCSP answers DER. All of it is signed, so who brought it does not matter; a JWKS is not, and has its
own option.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.x509 import ocsp

from attestation.certificate import KEY_KINDS, PARSE_ERRORS, parse_certificate
from attestation.errors import AttestationError, MalformedEvidence
from attestation.model import GpuEndorsements
from attestation.snp.endorsements import SnpEndorsements
from attestation.tdx.endorsements import TdxCollateral, parse_collateral

MAX_ENDORSEMENT_BYTES = 4 * 1024 * 1024
_PEM_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PEM_CRL = b"-----BEGIN X509 CRL-----"
_ONE = 1


@dataclass(slots=True)
class EndorsementFiles:
    """Everything that was given, by what it is: PEM ``chains``, single ``certificates``."""

    tdx: TdxCollateral | None = None
    chains: list[bytes] = field(default_factory=list)
    certificates: list[bytes] = field(default_factory=list)
    crls: list[bytes] = field(default_factory=list)
    rims: list[bytes] = field(default_factory=list)
    ocsp: list[bytes] = field(default_factory=list)

    def snp(self) -> SnpEndorsements | None:
        """AMD's: one certificate, one chain, at most one CRL; None when not all are there."""
        if len(self.certificates) != _ONE or len(self.chains) != _ONE or len(self.crls) > _ONE:
            return None
        crl = self.crls[0] if self.crls else None
        return SnpEndorsements(vek=self.certificates[0], chain=self.chains[0], crl=crl)

    def gpu(self) -> GpuEndorsements | None:
        """NVIDIA's RIMs and OCSP answers; None when there are neither."""
        if not self.rims and not self.ocsp:
            return None
        return GpuEndorsements(rims=tuple(self.rims), ocsp=tuple(self.ocsp))


def sort_endorsements(files: Iterable[bytes]) -> EndorsementFiles:
    """Each file by what it is.  Raises: MalformedEvidence("format"): it is none of them."""
    sorted_files = EndorsementFiles()
    for data in files:
        _add(sorted_files, data)
    return sorted_files


def _add(files: EndorsementFiles, data: bytes) -> None:
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        files.tdx = parse_collateral(data)
    elif text[:1] == b"<":
        files.rims.append(data)
    elif text.startswith(_PEM_CERTIFICATE):
        is_chain = text.count(_PEM_CERTIFICATE) > _ONE
        (files.chains if is_chain else files.certificates).append(text)
    elif text.startswith(_PEM_CRL) or _reads(x509.load_der_x509_crl, data):
        files.crls.append(data)
    elif _reads(_load_certificate, data):
        files.certificates.append(data)
    elif _reads(ocsp.load_der_ocsp_response, data):
        files.ocsp.append(data)
    else:
        raise MalformedEvidence("format", "endorsements: a file that is none of those known here")


def _load_certificate(data: bytes) -> object:
    """``cryptography`` alone warns at the serial number of AMD's certificates."""
    return parse_certificate(data, what="endorsement", key_kinds=KEY_KINDS)


def _reads(load: Callable[[bytes], object], data: bytes) -> bool:
    try:
        load(data)
    except (*PARSE_ERRORS, AttestationError):
        return False
    return True
