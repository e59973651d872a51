"""TCB info and QE identity are read member by member, each within its bounds.

Every text here is signed by the fake TCB signer, so that only what it says can be refused.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from attestation.anchors import load_anchors
from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake.pki import TCB_SIGNER_NAME
from attestation.tdx import collateral
from attestation.tdx.collateral import (
    MAX_OBJECT_BYTES,
    VerifiedQeIdentity,
    VerifiedTcbInfo,
    require_current,
    verify_qe_identity,
    verify_tcb_info,
)
from attestation.tdx.quote import Tee
from attestation.x509 import VerifiedChain, parse_chain, verify_chain
from tests.attestation.samples import AT

_TEE = FakeTee()
_GOOD = _TEE.attest(bytes(64), at=AT)[1]
_INFO: dict[str, Any] = json.loads(_GOOD.tcb_info)
_IDENTITY: dict[str, Any] = json.loads(_GOOD.qe_identity)
_DATE = "2025-05-14T00:00:00Z"


@cache
def _signer() -> VerifiedChain:
    return verify_chain(
        parse_chain(_GOOD.tcb_info_issuer_chain.encode(), what="signer"),
        num_certificates=2,
        family="dcap",
        anchors=load_anchors(),
        what="signer",
    )


def _sign(text: str) -> bytes:
    return _TEE.pki.sign(TCB_SIGNER_NAME, text.encode())


def _read_info(document: object, tee: Tee = "tdx") -> VerifiedTcbInfo:
    text = document if isinstance(document, str) else json.dumps(document)
    return verify_tcb_info(text, _sign(text), signer=_signer(), tee=tee)


def _read_identity(document: object, tee: Tee = "tdx") -> VerifiedQeIdentity:
    text = document if isinstance(document, str) else json.dumps(document)
    return verify_qe_identity(text, _sign(text), signer=_signer(), tee=tee)


def _code(read: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(AttestationError) as caught:
        read(*arguments)
    return caught.value.code


def _level(**changes: Any) -> dict[str, Any]:
    return {**_INFO["tcbLevels"][0], **changes}


def _tcb(**changes: Any) -> dict[str, Any]:
    """TCB info whose only level has another tcb."""
    return {**_INFO, "tcbLevels": [_level(tcb={**_level()["tcb"], **changes})]}


def _sgx_info() -> dict[str, Any]:
    tcb = {key: _level()["tcb"][key] for key in ("sgxtcbcomponents", "pcesvn")}
    kept = {key: value for key, value in _INFO.items() if not key.startswith("tdxModule")}
    return {**kept, "id": "SGX", "tcbLevels": [_level(tcb=tcb)]}


def test_tcb_info_is_read_whole() -> None:
    svns = tuple(range(16))
    components = [{"svn": svn} for svn in svns]
    module = {
        "id": "TDX_07",
        "mrsigner": "01" * 48,
        "attributes": "02" * 8,
        "attributesMask": "03" * 8,
        "tcbLevels": [
            {"tcb": {"isvsvn": 65535}, "tcbDate": _DATE, "tcbStatus": "OutOfDate"},
        ],
    }
    document = {
        **_tcb(sgxtcbcomponents=components, tdxtcbcomponents=components[::-1], pcesvn=65535),
        "fmspc": "0123456789AB",
        "pceId": "cdef",
        "tcbEvaluationDataNumber": 9,
        "tdxModuleIdentities": [module],
    }
    document["tcbLevels"][0] |= {"advisoryIDs": ["INTEL-SA-1"], "tcbStatus": "SWHardeningNeeded"}

    info = _read_info(document)

    assert (info.fmspc.hex(), info.pce_id.hex()) == ("0123456789ab", "cdef")
    assert info.tcb_evaluation_data_number == 9
    assert f"{info.issue_date:%Y-%m-%dT%H:%M:%SZ}" == _INFO["issueDate"]
    assert f"{info.next_update:%Y-%m-%dT%H:%M:%SZ}" == _INFO["nextUpdate"]
    (level,) = info.levels
    assert (level.sgx_svns, level.tdx_svns, level.pce_svn) == (svns, svns[::-1], 65535)
    assert (level.status, level.advisories) == ("SWHardeningNeeded", ("INTEL-SA-1",))
    assert level.tcb_date.isoformat() == _level()["tcbDate"].replace("Z", "+00:00")
    assert info.module is not None
    assert (info.module.module_id, info.module.levels) == ("", ())
    (identity,) = info.module_identities
    assert identity.module_id == "TDX_07"
    assert identity.mr_signer == b"\1" * 48
    assert (identity.attributes, identity.attributes_mask) == (b"\2" * 8, b"\3" * 8)
    (enclave,) = identity.levels
    assert (enclave.isv_svn, enclave.status, enclave.advisories) == (65535, "OutOfDate", ())
    assert enclave.tcb_date == datetime(2025, 5, 14, tzinfo=UTC)


def test_sgx_has_names_of_its_own_and_no_tdx_components() -> None:
    info = _read_info(_sgx_info(), "sgx")
    identity = _read_identity({**_IDENTITY, "id": "QE"}, "sgx")

    assert (info.module, info.module_identities) == (None, ())
    assert info.levels[0].tdx_svns == ()
    assert len(info.levels[0].sgx_svns) == 16
    assert identity.isv_prod_id == 2
    assert _code(_read_info, _sgx_info(), "tdx") == "tcb_info_mismatch"
    assert _code(_read_info, _INFO, "sgx") == "tcb_info_mismatch"
    assert _code(_read_identity, _IDENTITY, "sgx") == "qe_identity_mismatch"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": 2}, "tcb_info_mismatch"),
        ({"version": True}, "tcb_info_mismatch"),
        ({"tcbType": 1}, "tcb_info_mismatch"),
        ({"id": None}, "tcb_info_mismatch"),
        ({"issueDate": None}, "format"),
        ({"nextUpdate": "2026-12-01"}, "format"),
        ({"fmspc": "00" * 5}, "format"),
        ({"pceId": "00" * 3}, "format"),
        ({"tcbEvaluationDataNumber": -1}, "format"),
        ({"tdxModule": None}, "format"),
        ({"tdxModule": []}, "format"),
        ({"tdxModuleIdentities": {}}, "format"),
        ({"tdxModuleIdentities": ["TDX_01"]}, "format"),
        ({"tcbLevels": []}, "format"),
        ({"tcbLevels": None}, "format"),
        ({"tcbLevels": [7]}, "format"),
        ({"tcbLevels": [_level(tcb=[])]}, "format"),
        ({"tcbLevels": [_level(tcbStatus="TDRelaunchAdvised")]}, "format"),
        ({"tcbLevels": [_level(tcbStatus="Fine")]}, "format"),
        ({"tcbLevels": [_level(tcbDate=None)]}, "format"),
        ({"tcbLevels": [_level(advisoryIDs=[7])]}, "format"),
        ({"tcbLevels": [_level(advisoryIDs="INTEL-SA-1")]}, "format"),
    ],
)
def test_tcb_info_of_another_form(changes: dict[str, Any], code: str) -> None:
    assert _code(_read_info, {**_INFO, **changes}) == code


@pytest.mark.parametrize("svn", [-1, 256, True, None, "1", []])
def test_an_svn_is_one_byte(svn: object) -> None:
    components = [*_level()["tcb"]["sgxtcbcomponents"][:15], {"svn": svn}]

    assert _code(_read_info, _tcb(sgxtcbcomponents=components)) == "format"
    assert _code(_read_info, _tcb(tdxtcbcomponents=components)) == "format"


@pytest.mark.parametrize("svn", [0, 1, 254, 255])
def test_any_byte_is_an_svn(svn: int) -> None:
    info = _read_info(_tcb(sgxtcbcomponents=[{"svn": svn}] * 16))

    assert info.levels[0].sgx_svns == (svn,) * 16


@pytest.mark.parametrize("num_components", [0, 15, 17])
def test_there_are_sixteen_components(num_components: int) -> None:
    components = [{"svn": 1}] * num_components

    assert _code(_read_info, _tcb(sgxtcbcomponents=components)) == "format"
    assert _code(_read_info, _tcb(tdxtcbcomponents=components)) == "format"
    assert _code(_read_info, _tcb(sgxtcbcomponents=[7] * 16)) == "format"


@pytest.mark.parametrize("svn", [-1, 65536, True, None])
def test_other_svns_are_two_bytes(svn: object) -> None:
    level = {"tcb": {"isvsvn": svn}, "tcbDate": _DATE, "tcbStatus": "UpToDate"}

    assert _code(_read_info, _tcb(pcesvn=svn)) == "format"
    assert _code(_read_identity, {**_IDENTITY, "isvprodid": svn}) == "format"
    assert _code(_read_identity, {**_IDENTITY, "tcbLevels": [level]}) == "format"


def test_lists_and_texts_are_bounded() -> None:
    def levels(number: int) -> dict[str, Any]:
        return {**_IDENTITY, "tcbLevels": _IDENTITY["tcbLevels"] * number}

    def advisories(number: int) -> dict[str, Any]:
        return {**_INFO, "tcbLevels": [_level(advisoryIDs=["A"] * number)]}

    def padded(document: dict[str, Any], size_bytes: int) -> str:
        text = json.dumps(document)
        return text + " " * (size_bytes - len(text))

    assert len(_read_identity(levels(128)).levels) == 128
    assert _code(_read_identity, levels(129)) == "format"
    assert len(_read_info(advisories(256)).levels[0].advisories) == 256
    assert _code(_read_info, advisories(257)) == "format"
    assert MAX_OBJECT_BYTES == 262144
    _read_info(padded(_INFO, 262144))
    _read_identity(padded(_IDENTITY, 262144))
    assert _code(_read_info, padded(_INFO, 262145)) == "format"
    assert _code(_read_identity, padded(_IDENTITY, 262145)) == "format"


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> object:
        return [] if depth == 1 else [nested(depth - 1)]

    for read, good in ((_read_info, _INFO), (_read_identity, _IDENTITY)):
        read({**good, "more": nested(8)})
        assert _code(read, {**good, "more": nested(9)}) == "format"


@pytest.mark.parametrize("status", ["SWHardeningNeeded", "ConfigurationNeeded", "Fine", None])
def test_an_enclave_has_three_statuses(status: object) -> None:
    level = {"tcb": {"isvsvn": 1}, "tcbDate": _DATE, "tcbStatus": status}

    assert _code(_read_identity, {**_IDENTITY, "tcbLevels": [level]}) == "format"
    for name in ("UpToDate", "OutOfDate", "Revoked"):
        identity = _read_identity({**_IDENTITY, "tcbLevels": [{**level, "tcbStatus": name}]})
        assert identity.levels[0].status == name


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": 1}, "qe_identity_mismatch"),
        ({"id": "TD_QE2"}, "qe_identity_mismatch"),
        ({"issueDate": None}, "format"),
        ({"nextUpdate": None}, "format"),
        ({"miscselect": "00" * 3}, "format"),
        ({"miscselectMask": "00" * 5}, "format"),
        ({"attributes": "00" * 15}, "format"),
        ({"attributesMask": "00" * 17}, "format"),
        ({"mrsigner": "00" * 31}, "format"),
        ({"tcbEvaluationDataNumber": None}, "format"),
    ],
)
def test_a_qe_identity_of_another_form(changes: dict[str, Any], code: str) -> None:
    assert _code(_read_identity, {**_IDENTITY, **changes}) == code


def test_a_qe_identity_is_read_whole() -> None:
    identity = _read_identity(
        {
            **_IDENTITY,
            "miscselect": "01" * 4,
            "miscselectMask": "02" * 4,
            "attributes": "03" * 16,
            "attributesMask": "04" * 16,
            "mrsigner": "05" * 32,
            "isvprodid": 65535,
            "tcbEvaluationDataNumber": 8,
        }
    )

    assert (identity.misc_select, identity.misc_select_mask) == (b"\1" * 4, b"\2" * 4)
    assert (identity.attributes, identity.attributes_mask) == (b"\3" * 16, b"\4" * 16)
    assert (identity.mr_signer, identity.isv_prod_id) == (b"\5" * 32, 65535)
    assert identity.tcb_evaluation_data_number == 8
    assert f"{identity.issue_date:%Y-%m-%dT%H:%M:%SZ}" == _IDENTITY["issueDate"]
    assert f"{identity.next_update:%Y-%m-%dT%H:%M:%SZ}" == _IDENTITY["nextUpdate"]


@pytest.mark.parametrize("size_bytes", [0, 63, 65])
def test_a_signature_has_64_bytes(size_bytes: int) -> None:
    text = _GOOD.tcb_info
    signature = (_sign(text) + b"\0")[:size_bytes]

    for verify, code in (
        (verify_tcb_info, "tcb_info_signature"),
        (verify_qe_identity, "qe_identity_signature"),
    ):
        with pytest.raises(AttestationError) as caught:
            verify(text, signature, signer=_signer(), tee="tdx")
        assert caught.value.code == code


def test_it_is_current_from_its_issue_until_just_before_its_next_update() -> None:
    first, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)
    second = datetime.resolution * 1_000_000

    require_current("it", first, end, first)
    require_current("it", first, end, end - second)
    for at, code in (
        (first - second, "collateral_not_yet_valid"),
        (end, "collateral_expired"),
    ):
        assert _code(require_current, "it", first, end, at) == code


def test_the_statuses_of_a_platform_are_the_vendors() -> None:
    for status in sorted(collateral._PLATFORM_STATUSES):
        info = _read_info({**_INFO, "tcbLevels": [_level(tcbStatus=status)]})
        assert info.levels[0].status == status
    assert len(collateral._PLATFORM_STATUSES) == 7
