"""AWS Nitro: did a Nitro hypervisor make this document?  [AWS NSM API, RFC 9052]

Appraisal in numbered steps; the first that fails ends it. Whether its measurements, its age and
what the enclave had signed are right is the policy's and the session's question.
"""

from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.x509 import ExtensionNotFound

from attestation.anchors import Anchor, TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import UntrustedEndorsement
from attestation.nitro.cose import parse_sign1, verify_sign1
from attestation.nitro.document import AttestationDocument, parse_document
from attestation.x509 import (
    Certificate,
    KeyKind,
    VerifiedChain,
    parse_certificate,
    require_chain_current,
    verify_chain,
)

_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384"})
_WHAT = "Nitro document"


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroClaims:
    """What a genuine document claims; made by ``NitroVerifier`` alone.

    ``not_after``: the first end of a certificate, hours after the document was made.
    """

    document: AttestationDocument
    anchor: Anchor
    verified_at: datetime
    not_after: datetime

    def fields(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of what is verified, for people."""
        return (
            *self.document.fields(),
            ("trust_anchor", self.anchor.name),
            ("not_after", self.not_after.isoformat()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroVerifier:
    """Verifies Nitro documents against pinned roots."""

    anchors: TrustAnchors

    def verify(self, data: bytes, *, at: datetime, log: CheckLog) -> NitroClaims:
        """Claims of a genuine document; ``log`` receives one entry a step.

        Raises: AttestationError: the code of the step that failed.
        """
        with log.step("document_format", "the document follows its format"):  # 1
            message = parse_sign1(data, what=_WHAT)
            document = parse_document(message.payload)
        with log.step("document_chain", "its certificate chain ends in the pinned root"):  # 2
            chain = self._verify_chain(document)
        with log.step("dates", "its certificates are current, as they were when it was made"):  # 3
            require_chain_current(chain, at)
            _require_made_in_time(chain, document)
        with log.step("document_signature", "it is signed by the key of its certificate"):  # 4
            verify_sign1(message, chain.leaf.ec_key, what=_WHAT)
        return NitroClaims(
            document=document, anchor=chain.anchor, verified_at=at, not_after=chain.not_after
        )

    def _verify_chain(self, document: AttestationDocument) -> VerifiedChain:
        what = "Nitro chain"
        leaf_first = (document.certificate, *reversed(document.cabundle))
        certificates = [
            parse_certificate(der, what=what, key_kinds=_KEY_KINDS) for der in leaf_first
        ]
        chain = verify_chain(
            certificates,
            num_certificates=len(certificates),  # AWS fixes no depth; path lengths bound it
            family="aws-nitro",
            anchors=self.anchors,
            what=what,
        )
        if not _signs_documents(chain.leaf):
            raise UntrustedEndorsement("signer_role", f"{what}: its leaf may not sign documents")
        return chain


def _signs_documents(leaf: Certificate) -> bool:
    try:
        usage = leaf.inner.extensions.get_extension_for_class(x509.KeyUsage).value
    except ExtensionNotFound:
        return False
    return usage.digital_signature and not usage.key_cert_sign


def _require_made_in_time(chain: VerifiedChain, document: AttestationDocument) -> None:
    leaf = chain.leaf
    if not leaf.not_before <= document.made_at <= leaf.not_after:
        raise UntrustedEndorsement(
            "certificate_time", f"{_WHAT}: not made while its certificate was valid"
        )
