"""What does a worker attest of itself?  Its name, its keys of the moment, its weights."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from attestation.keyset import ReceiptKey
from attestation.policy import AppraisalPolicy
from gateway.channel_keys import ChannelKeys
from gateway.config import StarshadeConfig
from gateway.process import mode_of
from gateway.worker.attester import KEYSET_LIFETIME, AttestedFacts

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def worker_facts(
    config: StarshadeConfig,
    keys: ChannelKeys,
    *,
    policy: AppraisalPolicy,
    weights_sha256: str,
    receipt_key: ReceiptKey | None,
    build: Mapping[str, str] = _NOTHING,
) -> AttestedFacts:
    """No verdict may outlast the key that a request is sealed to under it."""
    opens_for = timedelta(seconds=keys.ring.active_erased_in_s)
    return AttestedFacts(
        replica=config.worker.id,
        mode=mode_of(config),
        policy_sha256=policy.sha256,
        weights_sha256=(weights_sha256,),
        ohttp=keys.attested(),
        receipt=() if receipt_key is None else (receipt_key,),
        build=build,
        lifetime=min(opens_for, KEYSET_LIFETIME),
    )
