"""Which endorsements does this Evidence need, and where are they: in the cache, or on the network?

Each object is one spec: a slot, how to fetch it from one address, and how to verify it. An object
is cached once it verified and is current, and verified again whenever it is used. An address whose
object does not verify is as good as one that does not answer: the next one is asked. What does not
verify anywhere is not returned; what verifies and is not current is, so that the appraisal says so.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from attestation.errors import AttestationError
from attestation.fetch.cache import CollateralCache, RolledBack, Window
from attestation.fetch.config import FetchConfig, Service
from attestation.fetch.errors import FetchFailed, MissingCode
from attestation.strict_json import format_time

if TYPE_CHECKING:  # an HTTP client is slow to import, and offline there is no use for it
    from attestation.fetch.http import Fetcher

_FROM_CACHE = "cache"
_REVOKED = "certificate_revoked"
_NOT_CURRENT = "not current at the time of the appraisal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSpec:
    """One object to be had.

    ``fetch`` takes one address; ``verify`` says when verified bytes are current and raises an
    AttestationError for bytes that are not what was asked for, whatever the date. An object that
    ended less than ``grace`` ago stands in while nobody answers; whether that will do, the
    appraisal says.
    """

    what: str
    slot: str
    code: MissingCode
    service: Service
    fetch: Callable[["Fetcher", str], bytes]
    verify: Callable[[bytes], Window]
    grace: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """Where one object came from; ``origin`` is a host, or "cache"."""

    what: str
    origin: str
    valid_until: datetime
    sha256: str
    note: str = ""

    def to_dict(self) -> dict[str, str]:
        """JSON-ready."""
        return {
            "what": self.what,
            "origin": self.origin,
            "valid_until": format_time(self.valid_until),
            "sha256": self.sha256,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    data: bytes
    window: Window
    fetched_at: datetime


@dataclass(slots=True, kw_only=True)
class Endorser:
    """Gets objects; ``fetcher`` None is offline and opens no socket.

    ``now`` is only for how long ago something was fetched; what is current is judged at ``at``.
    ``tcb_edition`` is the fetcher's: it names the slots of Intel's TCB data offline as well.
    """

    at: datetime
    now: datetime
    cache: CollateralCache | None
    fetcher: "Fetcher | None"
    is_refreshing: bool = False
    tcb_edition: str = "standard"
    obtained: list[Obtained] = field(default_factory=list)
    failures: list[FetchFailed] = field(default_factory=list)

    def get(self, spec: ObjectSpec) -> bytes:
        """The object, verified.

        Raises: FetchFailed; AttestationError: the best an address had was not what was asked for.
        """
        if self.cache is None or self.fetcher is None:
            return self._get(spec)
        with self.cache.flight(spec.slot):
            return self._get(spec)

    def try_get(self, spec: ObjectSpec) -> bytes | None:
        """As ``get``, for what an appraisal can do without if its policy says so."""
        try:
            return self.get(spec)
        except FetchFailed as err:
            self.failures.append(err)
            return None

    def _get(self, spec: ObjectSpec) -> bytes:
        held = self._held(spec)
        is_usable = held is not None and held.window.is_current(self.at)
        if held is not None and (
            self.fetcher is None or (is_usable and not self._is_due(held.fetched_at))
        ):
            return self._note(
                spec, held.data, held.window, _FROM_CACHE, "" if is_usable else _NOT_CURRENT
            )
        if self.fetcher is None:
            raise FetchFailed(spec.code, "offline", f"{spec.what}: not in the cache, and offline")
        try:
            return self._fetch(spec, self.fetcher)
        except AttestationError as err:
            if held is None or not self._may_stand_in(spec, held, err):
                raise
            return self._note(spec, held.data, held.window, _FROM_CACHE, f"not refreshed: {err}")

    def _may_stand_in(self, spec: ObjectSpec, held: _Held, err: AttestationError) -> bool:
        """For news that failed with ``err``, but a revocation is news whatever is held."""
        grace = spec.grace if isinstance(err, FetchFailed) else timedelta(0)
        return err.code != _REVOKED and held.window.is_current(self.at, grace=grace)

    def _held(self, spec: ObjectSpec) -> _Held | None:
        """What the cache has, verified again."""
        found = None if self.cache is None else self.cache.find(spec.slot)
        if found is None:
            return None
        try:
            window = spec.verify(found.data)
        except AttestationError:
            return None
        return _Held(data=found.data, window=window, fetched_at=found.fetched_at)

    def _is_due(self, fetched_at: datetime) -> bool:
        """Time to look for news, or the clock went back."""
        refresh_after_s = 0 if self.fetcher is None else self.fetcher.config.refresh_after_s
        age = self.now - fetched_at
        return self.is_refreshing or not timedelta(0) <= age < timedelta(seconds=refresh_after_s)

    def _fetch(self, spec: ObjectSpec, fetcher: "Fetcher") -> bytes:
        first: AttestationError | None = None
        dated: tuple[bytes, Window, str] | None = None
        for base in fetcher.config.urls[spec.service]:
            host = urlsplit(base).hostname or ""
            try:
                data = spec.fetch(fetcher, base)
                window = spec.verify(data)
                self._admit(spec, data, window, host)
            except AttestationError as err:
                if err.code == _REVOKED:  # somebody signed that: no other address can take it back
                    raise
                first = first or err
                continue
            if window.is_current(self.at):
                return self._note(spec, data, window, host)
            dated = dated or (data, window, host)
        if dated is not None:
            return self._note(spec, *dated, _NOT_CURRENT)
        if first is None:
            raise FetchFailed(spec.code, "unreachable", f"{spec.what}: no address is configured")
        raise first

    def _admit(self, spec: ObjectSpec, data: bytes, window: Window, host: str) -> None:
        """Into the cache if it is current, and in no case when it is a step back."""
        if self.cache is None:
            return
        try:
            if window.is_current(self.at):
                self.cache.store(spec.slot, data, window, fetched_at=self.now, origin=host)
            else:
                self.cache.require_not_older(spec.slot, window)
        except RolledBack as err:
            said = f"{spec.what}: older than what was seen before"
            raise FetchFailed(spec.code, "rollback", said) from err

    def _note(
        self, spec: ObjectSpec, data: bytes, window: Window, origin: str, note: str = ""
    ) -> bytes:
        self.obtained.append(
            Obtained(
                what=spec.what,
                origin=origin,
                valid_until=window.next_update,
                sha256=hashlib.sha256(data).hexdigest(),
                note=note,
            )
        )
        return data


@contextmanager
def open_endorser(
    config: FetchConfig,
    cache_folder: Path,
    *,
    at: datetime,
    now: datetime,
    is_offline: bool,
    is_refreshing: bool = False,
) -> Iterator[Endorser]:
    """Endorsements as of ``at``; offline there is nothing that could open a socket."""
    cache = CollateralCache(
        folder=cache_folder,
        monotonic_ns=time.monotonic_ns,
        sleep=time.sleep,
        max_bytes=config.max_cache_bytes,
    )
    endorser = Endorser(
        at=at,
        now=now,
        cache=cache,
        fetcher=None,
        is_refreshing=is_refreshing,
        tcb_edition=config.tcb_edition,
    )
    if is_offline:
        yield endorser
        return
    from attestation.fetch.http import Fetcher  # an HTTP client is slow to import

    fetcher = Fetcher(config, rng=random.SystemRandom(), sleep=time.sleep)
    with fetcher as endorser.fetcher:
        yield endorser
