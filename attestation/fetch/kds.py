"""What does AMD's key distribution service have for a report?  [AMD 57230 sec. 4]

A VCEK is named by product line, chip and the TCB that the report was made under. VLEKs are not
served to the public: they come with the report. What comes back is unverified.
"""

from dataclasses import dataclass

from attestation.certificate import MAX_CERTIFICATE_BYTES
from attestation.fetch.crl import crl_bytes
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Asked, Fetcher
from attestation.snp.product import PRODUCTS, ProductLine, product_of_cpuid
from attestation.snp.report import SigningKey, SnpReport
from attestation.x509 import MAX_CRL_BYTES

MAX_CHAIN_BYTES = 4 * MAX_CERTIFICATE_BYTES
_SPLS = (
    ("blSPL", "boot_loader"),
    ("teeSPL", "tee"),
    ("snpSPL", "snp"),
    ("ucodeSPL", "microcode"),
)
_PEM_START = b"-----BEGIN CERTIFICATE-----"
_DER_SEQUENCE_START = b"\x30"


@dataclass(frozen=True, slots=True, kw_only=True)
class VcekName:
    """Which VCEK: the chip id has the product line's length."""

    product: ProductLine
    chip_id: bytes
    reported_tcb: bytes

    @property
    def params(self) -> dict[str, str]:
        """The security patch levels as the service takes them."""
        tcb = self.product.parse_tcb(self.reported_tcb)
        has_fmc = any(component == "fmc" for component, _ in self.product.tcb_bytes)
        levels = [("fmcSPL", "fmc"), *_SPLS] if has_fmc else list(_SPLS)
        return {name: f"{getattr(tcb, component):02d}" for name, component in levels}


def possible_products(report: SnpReport) -> tuple[ProductLine, ...]:
    """The product line of a report; all older ones when it is too old to say.

    Raises: UnsupportedEvidence("unsupported_tee").
    """
    if report.cpuid is not None:
        family, model, _ = report.cpuid
        return (product_of_cpuid(family, model),)
    return tuple(product for product in PRODUCTS.values() if product.struct_version == 0)


def vcek_name(report: SnpReport, product: ProductLine) -> VcekName:
    """Raises: FetchFailed("unsuited"): the report does not name its chip."""
    if not any(report.chip_id):
        raise FetchFailed(
            "endorsement_missing",
            "unsuited",
            "VCEK: the report hides its chip id, so its certificate must come along with it",
        )
    return VcekName(
        product=product,
        chip_id=report.chip_id[: product.hwid_bytes],
        reported_tcb=report.reported_tcb,
    )


def fetch_vcek(fetcher: Fetcher, base: str, name: VcekName) -> bytes:
    """DER.  Raises: FetchFailed; MalformedEvidence("format"): the TCB is no TCB of the product."""
    asked = Asked(
        service="kds",
        base=base,
        path=f"/vcek/v1/{name.product.name}/{name.chip_id.hex()}",
        params=name.params,
        what="VCEK",
        code="endorsement_missing",
        max_bytes=MAX_CERTIFICATE_BYTES,
    )
    content = fetcher.fetch(asked).content
    if not content.startswith(_DER_SEQUENCE_START):
        raise FetchFailed(asked.code, "content", "VCEK: the answer is no certificate")
    return content


def fetch_cert_chain(fetcher: Fetcher, base: str, product: ProductLine, kind: SigningKey) -> bytes:
    """PEM of ASK or ASVK, then ARK.  Raises: FetchFailed."""
    asked = Asked(
        service="kds",
        base=base,
        path=f"/{kind.lower()}/v1/{product.name}/cert_chain",
        what=f"{kind} chain",
        code="endorsement_missing",
        max_bytes=MAX_CHAIN_BYTES,
    )
    content = fetcher.fetch(asked).content
    if not content.startswith(_PEM_START):
        raise FetchFailed(asked.code, "content", f"{kind} chain: the answer is no PEM")
    return content


def fetch_crl(fetcher: Fetcher, base: str, product: ProductLine, kind: SigningKey) -> bytes:
    """DER of what the ARK revoked.  Raises: FetchFailed."""
    asked = Asked(
        service="kds",
        base=base,
        path=f"/{kind.lower()}/v1/{product.name}/crl",
        what="ARK CRL",
        code="crl_missing",
        max_bytes=MAX_CRL_BYTES,
    )
    return crl_bytes(fetcher.fetch(asked).content, asked)
