"""Why was Evidence refused?  One error tree, one stable code per reason.

AttestationError
|-- MalformedEvidence      the bytes do not follow their format
|-- UnsupportedEvidence    well formed, but not what this library appraises
|-- UntrustedEndorsement   certificates, revocation lists and signed collateral, or a missing one
|-- BadSignature           a signature or key binding inside the Evidence does not hold
|-- EndorsementMismatch    genuine, but the collateral speaks of another platform, module or enclave
|-- StaleEvidence          the Evidence answers another nonce, keyset or session
|-- PolicyViolation        genuine and fresh, but the AppraisalPolicy refuses what it claims
|-- EvidenceUnavailable    a server was asked for Evidence and gave none
`-- PolicyError            the AppraisalPolicy itself cannot be used

A message says what was checked, got and want; it never holds evidence bytes or keys.
"""

from typing import Literal

FormatCode = Literal["format", "trailing_bytes", "nonce_length"]
UnsupportedCode = Literal[
    "unsupported_algorithm",
    "unsupported_cert_data",
    "unsupported_gpu",
    "unsupported_key_type",
    "unsupported_tee",
    "unsupported_version",
]
EndorsementCode = Literal[
    "certificate_revoked",
    "certificate_time",
    "chain",
    "chain_length",
    "chain_order",
    "chain_signature",
    "collateral_expired",
    "collateral_not_yet_valid",
    "crl_expired",
    "crl_issuer",
    "crl_missing",
    "crl_signature",
    "endorsement_missing",
    "qe_identity_signature",
    "rim_kind",
    "rim_signature",
    "rim_version",
    "signer_role",
    "tcb_info_signature",
    "unknown_kid",
    "untrusted_root",
]
SignatureCode = Literal[
    "algorithm",
    "bad_key",
    "cose_signature",
    "qe_binding",
    "qe_report_signature",
    "quote_signature",
    "receipt_signature",
    "report_signature",
    "submod_digest",
    "submod_set",
    "token_signature",
]
MismatchCode = Literal[
    "fmspc_mismatch",
    "fwid_mismatch",
    "hwid_mismatch",
    "index_conflict",
    "pceid_mismatch",
    "qe_identity_mismatch",
    "qe_vendor",
    "rim_kind",
    "rim_version",
    "signing_key",
    "tcb_info_mismatch",
    "tcb_mismatch",
    "tcb_no_match",
    "tdx_module",
    "tee_type",
    "token_type",
]
StaleCode = Literal[
    "channel_binding",
    "evidence_age",
    "gpu_evidence_hash",
    "keyset_expired",
    "nonce_mismatch",
    "report_data",
    "token_expired",
    "token_not_yet_valid",
]
Silence = Literal["no_answer", "not_trusted", "no_evidence", "no_receipt", "no_collateral"]
PolicyCode = Literal[
    "claims",
    "debug_enabled",
    "evidence_age",
    "evidence_missing",
    "evidence_refused",
    "gpu_arch",
    "gpu_count",
    "gpu_mode",
    "guest_policy",
    "measurement_mismatch",
    "platform_info",
    "platform_not_allowed",
    "product_refused",
    "service_td_not_zero",
    "tcb_evaluation_floor",
    "tcb_floor",
    "tcb_status",
    "td_attributes",
    "tee_type",
    "topology",
    "vmpl",
]


class AttestationError(Exception):
    """Root of the tree; ``code`` is stable and snake_case, the message is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedEvidence(AttestationError):
    """The bytes do not follow their format."""

    def __init__(self, code: FormatCode, message: str) -> None:
        super().__init__(code, message)


class UnsupportedEvidence(AttestationError):
    """Well formed, but not something this library appraises."""

    def __init__(self, code: UnsupportedCode, message: str) -> None:
        super().__init__(code, message)


class UntrustedEndorsement(AttestationError):
    """A certificate, revocation list or collateral object is missing, stale or not trusted."""

    def __init__(self, code: EndorsementCode, message: str) -> None:
        super().__init__(code, message)


class BadSignature(AttestationError):
    """A signature or key binding inside the Evidence does not hold."""

    def __init__(self, code: SignatureCode, message: str) -> None:
        super().__init__(code, message)


class EndorsementMismatch(AttestationError):
    """The collateral is genuine and speaks of something else."""

    def __init__(self, code: MismatchCode, message: str) -> None:
        super().__init__(code, message)


class StaleEvidence(AttestationError):
    """The Evidence answers another nonce, keyset or session."""

    def __init__(self, code: StaleCode, message: str) -> None:
        super().__init__(code, message)


class PolicyViolation(AttestationError):
    """The AppraisalPolicy refuses what genuine Evidence claims."""

    def __init__(self, code: PolicyCode, message: str) -> None:
        super().__init__(code, message)


class EvidenceUnavailable(AttestationError):
    """A server was asked for Evidence, or what goes with it, and gave none."""

    def __init__(self, message: str, *, reason: Silence) -> None:
        super().__init__("evidence_unavailable", message)
        self.reason = reason


class PolicyError(AttestationError):
    """The AppraisalPolicy cannot be used; the message lists every problem found."""

    def __init__(self, message: str) -> None:
        super().__init__("policy_invalid", message)
