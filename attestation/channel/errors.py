"""What can go wrong in the sealed channel, and which code does each failure carry?

::

    ChannelError
    |-- KeyConfigError      key_config_error      unknown key id, suite not offered, bad key list
    |-- UnsupportedSuite    unsupported_suite     an HPKE suite this implementation does not have
    |-- DecryptFailed       decrypt_failed        malformed, not authentic or cut short: one text
    |-- BodyTooLarge        body_too_large        a chunk or a body over its limit
    |-- TooManyChunks       too_many_chunks       more chunks than the limit
    |-- MalformedInner      malformed_inner       the opened bytes are not binary HTTP
    |   `-- TruncatedInner  truncated_inner       they end in the middle of binary HTTP
    |-- RefusedTarget       refuse_target         binary HTTP that asks for a tunnel
    |-- NoUsableLease       upstream_verification_failed   no worker may be sealed to now
    `-- ChannelMisuse       channel_misuse        a call out of order: a fault in the caller

No message holds bytes of a body or of a key.
"""

from typing import ClassVar, Literal

DecryptDetail = Literal["malformed", "decrypt", "truncated"]


class ChannelError(Exception):
    """Root of the channel's errors; ``code`` is the same string in every report of it."""

    code: ClassVar[str]


class KeyConfigError(ChannelError):
    """The key configuration named or offered cannot be used."""

    code = "key_config_error"


class UnsupportedSuite(ChannelError):
    """The HPKE suite exists, but not here."""

    code = "unsupported_suite"


class DecryptFailed(ChannelError):
    """A sealed message could not be opened.

    The text is the same for every cause, so that an answer is no oracle. ``detail`` says which
    it was, for the audit event alone.
    """

    code = "decrypt_failed"
    TEXT: ClassVar[str] = "the encapsulated message could not be opened"

    def __init__(self, detail: DecryptDetail) -> None:
        super().__init__(self.TEXT)
        self.detail = detail


class BodyTooLarge(ChannelError):
    """A chunk or a whole body is over its limit."""

    code = "body_too_large"


class TooManyChunks(ChannelError):
    """A body has more chunks than its limit."""

    code = "too_many_chunks"


class MalformedInner(ChannelError):
    """The opened bytes are not a binary HTTP message."""

    code = "malformed_inner"


class TruncatedInner(MalformedInner):
    """The opened bytes end within a binary HTTP message."""

    code = "truncated_inner"


class RefusedTarget(ChannelError):
    """A binary HTTP request for a tunnel (CONNECT), which no sealed request may open."""

    code = "refuse_target"


class NoUsableLease(ChannelError):
    """A worker has no lease that may be used now.

    ``state`` is the lease state and ``reason_code`` the code of the verdict behind it, if any.
    """

    code = "upstream_verification_failed"

    def __init__(self, node: str, state: str, reason_code: str | None) -> None:
        super().__init__(f"worker {node}: no usable lease, state {state}")
        self.node = node
        self.state = state
        self.reason_code = reason_code


class ChannelMisuse(ChannelError):
    """A method was called out of order; the channel stays as it was."""

    code = "channel_misuse"
