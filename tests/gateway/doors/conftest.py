"""One stack for all tests of the doors that change nothing of it."""

from collections.abc import Iterator

import pytest

from tests.gateway.support import Stack, running_stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("doors")
    with running_stack(folder, gateway__max_body_bytes=16384) as running:
        yield running


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("blind")
    with running_stack(folder, gateway__mode="pass-through") as stack:
        yield stack
