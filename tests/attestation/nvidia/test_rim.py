"""NVIDIA's own RIMs: genuine ones are read, changed ones refused, whatever the change."""

import base64
import hashlib
import json
import random
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from attestation.anchors import TrustAnchors, load_anchors
from attestation.errors import AttestationError
from attestation.nvidia.rim import RimKind, VerifiedRim, require_rim, verify_rim
from attestation.nvidia.rim_service import (
    driver_rim_id,
    parse_rim_answer,
    switch_rim_id,
    vbios_rim_id,
)
from tests.attestation.samples import flip_bit
from tests.support.resources import vectors_dir

_AT_2025 = datetime(2025, 6, 11, tzinfo=UTC)
_AT_2026 = datetime(2026, 6, 11, tzinfo=UTC)
_GENUINE: dict[str, tuple[datetime, RimKind, str, str, int]] = {
    "Driver_RIM_545.00.swidtag": (_AT_2025, "driver", "GH100", "545.00", 21),
    "NV_GPU_DRIVER_GH100_550.144.03.xml": (_AT_2026, "driver", "GH100", "550.144.03", 21),
    "NV_GPU_DRIVER_GH100_550.90.07.xml": (_AT_2025, "driver", "GH100", "550.90.07", 21),
    "NV_GPU_VBIOS_1010_0200_882_96009F0001.xml": (
        _AT_2025,
        "vbios",
        "GH100",
        "96.00.9F.00.01",
        12,
    ),
    "NV_SWITCH_BIOS_5612_0002_890_9610550001.xml": (
        _AT_2026,
        "switch",
        "LS10",
        "96.10.55.00.01",
        31,
    ),
    "VBIOS_1010_0200_882_96005E0001.swidtag": (_AT_2025, "vbios", "GH100", "96.00.5E.00.01", 12),
    "VBIOS_1010_0205_862_9600740020.swidtag": (_AT_2025, "vbios", "GH100", "96.00.74.00.20", 12),
}
_REFUSED = {
    "NV_GPU_DRIVER_GH100_535.86.09_measurement_mismatch.xml": "rim_signature",
    "incorrect_cert_chain_driver_rim.xml": "chain",
    "incorrect_signature_driver_rim.xml": "rim_signature",
}
_CHANGED = {  # half of each pair is the genuine RIM of the other kind
    "rim-deactivate.driver.xml": "rim_signature",
    "rim-doctype.driver.xml": "format",
    "rim-dup-index.driver.xml": "rim_signature",
    "rim-hash-edit.driver.xml": "rim_signature",
    "rim-truncated.driver.xml": "format",
    "rim-unsigned.driver.xml": "rim_signature",
    "rim-version-edit.driver.xml": "rim_signature",
    "rim-wrapped.driver.xml": "rim_signature",
}
_UNCHANGED: dict[str, RimKind] = {
    "rim-swapped.driver.xml": "vbios",
    "rim-swapped.vbios.xml": "driver",
    "rim-vbios-twice.driver.xml": "vbios",
    "rim-vbios-twice.vbios.xml": "vbios",
}
_DRIVER = "NV_GPU_DRIVER_GH100_550.90.07.xml"
_VBIOS = "NV_GPU_VBIOS_1010_0200_882_96009F0001.xml"
_NUM_MUTATIONS = 2000
_FLIP_EVERY = 17  # bytes; the bit moves along
_MAX_SECONDS = 60.0
_MAX_GROWTH_KIB = 64 * 1024
# ``cryptography`` warns of a country of other than two letters, which a changed name may have.
_NAMES = pytest.mark.filterwarnings("ignore:Attribute's length must be")


def _folder() -> Path:
    return vectors_dir() / "attestation" / "nvidia"


def _verify(data: bytes, at: datetime = _AT_2025) -> VerifiedRim:
    return verify_rim(data, anchors=load_anchors(), at=at)


def _code(data: bytes, at: datetime = _AT_2025) -> str:
    with pytest.raises(AttestationError) as caught:
        _verify(data, at)
    return caught.value.code


def _read(name: str) -> bytes:
    return (_folder() / "rim" / name).read_bytes()


def test_every_published_rim_is_accounted_for() -> None:
    names = {path.name for path in (_folder() / "rim").iterdir()}
    changed = {path.name for path in (_folder() / "negative").glob("rim-*")}
    genuine = {name.replace(".driver.", ".vbios.") for name in _CHANGED}

    assert names == _GENUINE.keys() | _REFUSED.keys()
    assert changed == _CHANGED.keys() | _UNCHANGED.keys() | genuine


