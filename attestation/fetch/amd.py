"""Which certificates and CRL does this SEV-SNP report need, and where are they?  [AMD 57230]

A VCEK is kept by product line, chip and TCB together with its chain: AMD issues the same key again
with new dates, so its bytes identify nothing. What came along with the report is used before
anything is asked for.
"""

import hashlib
import json
from collections.abc import Callable

from attestation.anchors import TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import UntrustedEndorsement
from attestation.fetch import kds
from attestation.fetch.cache import Window
from attestation.fetch.crl import crl_window
from attestation.fetch.endorser import Endorser, ObjectSpec
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Fetcher
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import ProductLine
from attestation.snp.report import SnpReport, parse_report
from attestation.snp.verifier import SnpVerifier, VerifiedVek
from attestation.snp.wire import endorsements_from_json, endorsements_to_json
from attestation.strict_json import parse_object

MAX_STORED_BYTES = 4 * kds.MAX_CHAIN_BYTES


def snp_endorsements(
    endorser: Endorser,
    report_bytes: bytes,
    *,
    anchors: TrustAnchors,
    carried: SnpEndorsements | None = None,
) -> SnpEndorsements:
    """Endorsements for a report; ``carried`` is what came with it, whose gaps are filled.

    Without a CRL to be had it is left out, and ``endorser.failures`` says why: whether that is
    acceptable is the policy's question.

    Raises: AttestationError: a malformed report, a foreign root, or FetchFailed.
    """
    report = parse_report(report_bytes)
    if carried is not None and carried.vek and carried.chain:
        with_chain = carried
    elif carried is not None and carried.vek:
        with_chain = _first_of(
            report, lambda product: _chain_of(endorser, report, product, carried, anchors)
        )
    elif report.signing_key == "VLEK":
        raise FetchFailed(
            "endorsement_missing",
            "unsuited",
            "VLEK: its certificate is not public, so it must come along with the report",
        )
    else:
        with_chain = _first_of(report, lambda product: _vcek_of(endorser, report, product, anchors))
    if with_chain.crl is not None:
        return with_chain
    verified = _verify(with_chain, anchors)
    crl = endorser.try_get(_crl(verified, report))
    return SnpEndorsements(vek=with_chain.vek, chain=with_chain.chain, crl=crl)


def _first_of(report: SnpReport, get: Callable[[ProductLine], SnpEndorsements]) -> SnpEndorsements:
    """For the product line that has it; an old report does not say which one it is from."""
    products = kds.possible_products(report)
    for product in products[:-1]:
        try:
            return get(product)
        except FetchFailed as err:
            if err.reason not in ("not_found", "offline"):
                raise
    return get(products[-1])


def _vcek_of(
    endorser: Endorser, report: SnpReport, product: ProductLine, anchors: TrustAnchors
) -> SnpEndorsements:
    name = kds.vcek_name(report, product)

    def fetch(fetcher: Fetcher, base: str) -> bytes:
        vek = kds.fetch_vcek(fetcher, base, name)
        chain = kds.fetch_cert_chain(fetcher, base, product, "VCEK")
        return _to_bytes(SnpEndorsements(vek=vek, chain=chain, crl=None))

    def verify(data: bytes) -> Window:
        verified = _verify(_from_bytes(data), anchors)
        identity = verified.identity
        is_asked_for = identity.tcb == product.parse_tcb(name.reported_tcb) and (
            identity.hwid == name.chip_id
        )
        if not is_asked_for:
            raise UntrustedEndorsement("chain", "VCEK: not of the chip and TCB asked for")
        return Window(next_update=verified.chain.not_after)

    chip, tcb = name.chip_id.hex(), name.reported_tcb.hex()
    return _from_bytes(
        endorser.get(
            ObjectSpec(
                what="VCEK and its chain",
                slot=f"amd/{_roots(anchors)}/vcek/{product.name}/{chip}/{tcb}",
                code="endorsement_missing",
                service="kds",
                fetch=fetch,
                verify=verify,
            )
        )
    )


def _chain_of(
    endorser: Endorser,
    report: SnpReport,
    product: ProductLine,
    carried: SnpEndorsements,
    anchors: TrustAnchors,
) -> SnpEndorsements:
    kind = report.signing_key

    def verify(chain: bytes) -> Window:
        made = SnpEndorsements(vek=carried.vek, chain=chain, crl=None)
        return Window(next_update=_verify(made, anchors).chain.not_after)

    chain = endorser.get(
        ObjectSpec(
            what=f"{kind} chain",
            slot=f"amd/{_roots(anchors)}/chain/{kind}/{product.name}",
            code="endorsement_missing",
            service="kds",
            fetch=lambda fetcher, base: kds.fetch_cert_chain(fetcher, base, product, kind),
            verify=verify,
        )
    )
    return SnpEndorsements(vek=carried.vek, chain=chain, crl=carried.crl)


def _crl(verified: VerifiedVek, report: SnpReport) -> ObjectSpec:
    root, product = verified.chain.root, verified.identity.product
    kind = report.signing_key
    return ObjectSpec(
        what="ARK CRL",
        slot=f"amd/{root.sha256[:16]}/crl/{kind}/{product.name}",
        code="crl_missing",
        service="kds",
        fetch=lambda fetcher, base: kds.fetch_crl(fetcher, base, product, kind),
        verify=lambda data: crl_window(data, issuer=root, what="ARK CRL"),
    )


def _verify(endorsements: SnpEndorsements, anchors: TrustAnchors) -> VerifiedVek:
    return SnpVerifier(anchors=anchors).verify_endorsements(endorsements, log=CheckLog())


def _roots(anchors: TrustAnchors) -> str:
    """Names a set of roots in slots, before it is known which of them it will be."""
    own = sorted(anchor.sha256 for anchor in anchors.anchors if anchor.family == "amd-ark")
    return hashlib.sha256("".join(own).encode("ascii")).hexdigest()[:16]


def _to_bytes(endorsements: SnpEndorsements) -> bytes:
    return json.dumps(endorsements_to_json(endorsements)).encode("utf-8")


def _from_bytes(data: bytes) -> SnpEndorsements:
    return endorsements_from_json(
        parse_object(data, what="endorsements", max_bytes=MAX_STORED_BYTES, max_depth=1)
    )
