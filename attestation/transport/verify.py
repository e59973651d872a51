"""Is the gateway behind a URL to be trusted now, and with which key?  Ask it, then judge.

All that is fetched is untrusted until the verdict accepts it for a nonce of our own.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from attestation.anchors import TrustAnchors
from attestation.endorsement_files import EndorsementFiles
from attestation.errors import AttestationError, EvidenceUnavailable
from attestation.fetch.config import FetchConfig
from attestation.fetch.errors import FetchConfigError, FetchFailed
from attestation.judging import Request, judge
from attestation.keyset import Mode
from attestation.model import NONCE_BYTES, Nonce, parse_bundle
from attestation.policy import AppraisalPolicy
from attestation.transport.errors import EvidenceRefused, GatewayUnavailable
from attestation.transport.evidence import TIMEOUT_S, Delivery, fetch_evidence, fetch_nodes
from attestation.transport.pinned import ClientCertificate
from attestation.transport.session import Judged, Session, open_session, require_mode
from attestation.transport.url import EvidenceUrl

T = TypeVar("T")
COLLATERAL_TIMEOUT_S: Final = 10  # of one request to a vendor
COLLATERAL_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayVerifier:
    """Verifies one gateway. Blocks, for as long as network, vendors and cryptography take.

    ``ca_file`` None trusts the system's CAs; ``mode`` None takes any, and so do no
    ``weights_sha256``. Collateral that did not come
    with the Evidence is cached in ``collateral_folder``, and fetched unless ``is_offline``.
    """

    source: EvidenceUrl
    policy: AppraisalPolicy
    anchors: TrustAnchors
    utc_now: Callable[[], datetime]
    ca_file: Path | None = None
    proxy: str | None = None
    client_certificate: ClientCertificate | None = None
    mode: Mode | None = None
    weights_sha256: tuple[str, ...] = ()
    collateral_folder: Path
    is_offline: bool = False
    rng: Callable[[int], bytes] = field(default=secrets.token_bytes, repr=False)
    timeout_s: float = TIMEOUT_S

    def verify(self) -> Session:
        """1. Judge the gateway, which must attest the TLS key of its connection. 2. When it opens
        nothing itself, judge a worker behind it. 3. The session.

        Raises: EvidenceRefused; GatewayUnavailable: there is no verdict.
        """
        at = self.utc_now()
        gateway, delivery = self.judge(with_keys=True)  # 1
        if require_mode(gateway, self.mode) == "pass-through":
            return self._through(gateway, delivery.keys, at)  # 2
        return self._open(gateway, delivery.keys, at)  # 3

    def _through(self, gateway: Judged, keys: bytes, at: datetime) -> Session:
        """With the first worker that suits.

        Raises: EvidenceRefused or GatewayUnavailable: the last one's, when none does.
        """
        failure: EvidenceRefused | GatewayUnavailable | None = None
        for node in self._ask(lambda: fetch_nodes(self.source, **self._network)):
            try:
                worker, _ = self.judge(node=node)
                return self._open(gateway, keys, at, worker)
            except EvidenceRefused as err:
                failure = EvidenceRefused(err.code, f"worker {node}: {err}", err.result)
            except GatewayUnavailable as err:
                failure = err
        raise failure or GatewayUnavailable(
            "evidence_unavailable", "the gateway names no worker", reason="no_evidence"
        )

    def _open(
        self, gateway: Judged, keys: bytes, at: datetime, worker: Judged | None = None
    ) -> Session:
        return open_session(
            gateway,
            keys,
            at=at,
            weights_sha256=self.weights_sha256,
            worker=worker,
        )

    def judge(self, *, node: str | None = None, with_keys: bool = False) -> tuple[Judged, Delivery]:
        """The verdict, good or bad, on what was asked for with a fresh nonce, and all that came.

        A worker's Evidence came through the gateway: no connection of ours is bound to it.

        Raises: EvidenceRefused: it cannot be read; GatewayUnavailable.
        """
        nonce = Nonce(self.rng(NONCE_BYTES))
        delivery = self._ask(
            lambda: fetch_evidence(
                self.source, nonce=nonce, node=node, with_keys=with_keys, **self._network
            )
        )
        at = self.utc_now()
        try:
            bundle = parse_bundle(delivery.evidence)
            request = Request(
                evidence=delivery.evidence,
                nonce=nonce,
                files=EndorsementFiles(),
                jwks=None,
                nras=None,
                tls_key_sha256=delivery.tls_key_sha256 if node is None else None,
                policy=self.policy,
                anchors=self.anchors,
                at=at,
            )
            result = judge("bundle", self._complete(request))
        except FetchFailed as err:
            raise GatewayUnavailable(err.code, str(err), reason="no_collateral") from err
        except AttestationError as err:
            said = f"the evidence is refused: {err.code}: {err}"
            raise EvidenceRefused(err.code, said, None) from err
        return Judged(result=result, keyset=bundle.keyset), delivery

    @property
    def _network(self) -> dict[str, Any]:
        return {
            "ca_file": self.ca_file,
            "proxy": self.proxy,
            "client_certificate": self.client_certificate,
            "timeout_s": self.timeout_s,
        }

    def _ask(self, fetch: Callable[[], T]) -> T:
        """Raises: GatewayUnavailable."""
        try:
            return fetch()
        except EvidenceUnavailable as err:
            raise GatewayUnavailable(err.code, str(err), reason=err.reason) from err
        except FetchConfigError as err:  # no certificates where they should be
            raise GatewayUnavailable(
                "evidence_unavailable", str(err), reason="not_trusted"
            ) from err

    def _complete(self, request: Request) -> Request:
        """With the collateral that the Evidence came without. Raises: AttestationError."""
        from attestation.fetch.complete import completed
        from attestation.fetch.endorser import open_endorser

        config = FetchConfig(timeout_s=COLLATERAL_TIMEOUT_S, attempts=COLLATERAL_ATTEMPTS)
        with open_endorser(
            config.with_network(proxy=self.proxy, ca_file=None),
            self.collateral_folder,
            at=request.at,
            now=request.at,
            is_offline=self.is_offline,
        ) as endorser:
            return completed("bundle", request, endorser, token_bytes=self.rng)
