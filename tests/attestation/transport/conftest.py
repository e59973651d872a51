"""One attested gateway on a TLS port."""

from tests.support.attested_gateway import certificate, running

__all__ = ["certificate", "running"]
