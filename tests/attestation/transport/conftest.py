"""One attested gateway on a TLS port."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.attested_gateway import Running, running_gateway
from tests.support.tls import self_signed


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def running(certificate: tuple[Path, Path]) -> Iterator[Running]:
    with running_gateway(certificate) as running:
        yield running
