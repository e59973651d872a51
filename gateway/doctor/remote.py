"""Would a client of ours believe this gateway, and if not, what stands in the way?"""

import socket
from contextlib import closing
from pathlib import Path
from typing import Final

from attestation.appraise import MISSING_CODES
from attestation.commands.next_steps import after_refusal, after_silence
from attestation.errors import PolicyError
from attestation.transport import (
    ClientCertificate,
    EvidenceRefused,
    EvidenceUrl,
    GatewayUnavailable,
    Session,
    gateway_keeper,
    gateway_source,
)
from gateway.doctor.finding import Finding, ok, warning, wrong

CONNECT_S: Final = 5.0
_NAME: Final = "gateway's evidence"


def reachable(url: str) -> Finding:
    """Its name is known and somebody listens there."""
    name = "network"
    try:
        source = gateway_source(url)
    except ValueError as err:
        return wrong(name, str(err), code="invalid_value", next_step="give an https URL")
    try:
        with closing(socket.create_connection((source.host, source.port), CONNECT_S)):
            return ok(name, f"{source.host} port {source.port} answers")
    except socket.gaierror:
        return wrong(
            name,
            f"nobody knows the name {source.host}",
            code="name_unknown",
            next_step="check the host in the URL, and DNS",
        )
    except OSError as err:
        return wrong(
            name,
            f"no connection to {_place(source)}: {err.strerror or type(err).__name__}",
            code="evidence_unavailable",
            next_step="check that it runs, the port, and firewalls in between",
        )


def evidence(
    url: str,
    *,
    policy: str,
    ca_file: Path | None,
    collateral_folder: Path | None,
    client_certificate: ClientCertificate | None = None,
) -> Finding:
    """The verdict that `starshade connect` would give, on a gateway that can be reached.

    Nobody but the gateway is asked: without its collateral at hand there is no verdict.
    """
    try:
        keeper = gateway_keeper(
            url,
            policy=policy,
            ca_file=ca_file,
            client_certificate=client_certificate,
            collateral_folder=collateral_folder,
            is_offline=True,
        )
        session = keeper.require()
    except (EvidenceRefused, GatewayUnavailable) as err:
        if err.code in MISSING_CODES:
            return _unjudged(err)
        next_step = (
            after_refusal(err.code, policy=policy)
            if isinstance(err, EvidenceRefused)
            else after_silence(err.reason)
        )
        return wrong(_NAME, str(err), code=err.code, next_step=next_step)
    except PolicyError as err:
        return wrong(_NAME, str(err), code=err.code, next_step="mend the policy file")
    return _accepted(session)


def _accepted(session: Session) -> Finding:
    until = session.not_after
    found = f"{session.result.tier}, mode {session.gateway.mode}, good until {until:%H:%M:%S} UTC"
    if session.result.simulated:
        return warning(
            _NAME,
            f"{found}, SIMULATED",
            code="tee_simulated",
            next_step="fine for development; it protects nothing",
        )
    return ok(_NAME, found)


def _unjudged(err: EvidenceRefused | GatewayUnavailable) -> Finding:
    return warning(
        _NAME,
        f"not judged, since nothing is fetched here: {err}",
        code=err.code,
        next_step="`starshade attest verify URL` fetches what is missing, and judges it",
    )


def _place(source: EvidenceUrl) -> str:
    return f"{source.host} port {source.port}"
