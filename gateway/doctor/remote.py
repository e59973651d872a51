"""Would a client of ours believe this gateway, and if not, what stands in the way?"""

import socket
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final

from attestation.errors import PolicyError
from attestation.transport import (
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


def evidence(url: str, *, policy: str, ca_file: Path | None) -> Finding:
    """The verdict that `starshade connect` would give, on a gateway that can be reached."""
    try:
        session = gateway_keeper(url, policy=policy, ca_file=ca_file).require()
    except EvidenceRefused as err:
        return wrong(_NAME, str(err), code=err.code, next_step=_next(err.code, policy))
    except GatewayUnavailable as err:
        return wrong(_NAME, str(err), code=err.code, next_step=_unavailable(err, ca_file))
    except PolicyError as err:
        return wrong(_NAME, str(err), code=err.code, next_step="mend the policy file")
    return _accepted(session, session.not_after)


def _accepted(session: Session, until: datetime) -> Finding:
    found = f"{session.result.tier}, mode {session.gateway.mode}, good until {until:%H:%M:%S} UTC"
    if session.result.simulated:
        return warning(
            _NAME,
            f"{found}, SIMULATED",
            code="tee_simulated",
            next_step="fine for development; it protects nothing",
        )
    return ok(_NAME, found)


def _next(code: str, policy: str) -> str:
    if code == "untrusted_root" and policy == "production":
        return "a simulated TEE passes --policy development alone, and protects nothing"
    if code in ("certificate_time", "collateral_not_yet_valid", "collateral_expired"):
        return "compare this machine's clock with another; docs/attestation.md explains the code"
    return "do not send it anything; docs/attestation.md explains the code"


def _unavailable(err: GatewayUnavailable, ca_file: Path | None) -> str:
    if "certificate is not trusted" in str(err):
        shown = "another --ca-file" if ca_file else "--ca-file with the gateway's ca.pem"
        return f"give {shown}"
    return "check the URL (it ends in /v1), and the gateway's log"


def _place(source: EvidenceUrl) -> str:
    return f"{source.host} port {source.port}"
