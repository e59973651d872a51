"""What vouches for a worker's Evidence when the worker did not bring it?

Real TEEs bring a quote and little else; the rest is in the cache or comes from the vendors. It is
verified under the pinned roots before it is kept, and again by the appraisal. Evidence whose own
chain ends elsewhere causes no traffic.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from attestation.anchors import TrustAnchors
from attestation.endorsement_files import EndorsementFiles
from attestation.errors import AttestationError
from attestation.fetch.cache import CollateralCache
from attestation.fetch.config import FetchConfig, Service
from attestation.fetch.errors import FetchConfigError, FetchFailed
from attestation.model import EvidenceBundle, GpuEndorsements
from attestation.nras.jwks import Jwks, parse_jwks
from attestation.snp.endorsements import SnpEndorsements
from attestation.tdx.endorsements import TdxCollateral
from gateway.config import CollateralSettings

ATTEMPT_S: Final = 5  # of one request, so that a mirror still gets its turn within the budget
ATTEMPTS: Final = 2
PAUSE_S: Final = 10.0  # after a failure, before anybody is asked again for this worker
_NS: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What was found for one bundle, all of it still to be appraised.

    ``refusal`` is what is wrong with the Evidence itself, ``failure`` why something is not here.
    """

    cpu: TdxCollateral | SnpEndorsements | None = None
    gpu: GpuEndorsements | None = None
    jwks: Jwks | None = None
    refusal: AttestationError | None = None
    failure: AttestationError | None = None


@dataclass(slots=True, kw_only=True)
class _Budget:
    """Until when may be asked; cancelled when nobody waits for the answer any more."""

    end_ns: int
    monotonic_ns: Callable[[], int]
    is_cancelled: bool = False

    def left_s(self) -> float:
        return 0.0 if self.is_cancelled else (self.end_ns - self.monotonic_ns()) / _NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Under which roots, and with how much patience for OCSP answers, is collateral accepted?"""

    anchors: TrustAnchors
    ocsp_grace: timedelta


@dataclass(slots=True, kw_only=True)
class Completer:
    """Fills the gaps of one worker's bundles, in a thread of its own and one bundle at a time.

    So a vendor that is silent holds up no other worker. After a failure it asks nobody for a while,
    however often the worker is asked.
    """

    settings: CollateralSettings
    folder: Path
    roots: Callable[[], Roots]  # of the policy of the moment
    monotonic_ns: Callable[[], int]
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "collateral"), repr=False
    )
    _failed_ns: int | None = None
    _failure: AttestationError | None = None

    async def complete(
        self, bundle: EvidenceBundle, data: bytes, *, at: datetime, end_ns: int
    ) -> Completed:
        """For a bundle and its bytes; ends soon after ``end_ns`` of the monotonic clock."""
        if not lacks_endorsements(bundle):
            return Completed()
        now_ns = self.monotonic_ns()
        is_paused = self._failed_ns is not None and now_ns - self._failed_ns < PAUSE_S * _NS
        budget = _Budget(end_ns=now_ns if is_paused else end_ns, monotonic_ns=self.monotonic_ns)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._pool, self._complete, data, at, budget)
        finally:
            budget.is_cancelled = True
        if is_paused:  # nobody was asked, so the news is still what was said then
            return found if found.failure is None else replace(found, failure=self._failure)
        self._failure = found.failure
        self._failed_ns = None if found.failure is None else self.monotonic_ns()
        return found

    def _complete(self, data: bytes, at: datetime, budget: _Budget) -> Completed:
        from attestation.fetch.complete import Completion, complete
        from attestation.fetch.endorser import Endorser
        from attestation.fetch.http import Fetcher

        fetcher = None
        if not self.settings.offline:
            fetcher = Fetcher(
                fetch_config(self.settings),
                rng=random.SystemRandom(),
                sleep=time.sleep,
                seconds_left=budget.left_s,
            )
        cache = CollateralCache(
            folder=self.folder,
            monotonic_ns=self.monotonic_ns,
            sleep=time.sleep,
            lock_wait_s=ATTEMPT_S,
        )
        endorser = Endorser(at=at, now=at, cache=cache, fetcher=fetcher)
        files, roots = EndorsementFiles(), self.roots()
        completion = Completion(
            evidence=data,
            files=files,
            endorser=endorser,
            anchors=roots.anchors,
            token_bytes=secrets.token_bytes,
            ocsp_grace=roots.ocsp_grace,
        )
        failure: AttestationError | None = None
        keys = None
        try:
            jwks = complete("bundle", completion)
            keys = None if jwks is None else parse_jwks(jwks)
        except AttestationError as err:
            was_asked = fetcher is not None and fetcher.num_asked > 0
            is_about_it = not isinstance(err, FetchFailed) and not was_asked
            if is_about_it or err.code == "certificate_revoked":
                return Completed(refusal=err)
            failure = err
        except FetchConfigError as err:
            failure = FetchFailed("endorsement_missing", "unreachable", str(err))
        finally:
            if fetcher is not None:
                fetcher.close()
        return Completed(
            cpu=files.tdx or files.snp(),
            gpu=files.gpu(),
            jwks=keys,
            failure=failure or next(iter(endorser.failures), None),
        )


def lacks_endorsements(bundle: EvidenceBundle) -> bool:
    """Whether the bundle came without something that its Evidence is appraised with."""
    cpu = bundle.collateral
    lacks_cpu = cpu is None or (isinstance(cpu, SnpEndorsements) and not _is_whole(cpu))
    lacks_gpu = bool(bundle.gpu) and bundle.gpu_endorsements is None
    return lacks_cpu or lacks_gpu or bundle.nras is not None


def _is_whole(endorsements: SnpEndorsements) -> bool:
    return bool(endorsements.vek and endorsements.chain) and endorsements.crl is not None


def fetch_config(settings: CollateralSettings) -> FetchConfig:
    """The settings as the fetching library knows them, within the time of one attestation."""
    config = FetchConfig(timeout_s=ATTEMPT_S, attempts=ATTEMPTS)
    config = config.with_pcs(settings.pcs)
    services: tuple[tuple[Service, tuple[str, ...]], ...] = (
        ("kds", settings.kds),
        ("rim", settings.rim),
        ("ocsp", settings.ocsp),
        ("nras", settings.nras),
    )
    for service, urls in services:
        config = config.with_urls(service, urls)
    return config.with_network(proxy=settings.proxy, ca_file=settings.ca_file)