@pytest.mark.parametrize("name", _GENUINE)
def test_a_genuine_rim(name: str) -> None:
    at, kind, product, version, num_active = _GENUINE[name]
    rim = _verify(_read(name), at)

    assert (rim.kind, rim.product, rim.version) == (kind, product, version)
    assert len(rim.active) == num_active
    assert sorted(rim.entries) == list(range(64))
    assert rim.sha256 == hashlib.sha256(_read(name)).hexdigest()
    assert all(len(value) == 48 for entry in rim.active for value in entry.alternatives)
    assert rim.not_after == min(c.not_after for c in rim.chain.certificates) > at


def test_the_facts_of_the_manifest() -> None:
    files = json.loads((_folder() / "manifest.json").read_text())["files"]
    facts = {Path(f["file"]).name: f["facts"] for f in files if f["kind"] == "nvidia-rim"}

    for name, (at, *_) in _GENUINE.items():
        rim = _verify(_read(name), at)
        assert [entry.index for entry in rim.active] == facts[name]["active"]
        assert [c.sha256 for c in rim.chain.certificates] == [
            c["sha256"] for c in facts[name]["certs"]
        ]


def test_alternatives_are_all_read() -> None:
    rim = _verify(_read(_DRIVER))

    assert {len(entry.alternatives) for entry in rim.active} == {1, 2, 4}


@pytest.mark.parametrize("name", _REFUSED)
def test_a_false_rim(name: str) -> None:
    assert _code(_read(name)) == _REFUSED[name]


@pytest.mark.parametrize("name", _CHANGED)
def test_a_changed_rim(name: str) -> None:
    assert _code((_folder() / "negative" / name).read_bytes()) == _CHANGED[name]


@pytest.mark.parametrize("name", _UNCHANGED)
def test_a_genuine_rim_in_the_wrong_place(name: str) -> None:
    rim = _verify((_folder() / "negative" / name).read_bytes())

    assert rim.kind == _UNCHANGED[name]


@pytest.mark.parametrize("name", _GENUINE)
def test_before_and_after_the_signer_lives(name: str) -> None:
    at, *_ = _GENUINE[name]
    rim = _verify(_read(name), at)

    for moment in (rim.chain.leaf.not_before, rim.not_after):
        assert _verify(_read(name), moment) is not None
    for year in (2022, 2034):
        assert _code(_read(name), datetime(year, 1, 1, tzinfo=UTC)) == "certificate_time"


def test_another_pinned_root_does_not_count() -> None:
    with pytest.raises(AttestationError) as caught:
        verify_rim(_read(_DRIVER), anchors=TrustAnchors(anchors=()), at=_AT_2025)

    assert caught.value.code == "untrusted_root"


def test_the_rim_must_be_for_the_device() -> None:
    driver, vbios = _verify(_read(_DRIVER)), _verify(_read(_VBIOS))
    require_rim(driver, kind="driver", product="GH100", version="550.90.07")
    require_rim(vbios, kind="vbios", product="GH100", version="96.00.9f.00.01")

    for rim, kind, product, version, code in (
        (driver, "vbios", "GH100", "550.90.07", "rim_kind"),
        (driver, "driver", "GB100", "550.90.07", "rim_kind"),
        (driver, "driver", "GH100", "550.90.08", "rim_version"),
        (driver, "driver", "GH100", "550.90", "rim_version"),
        (driver, "driver", "GH100", "", "rim_version"),
        (vbios, "driver", "GH100", "96.00.9F.00.01", "rim_kind"),
    ):
        with pytest.raises(AttestationError) as caught:
            require_rim(rim, kind=kind, product=product, version=version)  # type: ignore[arg-type]
        assert caught.value.code == code


@_NAMES
def test_any_flipped_bit_is_refused() -> None:
    data = _read(_DRIVER)

    for number, offset in enumerate(range(0, len(data), _FLIP_EVERY)):
        changed = flip_bit(data, 8 * offset + number % 8)
        try:
            _verify(changed)
        except AttestationError:
            continue
        pytest.fail(f"byte {offset} may be changed")


