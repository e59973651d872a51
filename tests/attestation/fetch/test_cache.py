"""The cache never goes back, never grows beyond its bound and never trusts a damaged file."""

import errno
import fcntl
import hashlib
import json
import multiprocessing
import multiprocessing.synchronize
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.fetch.cache import CollateralCache, RolledBack, Window, default_folder
from tests.attestation.fetch.vendors import collateral_cache
from tests.support.patience import PATIENCE_S

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
_SLOT = f"dcap/{'00' * 32}/tdx/tcb/00806f050000"


def _window(day: int = 0, number: int | None = 17) -> Window:
    return Window(issued=AT + day * DAY, next_update=AT + (day + 30) * DAY, number=number)


def _store(
    cache: CollateralCache, data: bytes, window: Window | None = None, slot: str = _SLOT
) -> None:
    cache.store(slot, data, window or _window(), fetched_at=AT, origin="host")


def _data(cache: CollateralCache, slot: str = _SLOT) -> bytes | None:
    found = cache.find(slot)
    return None if found is None else found.data


def test_what_was_stored_is_found(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path / "new" / "folder")
    assert cache.find(_SLOT) is None

    _store(cache, b"object")

    found = cache.find(_SLOT)
    assert found is not None
    assert (found.data, found.fetched_at, found.origin) == (b"object", AT, "host")
    assert cache.find("another") is None


@pytest.mark.parametrize(
    "older",
    [
        _window(day=-1),
        _window(number=16),
        _window(day=1, number=16),
        _window(day=-1, number=18),
        _window(number=None),
        Window(next_update=AT + DAY, number=17),
    ],
)
def test_no_step_back(tmp_path: Path, older: Window) -> None:
    cache = collateral_cache(tmp_path)
    _store(cache, b"newer")

    with pytest.raises(RolledBack):
        cache.require_not_older(_SLOT, older)
    with pytest.raises(RolledBack):
        _store(cache, b"older", older)

    assert _data(cache) == b"newer"
    _store(cache, b"older", older, slot="another")


@pytest.mark.parametrize("newer", [_window(), _window(day=1), _window(number=18)])
def test_a_step_forward_or_none(tmp_path: Path, newer: Window) -> None:
    cache = collateral_cache(tmp_path)
    _store(cache, b"first")
    _store(cache, b"second", newer)

    assert _data(cache) == b"second"


@pytest.mark.parametrize("damaged", ["objects", "slots", "floors"])
@pytest.mark.parametrize("damage", [b"", b"garbage", b"{}", "cut", "flip", "gone"])
def test_a_damaged_file_is_a_miss_and_lowers_no_floor(
    tmp_path: Path, damaged: str, damage: bytes | str
) -> None:
    cache = collateral_cache(tmp_path)
    _store(cache, b"object")
    (path,) = (tmp_path / damaged).iterdir()
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        assert isinstance(damage, bytes)
        path.write_bytes(damage)

    assert _data(cache) == (b"object" if damaged == "floors" else None)
    with pytest.raises(RolledBack):
        cache.require_not_older(_SLOT, _window(day=-1))
    _store(cache, b"object", _window(day=1))
    assert _data(cache) == b"object"


@pytest.mark.parametrize("damaged", ["objects", "slots"])
@pytest.mark.parametrize("damage", ["pipe", "loop", "folder", "sparse"])
def test_what_is_no_file_of_its_size_is_a_miss_and_not_waited_for(
    tmp_path: Path, damaged: str, damage: str
) -> None:
    cache = collateral_cache(tmp_path, max_bytes=1000)
    _store(cache, b"object")
    (path,) = (tmp_path / damaged).iterdir()
    path.unlink()
    match damage:
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "folder":
            path.mkdir()
        case _:
            path.touch()
            os.truncate(path, 1 << 40)

    assert _data(cache) is None


def test_an_edited_record_is_no_record(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path)
    _store(cache, b"object")
    for folder in ("slots", "floors"):
        (path,) = (tmp_path / folder).iterdir()
        path.write_bytes(path.read_bytes().replace(b'"17"', b'"99"'))

    assert cache.find(_SLOT) is None
    cache.require_not_older(_SLOT, _window(number=18))


def test_a_slot_of_another_name_in_its_place_is_a_miss(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path)
    _store(cache, b"mine")
    mine = {path.name for path in (tmp_path / "slots").iterdir()}
    _store(cache, b"other", slot="other")
    (other,) = (path for path in (tmp_path / "slots").iterdir() if path.name not in mine)
    other.replace(tmp_path / "slots" / mine.pop())

    assert cache.find(_SLOT) is None


def test_a_pointer_out_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path / "cache")
    _store(cache, b"object")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (slot,) = (tmp_path / "cache" / "slots").iterdir()
    record = json.loads(slot.read_bytes().split(b"\n", 1)[1])
    for pointer in ("../../secret", str(secret), "../../secret".ljust(64, "/")):
        body = json.dumps(record | {"sha256": pointer}).encode()
        slot.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        assert cache.find(_SLOT) is None


