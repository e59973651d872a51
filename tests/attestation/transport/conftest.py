"""One attested gateway on a TLS port, and clients of it."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.attested_gateway import AttestedGateway
from tests.support.servers import ServerThread
from tests.support.tls import self_signed, server_context


@dataclass
class Running:
    """A gateway that runs, with what a client needs to know of it."""

    gateway: AttestedGateway
    url: str
    ca_file: Path
    tls: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def running(certificate: tuple[Path, Path]) -> Iterator[Running]:
    gateway = AttestedGateway(certificate=certificate[0])
    context = server_context(certificate)
    with ServerThread(gateway, context=context) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        yield Running(gateway=gateway, url=url, ca_file=certificate[0], tls=context)
