"""The SGX extension of a PCK certificate is complete and in range, or refused."""

from dataclasses import replace

import pytest
from cryptography import x509

from attestation.errors import AttestationError
from attestation.fake.pki import FakePki, pem
from attestation.fake.platform import FakePlatform
from attestation.tdx.pck import PckExtension, parse_pck_extension
from attestation.x509 import parse_chain

_EXTENSION = FakePlatform().sgx_extension()


def _parse(extension: bytes) -> PckExtension:
    certificate: x509.Certificate = FakePki().issue_pck(extension)
    return parse_pck_extension(parse_chain(pem((certificate,)), what="PCK")[0])


def _code(extension: bytes) -> str:
    with pytest.raises(AttestationError) as caught:
        _parse(extension)
    return caught.value.code


def test_the_members_are_read() -> None:
    platform = FakePlatform(component_svns=(*range(15), 255), pce_svn=0xFFFF)

    extension = _parse(platform.sgx_extension())

    assert extension.fmspc == platform.fmspc
    assert extension.pce_id == platform.pce_id
    assert (extension.pce_svn, extension.component_svns) == (0xFFFF, platform.component_svns)


@pytest.mark.parametrize(
    "platform",
    [
        replace(FakePlatform(), fmspc=bytes(5)),
        replace(FakePlatform(), pce_id=bytes(3)),
        replace(FakePlatform(), pce_svn=0x10000),
        replace(FakePlatform(), component_svns=(256,) + (0,) * 15),
        replace(FakePlatform(), component_svns=(0,) * 15),
    ],
)
def test_values_out_of_range_are_refused(platform: FakePlatform) -> None:
    assert _code(platform.sgx_extension()) == "format"


def test_other_structures_are_refused() -> None:
    assert _code(b"") == "format"
    assert _code(b"\x30\0") == "format"
    assert _code(_EXTENSION + b"\5\0") == "format"
    assert _code(_EXTENSION[:-1]) == "format"


def test_a_certificate_without_the_extension_is_refused() -> None:
    certificate = parse_chain(pem((FakePki().tcb_signer,)), what="PCK")[0]

    with pytest.raises(AttestationError, match="no SGX extension"):
        parse_pck_extension(certificate)
