"""How are the doors of a gateway put together?  The part of its composition root that is theirs."""

import os
import time
from collections.abc import Sequence
from typing import Final

from attestation.channel import KEM_XWING, ChunkLimits, KeyOffer, ehbp
from gateway.audit import CHANNEL_KEYS_ROTATED, AuditLog
from gateway.channel_keys import ChannelKeys
from gateway.config import StarshadeConfig
from gateway.doors.edge import EdgeDoors
from gateway.doors.ohttp import OhttpDoor
from gateway.doors.opening import UnopenedBytes
from gateway.doors.terminate import TerminatingDoors
from gateway.doors.tng import TngDoor
from gateway.drain import Drain
from gateway.limits import RequestLimits
from gateway.passthrough import PassThroughDoors
from gateway.process import utc_now
from gateway.workers import WorkerDirectory

MIN_UNOPENED_BYTES: Final = 64 << 20
MIN_UNOPENED_BODIES: Final = 8  # of the largest size, where that is more


def build_doors(
    config: StarshadeConfig,
    limits: RequestLimits,
    directory: WorkerDirectory,
    drain: Drain,
    audit: AuditLog,
) -> EdgeDoors:
    settings = config.gateway
    if settings.mode == "pass-through":
        return PassThroughDoors(
            directory=directory,
            drain=drain,
            utc_now=utc_now,
            deadline_s=settings.request_deadline_s,
            silence_s=settings.worker_silence_s,
            rotation_s=config.worker.key_rotation_s,
        )
    keys = ChannelKeys(
        clock_s=time.monotonic,
        utc_now=utc_now,
        offers=(KeyOffer(), KeyOffer(kem_id=KEM_XWING), ehbp.OFFER),
        period_s=settings.key_rotation_s,
        on_rotated=lambda event: audit.append(
            CHANNEL_KEYS_ROTATED, {"active": _ids(event.activated), "erased": _ids(event.erased)}
        ),
    )
    unopened = UnopenedBytes(max(MIN_UNOPENED_BYTES, MIN_UNOPENED_BODIES * limits.max_sealed_bytes))
    ohttp = OhttpDoor(
        keys=keys,
        unopened=unopened,
        limits=ChunkLimits(max_body_bytes=limits.max_sealed_bytes),
        rng=os.urandom,
        is_padded=settings.privacy.padding,
    )
    return TerminatingDoors(
        keys=keys,
        unopened=unopened,
        ohttp=ohttp,
        tng=TngDoor(keys=keys, door=ohttp, is_offered=settings.tng),
        has_bare_list=settings.bare_key_list,
    )


def _ids(key_ids: Sequence[int]) -> str:
    return " ".join(map(str, key_ids))
