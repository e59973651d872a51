"""Is the worker behind this address to be trusted, and with which key?  Ask it, then appraise.

Everything fetched here is untrusted until `appraise` accepted the bundle for our own nonce; the
key list counts only as far as the attested keyset names it by digest.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from attestation.anchors import TrustAnchors
from attestation.appraise import MISSING_CODES, appraise, reject_unread
from attestation.binding import keyset_digest
from attestation.cache import VerifiedCache
from attestation.channel import (
    ChannelError,
    KeyConfig,
    Lease,
    Rng,
    attested_key_configs,
    bhttp,
    lease_not_after,
    parse_key_configs,
)
from attestation.channel.keyconfig import MAX_KEY_LIST_BYTES
from attestation.errors import AttestationError, MalformedEvidence
from attestation.keyset import Keyset, parse_keyset
from attestation.model import (
    MAX_BUNDLE_BYTES,
    NONCE_BYTES,
    AttestationResult,
    EvidenceBundle,
    Nonce,
    parse_bundle,
)
from attestation.strict_json import JsonObject
from gateway.calls import MALFORMED, public_text
from gateway.collateral import Completed, Completer
from gateway.facts import AttestFacts
from gateway.observe import Clocks
from gateway.problems import GatewayError
from gateway.sealed import StaleKey, WorkerClient, open_exchange, read_bounded
from gateway.trust import Trust
from gateway.worker_node import Grant, NoVerdict, VerdictRefused
from telemetry import semconv
from telemetry.redact import ALLOWED_ATTRIBUTES

ATTEST_DEADLINE_S: Final = 15.0
COLLATERAL_DEADLINE_S: Final = 12.0  # of those; the rest is for appraisal and the models
MAX_MODEL_LIST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Appraised:
    """What appraisal made of the bytes; `keyset` and `key_configs` only when it accepted them."""

    code: str | None
    tee: str | None = None
    result: AttestationResult | None = None
    keyset: Keyset | None = None
    keyset_sha256: bytes | None = None
    key_configs: tuple[KeyConfig, ...] = ()  # attested ones, the first to be sealed to


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttestation:
    """Attests one worker over its own connections; only `cache` is shared by all workers."""

    address: str
    trust: Callable[[], Trust]
    anchors: TrustAnchors
    cache: VerifiedCache
    completer: Completer
    rng: Rng = field(repr=False)
    utc_now: Callable[[], datetime]
    clocks: Clocks

    async def attest(self, *, node: str, epoch: int) -> Grant:
        """1. A fresh nonce. 2. Fetch bundle and keys, and what the bundle lacks.
        3. Appraise all in a thread. 4. Ask for the models through the key just attested.
        5. The lease.

        Raises: VerdictRefused; NoVerdict; GatewayError when the worker could not be asked.
        """
        client = WorkerClient(self.address)
        try:
            async with asyncio.timeout(ATTEST_DEADLINE_S):
                return await self._attest(client, node, epoch)
        except TimeoutError:
            await client.abort()
            raise GatewayError("upstream_unavailable", "The worker attests too slowly.") from None
        except BaseException:
            await client.abort()
            raise

    async def evidence(self, nonce_hex: str) -> bytes:
        client = WorkerClient(self.address)
        try:
            async with asyncio.timeout(ATTEST_DEADLINE_S):
                return await client.get("/attestation", max_bytes=MAX_BUNDLE_BYTES, nonce=nonce_hex)
        except TimeoutError:
            raise GatewayError("upstream_unavailable", "The worker attests too slowly.") from None
        finally:
            await client.abort()

    async def _attest(self, client: WorkerClient, node: str, epoch: int) -> Grant:
        started_ns = self.clocks.monotonic_ns()
        nonce = Nonce(self.rng(NONCE_BYTES))  # 1
        bundle = await client.get(  # 2
            "/attestation", max_bytes=MAX_BUNDLE_BYTES, nonce=nonce.hex()
        )
        keys = await client.get("/keys", max_bytes=MAX_KEY_LIST_BYTES)
        at = self.utc_now()
        end_ns = started_ns + int(COLLATERAL_DEADLINE_S * 1e9)
        appraised = await self._judge(bundle, keys, nonce, at, end_ns)  # 2, 3
        weights = appraised.keyset.weights_sha256 if appraised.keyset else ()
        facts = AttestFacts(
            worker_id=node,
            started_ns=started_ns,
            ended_ns=self.clocks.monotonic_ns(),
            error_code=appraised.code,
            tee=appraised.tee,
            weights_sha256=weights[0] if weights else None,
            result=appraised.result,
        )
        if appraised.code is not None:
            raise VerdictRefused(appraised.code, facts)
        lease, replica = self._lease(appraised, node, epoch, at)
        models = await self._models(client, lease.key_config)  # 4
        facts = replace(facts, lease_not_after=lease.not_after)
        return Grant(  # 5
            lease=lease,
            client=client,
            replica=replica,
            models=models,
            facts=facts,
            key_configs=appraised.key_configs,
            mode=appraised.keyset.mode if appraised.keyset is not None else "terminate",
        )

    async def _judge(
        self, bundle: bytes, keys: bytes, nonce: Nonce, at: datetime, end_ns: int
    ) -> _Appraised:
        """Every reason to refuse becomes a code.

        Raises: NoVerdict.
        """
        try:
            evidence = await asyncio.to_thread(parse_bundle, bundle)
        except AttestationError as err:
            return _Appraised(code=err.code)
        trust = self.trust()
        completed = await self.completer.complete(evidence, bundle, at=at, end_ns=end_ns)
        appraised = await asyncio.to_thread(
            self._appraise, evidence, completed, keys, nonce, at, trust
        )
        if completed.failure is not None and appraised.code in MISSING_CODES:
            raise NoVerdict(
                "upstream_unavailable",
                f"Collateral for the worker cannot be had: {completed.failure}.",
                detail_code=completed.failure.code,
            )
        return appraised

    def _appraise(
        self,
        evidence: EvidenceBundle,
        completed: Completed,
        keys: bytes,
        nonce: Nonce,
        at: datetime,
        trust: Trust,
    ) -> _Appraised:
        """Runs in a thread."""
        if completed.refusal is not None:
            result = reject_unread(completed.refusal, evidence.quote, policy=trust.policy, at=at)
        else:
            result = appraise(
                evidence,
                nonce=nonce,
                policy=trust.policy,
                anchors=self.anchors,
                at=at,
                collateral=completed.cpu,
                gpu_endorsements=completed.gpu,
                jwks=completed.jwks,
                cache=self.cache,
            )
        if not result.is_accepted:
            code = result.code or "not_accepted"
            return _Appraised(code=code, tee=evidence.tee, result=result)
        try:
            keyset = _parse_named_keyset(evidence.keyset)
            attested = [key.config_sha256 for key in keyset.ohttp]
            key_configs = attested_key_configs(parse_key_configs(keys), attested)
        except (AttestationError, ChannelError) as err:
            return _Appraised(code=err.code, tee=evidence.tee, result=result)
        return _Appraised(
            code=trust.refusal_of(result, keyset),
            tee=evidence.tee,
            result=result,
            keyset=keyset,
            keyset_sha256=keyset_digest(evidence.keyset),
            key_configs=key_configs,
        )

    def _lease(
        self, appraised: _Appraised, node: str, epoch: int, at: datetime
    ) -> tuple[Lease, str]:
        """The lease, and the replica that it is a lease on."""
        result, keyset, key_configs = appraised.result, appraised.keyset, appraised.key_configs
        if result is None or keyset is None or not key_configs or not appraised.keyset_sha256:
            raise GatewayError("internal_error", "An accepted verdict lacks its parts.")
        lease = Lease(
            verdict_id=result.verdict_id,
            node=node,
            evidence_digest=result.evidence_sha256,
            key_config=key_configs[0],
            keyset_digest=appraised.keyset_sha256.hex(),
            policy_sha256=result.policy_sha256,
            epoch=epoch,
            not_before=at,
            not_after=lease_not_after(at, [result.not_after, keyset.not_after]),
            tier="affirming" if result.tier == "affirming" else "warning",
            simulated=result.simulated,
            code=result.code,
        )
        return lease, keyset.replica

    async def _models(self, client: WorkerClient, key_config: KeyConfig) -> tuple[str, ...]:
        request = bhttp.Request(
            method="GET",
            authority="worker",
            path="/v1/models",
            fields=(("date", bhttp.http_date(self.utc_now())),),
        )
        try:
            exchange = await open_exchange(client, key_config, request, rng=self.rng)
        except StaleKey:  # it changed its key since it attested
            raise GatewayError("upstream_unavailable", "The worker is changing its key.") from None
        try:
            body = await read_bounded(exchange.content(), MAX_MODEL_LIST_BYTES)
            return tuple(public_text(entry["id"]) for entry in json.loads(body)["data"])
        except MALFORMED:
            raise GatewayError("upstream_error", "The worker's model list is malformed.") from None
        finally:
            await exchange.aclose()


def _parse_named_keyset(value: JsonObject) -> Keyset:
    """A keyset whose replica may be named in spans and URLs. Raises: MalformedEvidence."""
    keyset = parse_keyset(value)
    if ALLOWED_ATTRIBUTES[semconv.WORKER_ID](keyset.replica) is None:
        raise MalformedEvidence("format", "keyset.replica: want an identifier")
    return keyset
