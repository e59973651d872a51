"""Vendors' services with own-root data: what a FakeTee or a fake AMD platform needs, over HTTP."""

import random
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attestation.anchors import load_anchors
from attestation.fake import FakeTee
from attestation.fake.pki import TCB_SIGNER_NAME, pem
from attestation.fetch.cache import CollateralCache
from attestation.fetch.config import FetchConfig
from attestation.fetch.endorser import Endorser
from attestation.fetch.http import Fetcher
from attestation.fetch.intel import tdx_collateral
from attestation.tdx.endorsements import TdxCollateral
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.samples import AT

DAY = timedelta(days=1)
PCS_PATHS = {
    "tcb": "/tdx/certification/v4/tcb",
    "qe": "/tdx/certification/v4/qe/identity",
    "pck_crl": "/sgx/certification/v4/pckcrl",
    "root_crl": "/IntelSGXRootCA.der",
}


@dataclass(kw_only=True)
class FakePcs:
    """Intel's answers for a FakeTee; a test replaces the one route it is about."""

    tee: FakeTee = field(default_factory=FakeTee)

    def tcb(self, issued: datetime = AT - DAY, end: datetime = AT + 20 * DAY) -> Reply:
        return self.signed("tcbInfo", self.tee.platform.tcb_info(issued, end))

    def qe(self, issued: datetime = AT - DAY, end: datetime = AT + 20 * DAY) -> Reply:
        return self.signed("enclaveIdentity", self.tee.platform.qe_identity(issued, end))

    def signed(self, member: str, text: str) -> Reply:
        """As Intel sends it: no white space, the chain in a header."""
        name = {"tcbInfo": "TCB-Info", "enclaveIdentity": "SGX-Enclave-Identity"}[member]
        chain = pem((self.tee.pki.tcb_signer, self.tee.pki.root)).decode()
        signature = self.tee.pki.sign(TCB_SIGNER_NAME, text.encode()).hex()
        return Reply(
            content=f'{{"{member}":{text},"signature":"{signature}"}}'.encode(),
            headers={f"{name}-Issuer-Chain": quote(chain, safe="")},
        )

    def routes(self) -> dict[str, Reply]:
        pki = self.tee.pki
        return {
            PCS_PATHS["tcb"]: self.tcb(),
            PCS_PATHS["qe"]: self.qe(),
            PCS_PATHS["pck_crl"]: Reply(content=pki.pck_crl(AT - DAY, AT + 20 * DAY)),
            PCS_PATHS["root_crl"]: Reply(content=pki.root_crl(AT - DAY, AT + 300 * DAY)),
        }


def config(*services: FakeService, **settings: object) -> FetchConfig:
    """All services at these addresses, in this order."""
    urls = tuple(service.url for service in services)
    root_crls = tuple(url + PCS_PATHS["root_crl"] for url in urls)
    return FetchConfig(
        urls={
            "pcs": urls,
            "root_crl": root_crls,
            "kds": urls,
            "rim": urls,
            "ocsp": urls,
            "nras": urls,
        },
        attempts=1,
        **settings,  # type: ignore[arg-type]
    )


def collateral_cache(folder: Path, **settings: Any) -> CollateralCache:
    """A cache in this folder that waits by the machine's own clock."""
    return CollateralCache(
        folder=folder, monotonic_ns=time.monotonic_ns, sleep=time.sleep, **settings
    )


def endorser(
    *services: FakeService,
    folder: Path | None = None,
    at: datetime = AT,
    now: datetime | None = None,
    is_refreshing: bool = False,
    **settings: object,
) -> Endorser:
    """Offline without a service, without a cache when there is no folder."""
    fetcher = None
    if services:
        fetcher = Fetcher(config(*services, **settings), rng=random.Random(1), sleep=lambda _: None)
    return Endorser(
        at=at,
        now=now or at,
        cache=None if folder is None else collateral_cache(folder),
        fetcher=fetcher,
        is_refreshing=is_refreshing,
        tcb_edition="standard" if fetcher is None else fetcher.config.tcb_edition,
    )


PCS = FakePcs()
QUOTE = FakeTee().quote(bytes(64))


def get_collateral(source: Endorser, quote: bytes = QUOTE) -> TdxCollateral:
    """Collateral by way of this endorser, whose connections are closed then."""
    try:
        return tdx_collateral(source, quote, anchors=load_anchors())
    finally:
        if source.fetcher is not None:
            source.fetcher.close()
