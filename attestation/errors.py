"""Why was Evidence refused?  One error tree, one stable code per reason.

AttestationError
|-- MalformedEvidence      the bytes do not follow their format
|-- UnsupportedEvidence    well formed, but not what this library appraises
|-- UntrustedEndorsement   certificates, revocation lists and signed collateral, or a missing one
|-- BadSignature           a signature or key binding inside the Evidence does not hold
|-- EndorsementMismatch    genuine, but the collateral speaks of another platform, module or enclave
|-- StaleEvidence          the Evidence answers another nonce, keyset or session
|-- PolicyViolation        genuine and fresh, but the AppraisalPolicy refuses what it claims
`-- PolicyError            the AppraisalPolicy itself cannot be used

A message says what was checked, got and want; it never holds evidence bytes or keys.
"""

from typing import Literal

FormatCode = Literal["format", "trailing_bytes", "nonce_length"]
UnsupportedCode = Literal[
    "unsupported_version",
    "unsupported_key_type",
    "unsupported_cert_data",
    "unsupported_tee",
    "unsupported_gpu",
]
EndorsementCode = Literal[
    "certificate_revoked",
    "certificate_time",
    "chain",
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
    "signer_role",
    "tcb_info_signature",
    "untrusted_root",
]
SignatureCode = Literal["bad_key", "qe_binding", "qe_report_signature", "quote_signature"]
MismatchCode = Literal[
    "fmspc_mismatch",
    "pceid_mismatch",
    "qe_identity_mismatch",
    "qe_vendor",
    "tcb_info_mismatch",
    "tcb_no_match",
    "tdx_module",
    "tee_type",
]
StaleCode = Literal[
    "channel_binding", "gpu_evidence_hash", "keyset_expired", "nonce_mismatch", "report_data"
]
PolicyCode = Literal[
    "debug_enabled",
    "measurement_mismatch",
    "service_td_not_zero",
    "tcb_evaluation_floor",
    "tcb_status",
    "td_attributes",
    "tee_type",
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


class PolicyError(AttestationError):
    """The AppraisalPolicy cannot be used; the message lists every problem found."""

    def __init__(self, message: str) -> None:
        super().__init__("policy_invalid", message)
