"""configfs-tsm: a request is whole, retried when it has to be, and always taken away again."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestation.collect.configfs import MAX_OUTBLOB_BYTES, ConfigfsTsm
from attestation.collect.errors import TeeUnavailable
from tests.attestation.collect.kernel import FakeKernel
from tests.support.patience import PATIENCE_S

_DATA = bytes(range(64))


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[FakeKernel]:
    playing = FakeKernel(base=tmp_path / "report", quote=lambda data: b"quote over " + data)
    yield playing
    for thread in playing.threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def _tsm(kernel: FakeKernel, **changes: Any) -> ConfigfsTsm:
    waits: list[float] = []
    made = ConfigfsTsm(base=kernel.base, files=kernel.files(), sleep=waits.append)
    return replace(made, **changes)


def test_a_report_and_what_was_written_for_it(kernel: FakeKernel) -> None:
    report = _tsm(kernel).report(_DATA)

    assert report.outblob == b"quote over " + _DATA
    assert (report.provider, report.auxblob) == ("tdx_guest", b"")
    assert kernel.written == [("inblob", _DATA)]
    assert not list(kernel.base.iterdir())


def test_a_privilege_level_and_an_auxblob(kernel: FakeKernel) -> None:
    kernel.provider, kernel.auxblob = "sev_guest", b"table"

    report = _tsm(kernel).report(_DATA, privlevel=2)

    assert (report.provider, report.auxblob) == ("sev_guest", b"table")
    assert kernel.written == [("privlevel", b"2"), ("inblob", _DATA)]


def test_the_provider_alone_makes_no_quote(kernel: FakeKernel) -> None:
    kernel.quote = lambda _: pytest.fail("a quote was made")

    assert _tsm(kernel).provider() == "tdx_guest"
    assert not list(kernel.base.iterdir())


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EINTR, errno.EAGAIN])
@pytest.mark.parametrize("operation", ["mkdir", "write", "outblob", "generation", "rmdir"])
def test_what_passes_is_tried_again(kernel: FakeKernel, operation: str, number: int) -> None:
    kernel.faults[operation] = [number, number]

    assert _tsm(kernel).report(_DATA).outblob == b"quote over " + _DATA
    assert not list(kernel.base.iterdir())


def test_a_change_of_generation_is_asked_again_in_a_new_entry(kernel: FakeKernel) -> None:
    kernel.intruders = 2

    assert _tsm(kernel).report(_DATA).outblob == b"quote over " + _DATA
    assert len(set(kernel.made)) == 3


def test_a_generation_that_always_changes_is_given_up(kernel: FakeKernel) -> None:
    kernel.intruders = 1000

    with pytest.raises(TeeUnavailable, match="another process"):
        _tsm(kernel).report(_DATA)
    assert not list(kernel.base.iterdir())


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENXIO, "modprobe"),
        (errno.EACCES, "run as root"),
        (errno.ETIMEDOUT, "quote generation service running"),
        (errno.EIO, "kernel log"),
    ],
)
def test_errors_say_what_to_do(kernel: FakeKernel, number: int, step: str) -> None:
    for operation in ("mkdir", "outblob"):
        kernel.faults[operation] = [number]
        with pytest.raises(TeeUnavailable) as caught:
            _tsm(kernel).report(_DATA)
        assert caught.value.code == "tee_unavailable"
        assert step in caught.value.next_step
    assert not list(kernel.base.iterdir())


def test_busy_for_ever_is_given_up(kernel: FakeKernel) -> None:
    kernel.faults["mkdir"] = [errno.EBUSY] * 1000
    waits: list[float] = []

    with pytest.raises(TeeUnavailable):
        _tsm(kernel, sleep=waits.append).report(_DATA)
    assert len(waits) == 39


def test_no_configfs_at_all(tmp_path: Path) -> None:
    with pytest.raises(TeeUnavailable) as caught:
        ConfigfsTsm(base=tmp_path / "none").provider()
    assert "mount configfs" in caught.value.next_step


def test_an_output_beyond_its_bound(kernel: FakeKernel) -> None:
    kernel.quote = lambda _: bytes(MAX_OUTBLOB_BYTES)
    assert len(_tsm(kernel).report(_DATA).outblob) == MAX_OUTBLOB_BYTES

    kernel.quote = lambda _: bytes(MAX_OUTBLOB_BYTES + 1)
    with pytest.raises(TeeUnavailable, match="outblob"):
        _tsm(kernel).report(_DATA)


def test_report_data_of_another_length(kernel: FakeKernel) -> None:
    for data in (b"", _DATA[:63], _DATA + b"\0"):
        with pytest.raises(ValueError, match="want 64"):
            _tsm(kernel).report(data)
    assert not kernel.made


def test_an_input_that_is_not_there_is_never_made(tmp_path: Path) -> None:
    """The interface writes into the kernel's files; it does not make files of its own."""
    tsm = ConfigfsTsm(base=tmp_path, new_name=lambda: "entry")
    with pytest.raises(TeeUnavailable):
        tsm.report(_DATA)
    assert not list(tmp_path.iterdir())
