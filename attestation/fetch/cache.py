"""Which endorsements were seen before, and are they good enough to use without asking again?

Objects are files named by their digest; a slot ("the TCB info of this platform") points to one and
remembers the newest it ever held. A slot never goes back: not to an older issue date, CRL number or
TCB evaluation number, not even after its object was evicted or damaged. Only verified objects
belong here. A file that is damaged is a file that is not there. Several processes may share one.
"""

import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from attestation.errors import AttestationError, MalformedEvidence
from attestation.fetch.config import MAX_CACHE_BYTES
from attestation.strict_json import JsonObject, format_time, parse_object, text, utc_time

_log = logging.getLogger(__name__)

MAX_SLOT_BYTES = 4096
MAX_NUMBER_DIGITS = 49  # of the 20 octets that a CRL number may have  [RFC 5280 sec. 5.2.3]
LOCK_WAIT_S = 60.0
_LOCK_POLL_S = 0.02
_NS = 1e9
_STALE_S = 3600.0
_PARTIAL = ".partial"


class RolledBack(Exception):
    """An object is older than one that the slot has held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When an object says it is current, and its place among its kind.

    ``issued`` and ``number`` (CRL number, TCB evaluation number) order objects of one slot; None
    where the kind has none. The object is not used at ``next_update`` or later.
    """

    next_update: datetime
    issued: datetime | None = None
    number: int | None = None

    def is_current(self, at: datetime, *, grace: timedelta = timedelta(0)) -> bool:
        """``issued`` <= at < ``next_update`` + ``grace``."""
        return (self.issued is None or self.issued <= at) and at < self.next_update + grace


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedObject:
    """An object as it was stored; ``origin`` is the host that it came from."""

    data: bytes
    fetched_at: datetime
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Floor:
    issued: datetime | None = None
    number: int | None = None

    def admits(self, window: Window) -> bool:
        """An order that was once known and is now missing is a step back as well."""
        is_newer = self.issued is None or (
            window.issued is not None and window.issued >= self.issued
        )
        is_higher = self.number is None or (
            window.number is not None and window.number >= self.number
        )
        return is_newer and is_higher

    def raised(self, issued: datetime | None, number: int | None) -> "_Floor":
        return _Floor(
            issued=max(filter(None, (self.issued, issued)), default=None),
            number=max((n for n in (self.number, number) if n is not None), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollateralCache:
    """One folder.  Its own failures (read-only, full) are logged and cost a fetch, no more.

    ``monotonic_ns`` and ``sleep`` are for waiting until another process is done.
    """

    folder: Path
    monotonic_ns: Callable[[], int]
    sleep: Callable[[float], None]
    max_bytes: int = MAX_CACHE_BYTES
    lock_wait_s: float = LOCK_WAIT_S

    def find(self, slot: str) -> CachedObject | None:
        """What the slot holds, whole but not verified again; None for nothing usable."""
        record = self._read(self._slot_path(slot), slot)
        if record is None:
            return None
        try:
            digest = text(record.get("sha256"), "slot")
            found = CachedObject(
                data=_read_file(self._object_path(digest), self.max_bytes),
                fetched_at=utc_time(record.get("fetched_at"), "slot"),
                origin=text(record.get("origin"), "slot"),
            )
        except (OSError, ValueError, AttestationError):
            return None
        return found if hashlib.sha256(found.data).hexdigest() == digest else None

    def require_not_older(self, slot: str, window: Window) -> None:
        """Raises: RolledBack."""
        if not self._floor(slot).admits(window):
            raise RolledBack(f"{slot}: older than what was seen before")

    def store(
        self, slot: str, data: bytes, window: Window, *, fetched_at: datetime, origin: str
    ) -> None:
        """Keeps a verified object.  Raises: RolledBack; then nothing changes."""
        try:
            self._make_folders()
            with self._locked("store"):
                self.require_not_older(slot, window)
                self._write_slot(slot, data, window, fetched_at, origin)
                self._evict(keep=hashlib.sha256(data).hexdigest())
        except OSError as err:
            _log.warning("the collateral cache cannot be written", extra={"reason": err.strerror})

    @contextmanager
    def flight(self, slot: str) -> Iterator[None]:
        """Others, in this process and in others, wait here while one gets the object of a slot."""
        with ExitStack() as held:
            with suppress(OSError):  # read-only, or without locks: then nobody waits
                self._make_folders()
                held.enter_context(self._locked(_name(slot)))
            yield

    def _write_slot(
        self, slot: str, data: bytes, window: Window, fetched_at: datetime, origin: str
    ) -> None:
        """The floor first: whatever is interrupted after it, the slot does not go back."""
        floor = self._floor(slot).raised(window.issued, window.number)
        order: dict[str, str] = {"slot": slot}
        if floor.issued is not None:
            order["issued"] = format_time(floor.issued)
        if floor.number is not None:
            order["number"] = str(floor.number)
        _write(self._floor_path(slot), _sealed(order))
        digest = hashlib.sha256(data).hexdigest()
        if len(data) <= self.max_bytes:
            _write(self._object_path(digest), data)
        stored = {"sha256": digest, "fetched_at": format_time(fetched_at), "origin": origin}
        _write(self._slot_path(slot), _sealed(order | stored))

    def _floor(self, slot: str) -> _Floor:
        """Kept twice, so that one damaged file does not lower it."""
        floor = _Floor()
        for path in (self._floor_path(slot), self._slot_path(slot)):
            record = self._read(path, slot)
            if record is None:
                continue
            try:
                issued = record.get("issued")
                floor = floor.raised(
                    None if issued is None else utc_time(issued, "slot"),
                    _number(record.get("number")),
                )
            except MalformedEvidence:
                continue
        return floor

    def _read(self, path: Path, slot: str) -> JsonObject | None:
        """The record in a file, when it is whole and about this slot."""
        try:
            data = _read_file(path, MAX_SLOT_BYTES + 65)
            seal, _, body = data.partition(b"\n")
            if seal != hashlib.sha256(body).hexdigest().encode("ascii"):
                return None
            record = parse_object(body, what="slot", max_bytes=MAX_SLOT_BYTES, max_depth=1)
        except (OSError, AttestationError):
            return None
        return record if record.get("slot") == slot else None

    def _evict(self, *, keep: str) -> None:
        """The objects that were stored longest ago go first; slots and floors stay."""
        entries = []
        for path in self._folder("objects").iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        newest = max((stored for stored, _, _ in entries), default=0.0)
        for stored, size, path in sorted(entries):
            is_abandoned = path.suffix == _PARTIAL and newest - stored > _STALE_S
            if is_abandoned or (total > self.max_bytes and path.name != keep):
                path.unlink(missing_ok=True)
                total -= size

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Best effort: a holder that takes too long is not waited for."""
        handle = os.open(self._folder("locks") / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            end_ns = self.monotonic_ns() + self.lock_wait_s * _NS
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if self.monotonic_ns() > end_ns:
                        _log.warning("the collateral cache stayed locked", extra={"lock": name})
                        break
                    self.sleep(_LOCK_POLL_S)
                else:
                    break
            yield
        finally:
            os.close(handle)

    def _make_folders(self) -> None:
        for name in ("objects", "slots", "floors", "locks"):
            self._folder(name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def _folder(self, name: str) -> Path:
        return self.folder / name

    def _object_path(self, digest: str) -> Path:
        if len(digest) != 64 or not digest.isalnum():
            raise ValueError("not a digest")
        return self._folder("objects") / digest

    def _slot_path(self, slot: str) -> Path:
        return self._folder("slots") / _name(slot)

    def _floor_path(self, slot: str) -> Path:
        return self._folder("floors") / _name(slot)


def default_folder(cache_home: str | None, home: Callable[[], Path] = Path.home) -> Path:
    """``$XDG_CACHE_HOME/starshade/collateral``; ``cache_home`` is that variable's value.

    A user with neither has a folder that cannot be made, so that nothing is kept.
    """
    try:
        above = Path(cache_home) if cache_home else home() / ".cache"
    except RuntimeError:
        above = Path(os.devnull)
    return above / "starshade" / "collateral"


def _name(slot: str) -> str:
    return hashlib.sha256(slot.encode("utf-8")).hexdigest()[:40]


def _sealed(record: JsonObject) -> bytes:
    """A line with the digest of what follows: half a record is none."""
    body = json.dumps(record).encode("utf-8")
    return hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body


def _number(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_NUMBER_DIGITS:
        return int(value)
    raise MalformedEvidence("format", "slot: number")


def _read_file(path: Path, max_bytes: int) -> bytes:
    """At most that many.  Raises: OSError: no file; nobody writes to a pipe in its place."""
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(max_bytes)


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, also when the machine stops in between."""
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=_PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(partial).replace(path)
    except OSError:
        Path(partial).unlink(missing_ok=True)
        raise
