"""Which collateral does this quote need, and where is it?  [Intel PCS API v4]

The quote's own certificate chain must end in a pinned root before anything is asked for, so that a
forged quote causes no traffic and no entry in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

from attestation.anchors import Anchor, TrustAnchors
from attestation.errors import EndorsementMismatch, UntrustedEndorsement
from attestation.fetch import pcs
from attestation.fetch.cache import Window
from attestation.fetch.crl import crl_window
from attestation.fetch.endorser import Endorser, ObjectSpec
from attestation.fetch.http import Fetcher
from attestation.tdx.collateral import (
    VerifiedQeIdentity,
    VerifiedTcbInfo,
    verify_qe_identity,
    verify_tcb_info,
)
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.pck import parse_pck_extension
from attestation.tdx.quote import Tee, parse_quote
from attestation.tdx.verifier import PCK_CHAIN_LENGTH, TCB_CHAIN_LENGTH
from attestation.x509 import VerifiedChain, parse_chain, verify_chain

_SIGNER_ROLE = "SGX TCB Signing"
_CAS: tuple[tuple[str, pcs.PckCa], ...] = (
    ("SGX PCK Platform CA", "platform"),
    ("SGX PCK Processor CA", "processor"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Platform:
    """What a quote says about where it was made, under a pinned root."""

    tee: Tee
    fmspc: bytes
    ca: pcs.PckCa
    chain: VerifiedChain

    @property
    def root(self) -> str:
        """Names the root in slots: objects of two roots never share one."""
        return self.chain.anchor.sha256[:16]


def tdx_collateral(endorser: Endorser, quote: bytes, *, anchors: TrustAnchors) -> TdxCollateral:
    """Collateral for a TDX or SGX quote.

    Raises: AttestationError: a malformed quote, a foreign root, or FetchFailed.
    """
    platform = _platform(quote, anchors)
    edition = endorser.tcb_edition
    tcb_info, qe_identity = (
        pcs.SignedText.from_bytes(endorser.get(spec))
        for spec in (_tcb_info(platform, edition), _qe_identity(platform, edition))
    )
    return TdxCollateral(
        pck_crl=endorser.get(_pck_crl(platform)),
        root_ca_crl=endorser.get(_root_crl(platform)),
        tcb_info=tcb_info.text,
        tcb_info_signature=tcb_info.signature,
        tcb_info_issuer_chain=tcb_info.issuer_chain,
        qe_identity=qe_identity.text,
        qe_identity_signature=qe_identity.signature,
        qe_identity_issuer_chain=qe_identity.issuer_chain,
    )


def _platform(quote_bytes: bytes, anchors: TrustAnchors) -> _Platform:
    what = "PCK chain"
    quote = parse_quote(quote_bytes)
    chain = verify_chain(
        parse_chain(quote.pck_chain_pem, what=what),
        num_certificates=PCK_CHAIN_LENGTH,
        family="dcap",
        anchors=anchors,
        what=what,
    )
    issuer = chain.certificates[1].common_name
    ca = next((ca for name, ca in _CAS if issuer.endswith(name)), None)
    if ca is None:
        raise UntrustedEndorsement("signer_role", f"{what}: not issued by a PCK CA")
    return _Platform(tee=quote.tee, fmspc=parse_pck_extension(chain.leaf).fmspc, ca=ca, chain=chain)


def _tcb_info(platform: _Platform, edition: str) -> ObjectSpec:
    def verify(found: pcs.SignedText, signer: VerifiedChain) -> VerifiedTcbInfo:
        info = verify_tcb_info(found.text, found.signature, signer=signer, tee=platform.tee)
        if info.fmspc != platform.fmspc:
            raise EndorsementMismatch(
                "fmspc_mismatch",
                f"TCB info is for {info.fmspc.hex()}, platform is {platform.fmspc.hex()}",
            )
        return info

    return _signed(
        platform,
        what="TCB info",
        name=f"tcb/{platform.fmspc.hex()}/{edition}",
        fetch=lambda fetcher, base: pcs.fetch_tcb_info(
            fetcher, base, tee=platform.tee, fmspc=platform.fmspc
        ),
        verify=verify,
    )


def _qe_identity(platform: _Platform, edition: str) -> ObjectSpec:
    return _signed(
        platform,
        what="QE identity",
        name=f"qe/{edition}",
        fetch=lambda fetcher, base: pcs.fetch_qe_identity(fetcher, base, tee=platform.tee),
        verify=lambda found, signer: verify_qe_identity(
            found.text, found.signature, signer=signer, tee=platform.tee
        ),
    )


def _signed(
    platform: _Platform,
    *,
    what: str,
    name: str,
    fetch: Callable[[Fetcher, str], pcs.SignedText],
    verify: Callable[[pcs.SignedText, VerifiedChain], VerifiedTcbInfo | VerifiedQeIdentity],
) -> ObjectSpec:
    """What Intel's TCB signer signs, ordered by its date and TCB evaluation data number."""

    def window(data: bytes) -> Window:
        found = pcs.SignedText.from_bytes(data)
        verified = verify(found, _signer(found.issuer_chain, platform.chain.anchor))
        return Window(
            issued=verified.issue_date,
            next_update=verified.next_update,
            number=verified.tcb_evaluation_data_number,
        )

    return ObjectSpec(
        what=what,
        slot=f"dcap/{platform.root}/{platform.tee}/{name}",
        code="endorsement_missing",
        service="pcs",
        fetch=lambda fetcher, base: fetch(fetcher, base).to_bytes(),
        verify=window,
    )


def _pck_crl(platform: _Platform) -> ObjectSpec:
    return ObjectSpec(
        what="PCK CRL",
        slot=f"dcap/{platform.root}/crl/{platform.ca}",
        code="crl_missing",
        service="pcs",
        fetch=lambda fetcher, base: pcs.fetch_pck_crl(fetcher, base, ca=platform.ca),
        verify=lambda data: crl_window(data, issuer=platform.chain.certificates[1], what="PCK CRL"),
    )


def _root_crl(platform: _Platform) -> ObjectSpec:
    return ObjectSpec(
        what="root CRL",
        slot=f"dcap/{platform.root}/crl/root",
        code="crl_missing",
        service="root_crl",
        fetch=pcs.fetch_root_crl,
        verify=lambda data: crl_window(data, issuer=platform.chain.root, what="root CRL"),
    )


def _signer(pem: str, anchor: Anchor) -> VerifiedChain:
    """Who signs TCB data, under the root that the quote ends in."""
    what = "TCB signing chain"
    chain = verify_chain(
        parse_chain(pem.encode("utf-8"), what=what),
        num_certificates=TCB_CHAIN_LENGTH,
        family="dcap",
        anchors=TrustAnchors(anchors=(anchor,)),
        what=what,
    )
    if not chain.leaf.common_name.endswith(_SIGNER_ROLE):
        raise UntrustedEndorsement("signer_role", f"{what}: its leaf is not named {_SIGNER_ROLE}")
    return chain
