"""GET /v1/attestation, nodes and verdicts: what can a client verify, what did the gateway find?

Open to everyone: Evidence must be checkable before a client hands over a key, and a bundle is
nothing but public keys, digests and signatures.
"""

import asyncio
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from attestation.errors import AttestationError
from attestation.model import parse_nonce
from gateway.problems import GatewayError
from gateway.services import services_of
from gateway.worker_node import WorkerNode


async def attestation(request: Request) -> Response:
    """The gateway's own bundle for `nonce`, or with `node` that worker's, as it came."""
    services = services_of(request)
    nonce_hex = request.query_params.get("nonce", "")
    try:
        nonce = parse_nonce(nonce_hex)
    except AttestationError as err:
        raise GatewayError(
            err.code, "The nonce is exactly 64 lowercase hex digits.", param="nonce"
        ) from None
    node_id = request.query_params.get("node")
    if node_id is not None:
        node = services.directory.find(node_id)
        if node is None:
            raise GatewayError("node_not_found", "There is no such node.", param="node")
        bundle = await node.attestation.evidence(nonce_hex)
    elif services.attester is None:
        raise GatewayError("tee_unavailable", "This gateway has no TEE to attest with.")
    else:
        bundle = await asyncio.to_thread(services.attester.bundle, nonce)
    return Response(bundle, media_type="application/json", headers={"cache-control": "no-store"})


async def nodes(request: Request) -> Response:
    services = services_of(request)
    now = services.utc_now()
    entries = [node_entry(node, now) for node in services.directory.nodes]
    return JSONResponse({"object": "list", "data": entries}, headers={"cache-control": "no-store"})


async def verdict(request: Request) -> Response:
    """What the gateway found when it last judged this worker: every check, and what none covers."""
    services = services_of(request)
    node = services.directory.find(request.path_params["id"])
    if node is None:
        raise GatewayError("node_not_found", "There is no such node.", param="id")
    facts, now = node.last_facts, services.utc_now()
    result = None if facts is None else facts.result
    document = {
        "object": "verdict",
        "node": node.id,
        "tee": None if facts is None else facts.tee,
        # what is wrong with Evidence that the appraisal accepted is ours to say: a denied worker
        "code": None if facts is None else facts.error_code,
        "lease": _lease(node, now),
        "result": None if result is None else result.to_dict(),
    }
    return JSONResponse(document, headers={"cache-control": "no-store"})


def _lease(node: WorkerNode, now: datetime) -> dict[str, Any]:
    lease = node.machine.lease
    return {
        "state": node.machine.state(now).value,
        "epoch": node.machine.epoch,
        "usable": node.is_serving(now),
        "verdict_id": None if lease is None else lease.verdict_id,
        "key_config_sha256": None if lease is None else lease.key_config.sha256,
        "keyset_sha256": None if lease is None else lease.keyset_digest,
        "not_before": None if lease is None else _time(lease.not_before),
        "not_after": None if lease is None else _time(lease.not_after),
    }


def node_entry(node: WorkerNode, now: datetime) -> dict[str, Any]:
    """One worker as lists show it."""
    lease = node.machine.lease
    result = node.last_facts.result if node.last_facts is not None else None
    return {
        "id": node.id,
        "object": "node",
        "state": node.machine.state(now).value,
        "reachable": node.is_reachable,
        "tier": result.tier if result is not None else None,
        "code": node.machine.quarantine_code or (result.code if result is not None else None),
        "simulated": result.simulated if result is not None else None,
        "trust_anchor": result.trust_anchor if result is not None else None,
        "policy": result.policy_name if result is not None else None,
        "policy_sha256": result.policy_sha256 if result is not None else None,
        "verdict_id": result.verdict_id if result is not None else None,
        "weights_sha256": node.last_facts.weights_sha256 if node.last_facts is not None else None,
        "key_config_sha256": lease.key_config.sha256 if lease is not None else None,
        "keyset_sha256": lease.keyset_digest if lease is not None else None,
        "not_before": _time(lease.not_before) if lease is not None else None,
        "not_after": _time(lease.not_after) if lease is not None else None,
        "models": list(node.grant.models) if node.grant is not None else [],
    }


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
