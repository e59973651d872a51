"""Why is there no Evidence of this machine?

AttestationError
`-- TeeUnavailable   code tee_unavailable; ``next_step`` says what a person can do about it
"""

from attestation.errors import AttestationError


class TeeUnavailable(AttestationError):
    """This machine offers no TEE that is supported, or the TEE did not answer."""

    def __init__(self, message: str, *, next_step: str) -> None:
        super().__init__("tee_unavailable", message)
        self.next_step = next_step
