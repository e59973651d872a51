"""Whose keys may have signed the receipt of a command line, and does their Evidence hold?"""

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from attestation.anchors import load_anchors
from attestation.commands.asking import ask
from attestation.commands.common import read_bounded, read_opened
from attestation.commands.fetching import FetchOptions
from attestation.commands.receipt_source import ReceiptUrl, fetch_receipt, require_api_key
from attestation.commands.verify import completed_request
from attestation.endorsement_files import EndorsementFiles
from attestation.judging import Request, judge
from attestation.keyset import Keyset, parse_keyset
from attestation.model import (
    MAX_BUNDLE_BYTES,
    NONCE_BYTES,
    AttestationResult,
    Nonce,
    parse_bundle,
    parse_nonce,
)
from attestation.policy import AppraisalPolicy
from attestation.receipt import MAX_RECEIPT_BYTES, SignedReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerEvidence:
    """Whose keys count: those of a gateway that is asked, or of Evidence that was kept."""

    url: str | None
    node: str | None
    path: Path | None
    nonce: str | None
    policy: AppraisalPolicy
    at: datetime | None

    def of_server(self, served: ReceiptUrl) -> "SignerEvidence":
        """The Evidence of whoever gives the receipt out; kept Evidence is of another time."""
        at = self.at if self.path is None else None
        return replace(self, url=served.gateway, node=None, path=None, nonce=None, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """A verdict, and the keyset that it accepts."""

    verdict: AttestationResult
    keyset: Keyset | None


def require_complete(
    evidence: SignerEvidence, served: ReceiptUrl | None, fetching: FetchOptions
) -> None:
    """Raises: UsageError, before anybody is asked."""
    if evidence.path is not None and evidence.nonce is None:
        raise click.UsageError("--evidence is judged against the nonce it answers: --nonce")
    if evidence.path is None and evidence.url is None:
        raise click.UsageError("whose receipt is it? Give --gateway URL, or --evidence and --nonce")
    if fetching.is_offline and served is not None:
        raise click.UsageError("--offline opens no socket, so no URL can be asked")
    if fetching.is_offline and evidence.path is None:
        raise click.UsageError("--offline opens no socket: give --evidence and --nonce")


def of_file(
    file: BinaryIO, evidence: SignerEvidence, fetching: FetchOptions
) -> tuple[SignedReceipt, Attested]:
    """Raises: AttestationError; FetchConfigError."""
    signed = SignedReceipt.parse(read_opened(file, MAX_RECEIPT_BYTES))
    return signed, _judge(evidence, fetching)


def of_url(
    served: ReceiptUrl, evidence: SignerEvidence, fetching: FetchOptions
) -> tuple[SignedReceipt | None, Attested]:
    """1. Judge the gateway that has the receipt. 2. When it is accepted, show it the API key.
    3. Judge whoever signed, if that is another.

    Raises: UsageError: no API key; AttestationError; FetchConfigError.
    """
    key, server = require_api_key(), evidence.of_server(served)
    attested = _judge(server, fetching)  # 1
    if attested.keyset is None:
        return None, attested
    data = fetch_receipt(served, fetching, key=key, pins=attested.keyset.tls_pins)  # 2
    signed = SignedReceipt.parse(data)
    return signed, attested if server == evidence else _judge(evidence, fetching)  # 3


def _judge(evidence: SignerEvidence, fetching: FetchOptions) -> Attested:
    """Raises: AttestationError."""
    request = _request(evidence, fetching)
    verdict = judge("bundle", completed_request("bundle", request, fetching))
    if not verdict.is_accepted:
        return Attested(verdict=verdict, keyset=None)
    keyset = parse_keyset(parse_bundle(request.evidence).keyset)
    return Attested(verdict=verdict, keyset=keyset)


def _request(evidence: SignerEvidence, fetching: FetchOptions) -> Request:
    tls_key_sha256: bytes | None = None
    if evidence.path is not None:
        nonce = parse_nonce(evidence.nonce or "")
        data = read_bounded(evidence.path, MAX_BUNDLE_BYTES, option="--evidence")
    else:
        nonce = Nonce(secrets.token_bytes(NONCE_BYTES))
        delivery = ask(evidence.url or "", fetching, nonce=nonce, node=evidence.node)
        data = delivery.evidence
        tls_key_sha256 = delivery.tls_key_sha256 if evidence.node is None else None
    return Request(
        evidence=data,
        nonce=nonce,
        files=EndorsementFiles(),
        jwks=None,
        nras=None,
        tls_key_sha256=tls_key_sha256,
        policy=evidence.policy,
        anchors=load_anchors(),
        at=evidence.at or datetime.now(UTC),  # noqa: TID251 - the process edge
    )