def _mutated(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One to four random changes: bytes, whole tags, pieces of another genuine RIM."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice((1, 2, 8, 64, 1024, 8192)))
        piece = bytes(changed[start:end])
        match rng.randrange(7):
            case 0:
                changed[start:end] = rng.randbytes(len(piece))
            case 1:
                del changed[start:end]
            case 2:
                changed[start:start] = piece * rng.randint(1, 3)
            case 3:
                changed[start:end] = other[start:end]
            case 4:
                changed[start:start] = rng.choice(_PIECES)
            case 5:
                changed[start:end] = piece[::-1]
            case _:
                to = rng.randrange(len(changed) + 1)
                changed[to:to] = piece
    return bytes(changed)


_PIECES = (
    b"<!-- -->",
    b"<![CDATA[",
    b"<?p?>",
    b"&amp;",
    b"&#0;",
    b"&x;",
    b"<a>",
    b"</ns0:Payload>",
    b"<ds:Signature/>",
    b"xmlns=''",
    b' xml:space="preserve"',
    b"\0",
    b"\xff\xfe",
    b"\xf0\x9f\x98\x80",
    b"<" * 500,
    b"<a " * 200,
)


@_NAMES
def test_mutations_raise_only_our_errors_at_bounded_cost() -> None:
    rng = random.Random(20260301)
    data, other = _read(_DRIVER), _read(_VBIOS)
    genuine = _verify(data)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    num_refused = 0

    for _ in range(_NUM_MUTATIONS):
        changed = _mutated(rng, data, other)
        try:
            rim = _verify(changed)
        except AttestationError:
            num_refused += 1
            continue
        assert rim.entries == genuine.entries, "accepted, so nothing that counts has changed"
        assert (rim.kind, rim.product, rim.version) == ("driver", "GH100", "550.90.07")

    assert num_refused > 0.95 * _NUM_MUTATIONS
    assert time.process_time() - started < _MAX_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < _MAX_GROWTH_KIB


def test_ids() -> None:
    assert driver_rim_id("HOPPER", "550.90.07", chip=None) == "NV_GPU_DRIVER_GH100_550.90.07"
    assert driver_rim_id("HOPPER", "550.90.07", chip="GB100") == "NV_GPU_DRIVER_GH100_550.90.07"
    assert driver_rim_id("BLACKWELL", "575.32", chip=None) == "NV_GPU_CC_DRIVER_GB100_575.32"
    assert driver_rim_id("BLACKWELL", "575.32", chip="GB202") == "NV_GPU_CC_DRIVER_GB202_575.32"
    assert (
        vbios_rim_id(
            project="1010", project_sku="0200", chip_sku="882", vbios_version="96.00.9f.00.01"
        )
        == "NV_GPU_VBIOS_1010_0200_882_96009F0001"
    )
    assert (
        vbios_rim_id(
            project="g525", project_sku="0220", chip_sku="886", vbios_version="97.00.e4.00.1e"
        )
        == "NV_GPU_VBIOS_G525_0220_886_9700E4001E"
    )
    assert switch_rim_id("96.10.55.00.01") == "NV_SWITCH_BIOS_5612_0002_890_9610550001"


@pytest.mark.parametrize(
    "part", ["", "a/b", "..", "550.90.07/../x", "550 90", "5\n", "é", "9" * 40]
)
def test_an_id_holds_no_strange_part(part: str) -> None:
    """Ids go into URLs, and their parts come from a device."""
    makers: tuple[Callable[[], str], ...] = (
        lambda: driver_rim_id("HOPPER", part, chip=None),
        lambda: driver_rim_id("BLACKWELL", "575.32", chip=part or "/"),
        lambda: vbios_rim_id(project=part, project_sku="0", chip_sku="0", vbios_version="1.2"),
        lambda: vbios_rim_id(project="0", project_sku="0", chip_sku="0", vbios_version=part),
        lambda: switch_rim_id(part),
    )
    for make in makers:
        with pytest.raises(AttestationError) as caught:
            make()
        assert caught.value.code == "format"


def _answer(**changes: object) -> bytes:
    rim = b"<r/>"
    answer = {
        "id": "NV_X",
        "rim": base64.b64encode(rim).decode(),
        "sha256": hashlib.sha256(rim).hexdigest(),
        "rim_format": "TCG",
    }
    return json.dumps({**answer, **changes}).encode()


def test_an_answer_of_the_service() -> None:
    encoded = base64.b64encode(b"<r/>")

    assert parse_rim_answer(_answer(), rim_id="NV_X") == b"<r/>"
    assert (
        parse_rim_answer(_answer(sha256=hashlib.sha256(encoded).hexdigest()), rim_id="NV_X")
        == b"<r/>"
    )


@pytest.mark.parametrize(
    "answer",
    [
        _answer(id="NV_Y"),
        _answer(rim="PHIvPg"),
        _answer(rim=""),
        _answer(rim=None),
        _answer(sha256="00" * 32),
        _answer(sha256=None),
        _answer(rim="é"),
        b"{}",
        b"[]",
        b"",
        b" " * 600_000,
    ],
)
def test_an_answer_that_is_not_whole(answer: bytes) -> None:
    with pytest.raises(AttestationError) as caught:
        parse_rim_answer(answer, rim_id="NV_X")

    assert caught.value.code == "format"
