"""The sealed channel: how do a request and its answer travel so that only the attested worker,
and only the client, can read them?

HPKE, chunked and plain OHTTP, EHBP, binary HTTP, padding, key configurations, rotating keys and
leases; no I/O, and no clock but those that are given.
A usage example is in ``attestation.channel.ohttp``.
"""

from attestation.channel import bhttp, ehbp
from attestation.channel.chunks import ChunkLimits
from attestation.channel.encapsulation import ServerKey, ServerKeys
from attestation.channel.errors import (
    BodyTooLarge,
    ChannelError,
    ChannelMisuse,
    DecryptFailed,
    KeyConfigError,
    MalformedInner,
    NoUsableLease,
    RefusedTarget,
    TooManyChunks,
    TruncatedInner,
    UnsupportedSuite,
)
from attestation.channel.hpke import (
    AEAD_AES_128_GCM,
    AEAD_AES_256_GCM,
    AEAD_CHACHA20_POLY1305,
    KDF_HKDF_SHA256,
    KEM_X25519,
    KEM_XWING,
    PrivateKey,
    Rng,
    Suite,
    setup_recipient,
    setup_sender,
)
from attestation.channel.keyconfig import (
    KeyConfig,
    SymmetricSuite,
    attested_key_configs,
    parse_key_config,
    parse_key_configs,
    select_key_config,
    serialize_key_configs,
)
from attestation.channel.keyring import KeyOffer, KeyRing, KeyState, RotationEvent
from attestation.channel.lease import (
    REFRESH_RATIO,
    Lease,
    LeaseMachine,
    LeaseState,
    lease_not_after,
)
from attestation.channel.ohttp import (
    CHUNKED_REQUEST_TYPE,
    CHUNKED_RESPONSE_TYPE,
    KEY_LIST_TYPE,
    ClientRequest,
    ResponseOpener,
    ResponseSealer,
    ServerRequest,
)
from attestation.channel.plain import (
    PLAIN_REQUEST_TYPE,
    PLAIN_RESPONSE_TYPE,
    PlainClientRequest,
    PlainServerRequest,
)

__all__ = [
    "AEAD_AES_128_GCM",
    "AEAD_AES_256_GCM",
    "AEAD_CHACHA20_POLY1305",
    "CHUNKED_REQUEST_TYPE",
    "CHUNKED_RESPONSE_TYPE",
    "KDF_HKDF_SHA256",
    "KEM_X25519",
    "KEM_XWING",
    "KEY_LIST_TYPE",
    "PLAIN_REQUEST_TYPE",
    "PLAIN_RESPONSE_TYPE",
    "REFRESH_RATIO",
    "BodyTooLarge",
    "ChannelError",
    "ChannelMisuse",
    "ChunkLimits",
    "ClientRequest",
    "DecryptFailed",
    "KeyConfig",
    "KeyConfigError",
    "KeyOffer",
    "KeyRing",
    "KeyState",
    "Lease",
    "LeaseMachine",
    "LeaseState",
    "MalformedInner",
    "NoUsableLease",
    "PlainClientRequest",
    "PlainServerRequest",
    "PrivateKey",
    "RefusedTarget",
    "ResponseOpener",
    "ResponseSealer",
    "Rng",
    "RotationEvent",
    "ServerKey",
    "ServerKeys",
    "ServerRequest",
    "Suite",
    "SymmetricSuite",
    "TooManyChunks",
    "TruncatedInner",
    "UnsupportedSuite",
    "attested_key_configs",
    "bhttp",
    "ehbp",
    "lease_not_after",
    "parse_key_config",
    "parse_key_configs",
    "select_key_config",
    "serialize_key_configs",
    "setup_recipient",
    "setup_sender",
]