def test_size_is_bounded_and_floors_outlive_objects(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path, max_bytes=1000)
    for number in range(20):
        _store(cache, bytes([number]) * 300, slot=str(number))
        sizes = [path.stat().st_size for path in (tmp_path / "objects").iterdir()]
        assert sum(sizes) <= 1000

    assert _data(cache, "19") is not None
    assert _data(cache, "0") is None
    with pytest.raises(RolledBack):
        _store(cache, b"older", _window(day=-1), slot="0")


def test_an_object_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path, max_bytes=10)
    _store(cache, b"x" * 11)

    assert cache.find(_SLOT) is None
    assert not list((tmp_path / "objects").iterdir())


def test_a_folder_that_cannot_be_made_costs_a_fetch_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = collateral_cache(tmp_path / "file" / "cache")

    _store(cache, b"object")
    with cache.flight(_SLOT):
        assert cache.find(_SLOT) is None

    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(("module", "function"), [(os, "open"), (fcntl, "flock")])
def test_a_lock_that_cannot_be_had_costs_a_fetch_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, function: str
) -> None:
    """A file system that is mounted read-only, or that has no locks."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    cache = collateral_cache(tmp_path)
    _store(cache, b"one")
    monkeypatch.setattr(module, function, refuse)

    with cache.flight(_SLOT):
        _store(cache, b"two")

    assert _data(cache) == b"one"


def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path / "cache")
    _store(cache, b"object")

    for path in (tmp_path / "cache").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_flight_at_a_time_for_threads(tmp_path: Path) -> None:
    cache = collateral_cache(tmp_path)
    fetches: list[int] = []

    def get(number: int) -> None:
        with cache.flight(_SLOT):
            if cache.find(_SLOT) is None:
                fetches.append(number)
                threading.Event().wait(0.05)
                _store(cache, b"object")

    threads = [threading.Thread(target=get, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(fetches) == 1


def _hold(
    folder: Path,
    held: multiprocessing.synchronize.Event,
    may_end: multiprocessing.synchronize.Event,
) -> None:
    with collateral_cache(folder).flight(_SLOT):
        held.set()
        may_end.wait(60)


def test_one_flight_at_a_time_for_processes_and_none_waits_for_ever(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, may_end = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, held, may_end))
    holder.start()
    try:
        assert held.wait(PATIENCE_S)
        with collateral_cache(tmp_path, lock_wait_s=0.1).flight(_SLOT):
            assert holder.is_alive()  # gave up waiting
        with collateral_cache(tmp_path).flight("another slot"):
            assert holder.is_alive()
        threading.Timer(0.1, may_end.set).start()
        with collateral_cache(tmp_path).flight(_SLOT):
            assert may_end.is_set()
    finally:
        holder.kill()
        holder.join()


def test_a_lock_is_waited_for_by_the_clock_that_was_given(tmp_path: Path) -> None:
    slept: list[float] = []
    waiting = CollateralCache(
        folder=tmp_path,
        monotonic_ns=lambda: round(sum(slept) * 1e9),
        sleep=slept.append,
        lock_wait_s=60.0,
    )

    with collateral_cache(tmp_path).flight(_SLOT), waiting.flight(_SLOT):
        assert sum(slept) == pytest.approx(60.0, abs=0.1)


def test_where_it_lies() -> None:
    def me() -> Path:
        return Path("/home/me")

    assert default_folder("/x", me) == Path("/x/starshade/collateral")
    assert default_folder(None, me) == Path("/home/me/.cache/starshade/collateral")


def test_without_a_home_it_lies_where_told_or_nothing_is_kept() -> None:
    """As a container's user that has a number and no name."""

    def nobody() -> NoReturn:
        raise RuntimeError("no home")

    assert default_folder("/x", nobody) == Path("/x/starshade/collateral")
    cache = collateral_cache(default_folder(None, nobody))
    with cache.flight(_SLOT):
        _store(cache, b"object")
    assert _data(cache) is None


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("store"),
            st.integers(0, 2),
            st.integers(-5, 5),
            st.one_of(st.none(), st.integers(0, 3)),
            st.integers(0, 400),
        ),
        st.tuples(
            st.just("damage"), st.integers(0, 50), st.integers(0, 7), st.none(), st.integers(0, 1)
        ),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS)
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, int | None, int]]
) -> None:
    """Objects damaged at will: a slot holds the newest it accepted or nothing, and never more."""
    folder = tmp_path_factory.mktemp("cache")
    cache = collateral_cache(folder, max_bytes=1000)
    newest: dict[str, tuple[datetime, int, bytes]] = {}
    for action, first, day, number, size in steps:
        if action == "damage":
            objects = sorted((folder / "objects").glob("*")) if folder.exists() else []
            if objects:
                objects[first % len(objects)].write_bytes(bytes(size))
            continue
        slot, data = str(first), bytes([day + 5]) * size
        window = _window(day, number)
        assert window.issued is not None
        rank = -1 if number is None else number
        held = newest.get(slot)
        is_older = held is not None and (window.issued < held[0] or rank < held[1])
        try:
            _store(cache, data, window, slot)
            assert not is_older
            newest[slot] = (window.issued, rank, data)
        except RolledBack:
            assert is_older
        for known, (_, _, expected) in newest.items():
            assert _data(cache, known) in (expected, None)
        sizes = [path.stat().st_size for path in (folder / "objects").iterdir()]
        assert sum(sizes) <= 1000
