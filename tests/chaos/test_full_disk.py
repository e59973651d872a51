"""A full disk: is nothing answered without its receipt, and does it pass as soon as there is room?

On a small file system of its own where one may be mounted. Where not, SQLite's own limit of pages
makes the same error, SQLITE_FULL.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.processes import Processes, processes, wait_for_receipt
from tests.gateway.support import running_stack

SIZE = "16m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "starshade-test", str(mount)],  # noqa: S607
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)  # noqa: S607


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Not a byte is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    try:
        yield
    finally:
        filler.unlink()


def ask(running: Processes) -> tuple[int, str, str]:
    """(status, code, receipt id)."""
    with running.client() as client:
        answer = client.post("/v1/chat/completions", json=running.body())
    code = "" if answer.status_code == 200 else answer.json()["error"]["code"]
    return answer.status_code, code, answer.headers.get("starshade-receipt", "")


def test_nothing_is_answered_without_room_for_its_receipt(small_disk: Path) -> None:
    with processes(small_disk / "s") as running:
        status, _, before = ask(running)
        assert status == 200
        with filled(small_disk):
            answers = [ask(running) for _ in range(60)]
            refused = [(status, code) for status, code, _ in answers if status != 200]
            assert refused, "the disk was never full"
            assert set(refused) == {(503, "receipt_unavailable")}
        give_up = time.monotonic() + 20
        while ask(running)[0] != 200:
            assert time.monotonic() < give_up, "it does not recover"
            time.sleep(0.2)
        with running.client() as client:
            for receipt_id in [before, *(id_ for status, _, id_ in answers if status == 200)]:
                assert wait_for_receipt(client, receipt_id)["receipt"]["outcome"] == "complete"


def test_sqlite_full_is_the_same_refusal(tmp_path: Path) -> None:
    """Injected: the database may not have another page."""
    with running_stack(tmp_path) as stack:
        assert stack.chat().status_code == 200
        writer = stack.gateway.app.services.receipts._writer
        writer.submit(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1")).result()
        codes = set()
        for _ in range(400):
            answer = stack.chat()
            if answer.status_code != 200:
                codes.add((answer.status_code, answer.json()["error"]["code"]))
                break
        assert codes == {(503, "receipt_unavailable")}
