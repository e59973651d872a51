"""One fault each: what was changed, signed again where it is signed, and the one code it gives."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from attestation.snp.product import MILAN, TURIN
from attestation.snp.vcek import CSP_ID, HWID, PRODUCT_NAME, SPLS, STRUCT_VERSION
from tests.attestation.snp.samples import Evidence, evidence
from tests.support.fake_snp import (
    CHIP_ID,
    LEVELS,
    FakeSnp,
    der_integer,
    der_text,
    pem,
    rsa_key,
    sign_report,
    vek_key,
)

_DAY = timedelta(days=1)
_GOOD = FakeSnp()
_VLEK = FakeSnp(kind="VLEK")
_ANY_CHIP: dict[str, Any] = {"chip_ids": None}
_NO_VALUES = {"mode": "not_checked"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """``code`` None: it is accepted, and shows that nothing more is refused than should be."""

    change: str
    code: str | None
    make: Callable[[], Evidence]


def _report(change: str, code: str | None, tee: FakeSnp = _GOOD, **changes: Any) -> Case:
    return Case(change=change, code=code, make=lambda: evidence(tee, report=tee.report(**changes)))


def _byte(change: str, code: str, at: int, value: int = 1, **changes: Any) -> Case:
    def edit(raw: bytearray) -> None:
        raw[at] = value

    return Case(
        change=change, code=code, make=lambda: evidence(report=_GOOD.report(edit=edit, **changes))
    )


def _tee(change: str, code: str | None, **changes: Any) -> Case:
    return Case(change=change, code=code, make=lambda: evidence(replace(_GOOD, **changes)))


def _vlek(change: str, code: str | None, policy: dict[str, Any], **changes: Any) -> Case:
    return Case(
        change=change,
        code=code,
        make=lambda: evidence(replace(_VLEK, **changes), policy=policy),
    )


def _extension(
    change: str, code: str | None, oid: x509.ObjectIdentifier, value: bytes | None
) -> Case:
    return _tee(change, code, extensions={oid: value})


def _with(change: str, code: str | None, **changes: Callable[[], Any]) -> Case:
    return Case(
        change=change,
        code=code,
        make=lambda: evidence(**{name: make() for name, make in changes.items()}),
    )


def _policy(change: str, code: str | None, **changes: Any) -> Case:
    return Case(change=change, code=code, make=lambda: evidence(policy=changes))


def _tcb(change: str, field: str, component: str) -> Case:
    lower: dict[str, Any] = {field: _GOOD.tcb(**{component: LEVELS[component] - 1})}
    return _report(change, "tcb_floor", **lower)


def _tcb_bytes(field: str) -> dict[str, Any]:
    return {field: b"\x0a\1\1\0\0\0\x1b\x54"}


def _at(change: str, code: str, at: datetime, tee: FakeSnp = _GOOD) -> Case:
    return Case(change=change, code=code, make=lambda: evidence(tee, at=at))


def _big_endian() -> bytes:
    raw = _GOOD.report()
    return (
        raw[:0x2A0]
        + raw[0x2A0:0x2D0][::-1]
        + raw[0x2D0:0x2E8]
        + raw[0x2E8:0x318][::-1]
        + raw[0x318:]
    )


_FORMAT = (
    _with("cut short", "format", report=lambda: _GOOD.report()[:-1]),
    _with("one byte more", "format", report=lambda: _GOOD.report() + b"\0"),
    _with(
        "an ioctl buffer not taken apart",
        "format",
        report=lambda: _GOOD.report().ljust(4000, b"\0"),
    ),
    _report("version 1", "unsupported_version", version=1),
    _report("version 6", "unsupported_version", version=6),
    _report("another algorithm", "unsupported_algorithm", signature_algo=2),
    _report("signed by no key", "signing_key", flags=7 << 2),
    _report("signed by a reserved key", "signing_key", flags=2 << 2),
    _report("a reserved flag", "format", flags=1 << 5),
    _byte("reserved byte 04c", "format", 0x04C),
    _byte("reserved byte 04f", "format", 0x04F),
    _byte("reserved byte 18b", "format", 0x18B),
    _byte("reserved byte 19f", "format", 0x19F),
    _byte("reserved byte 1eb", "format", 0x1EB),
    _byte("reserved byte 1ef", "format", 0x1EF),
    _byte("reserved byte 208", "format", 0x208),
    _byte("reserved byte 29f", "format", 0x29F),
    _byte("a processor in version 2", "format", 0x188, 0x19, version=2, cpuid=bytes(3)),
    _report("launch mitigations in version 4", "format", version=4, launch_mit_vector=1),
    _report("current mitigations in version 4", "format", version=4, current_mit_vector=1),
    _byte("r longer than the curve", "format", 0x2D0),
    _byte("s longer than the curve", "format", 0x318),
    _byte("a byte behind the signature", "format", 0x330),
    _byte("the last byte", "format", 0x49F),
    *(
        _report(f"reserved byte in {name}", "format", **_tcb_bytes(name))
        for name in ("current_tcb", "reported_tcb", "committed_tcb", "launch_tcb")
    ),
)
_CHAIN = (
    _with("no certificate of the issuing CA", "chain", chain=lambda: pem(_GOOD.ark())),
    _with("root first", "chain_order", chain=lambda: pem(_GOOD.ark()) + pem(_GOOD.issuer())),
    _with("chain twice", "chain", chain=lambda: _GOOD.chain() * 2),
    _with("no chain", "chain", chain=lambda: b""),
    _with("not a chain", "format", chain=lambda: b"ARK"),
    _with("no certificate of the key", "format", vek=lambda: b""),
    _with("two certificates of the key", "chain", vek=lambda: pem(_GOOD.vek()) * 2),
    _with("the key's certificate in PEM", None, vek=lambda: pem(_GOOD.vek())),
    _tee("a look-alike root", "untrusted_root", root_key="other", signer_of_issuer="other"),
    _tee("issuing CA not signed by the root", "chain_signature", signer_of_issuer="other"),
    _tee("key not signed by the issuing CA", "chain_signature", signer_of_vek="other"),
    _tee("key issued by another CA", "chain_signature", vek_issuer="SEV-Milan"),
    _tee("issuing CA is no CA", "chain", issuer_is_ca=False),
    _tee("key on P-256", "bad_key", vek_public_key=vek_key("p256", ec.SECP256R1).public_key()),
    _tee("an RSA key", "bad_key", vek_public_key=rsa_key("other").public_key()),
)
_IDENTITY = (
    _tee("key named otherwise", "signer_role", vek_name="SEV-VCEK2"),
    _with(
        "a VLEK issued by the ASK",
        "signer_role",
        vek=lambda: replace(_VLEK, vek_issuer="SEV-Genoa").vek(),
        report=_VLEK.report,
    ),
    _extension("of another product", "signer_role", PRODUCT_NAME, der_text("Milan-B0")),
    _extension("of a product with a like name", "signer_role", PRODUCT_NAME, der_text("Genoa2")),
    _extension("a stepping in the name", None, PRODUCT_NAME, der_text("Genoa-B1")),
    _extension("product name of another type", "format", PRODUCT_NAME, b"\x0c\5Genoa"),
    _extension("product name unprintable", "format", PRODUCT_NAME, der_text("Genoa\n")),
    _extension("of another structure", "signer_role", STRUCT_VERSION, der_integer(1)),
    *(
        _extension(f"without {name}", "format", oid, None)
        for name, oid in (
            ("structure version", STRUCT_VERSION),
            ("product name", PRODUCT_NAME),
            ("hwID", HWID),
            ("boot loader level", SPLS["boot_loader"]),
            ("TEE level", SPLS["tee"]),
            ("SNP level", SPLS["snp"]),
            ("microcode level", SPLS["microcode"]),
        )
    ),
    Case(
        change="Turin without FMC level",
        code="format",
        make=lambda: evidence(FakeSnp(product=TURIN, extensions={SPLS["fmc"]: None})),
    ),
    _extension("a level not minimal", "format", SPLS["snp"], b"\2\2\0\x1b"),
    _extension("a level negative", "format", SPLS["snp"], b"\2\1\x9b"),
    _extension("a level above a byte", "format", SPLS["snp"], der_integer(256)),
    _extension("a level with a byte more", "format", SPLS["snp"], der_integer(27) + b"\0"),
    _extension("a level of another type", "format", SPLS["snp"], b"\x0a\1\x1b"),
    _extension("a hwID in an OCTET STRING", None, HWID, b"\x04\x40" + CHIP_ID),
    _extension("a hwID cut short", "format", HWID, CHIP_ID[:-1]),
    _extension("a short hwID in an OCTET STRING", "format", HWID, b"\x04\x3f" + CHIP_ID[:-1]),
    _extension("a hwID and a byte more", "format", HWID, b"\x04\x40" + CHIP_ID + b"\0"),
    _extension("a VCEK with a provider", "format", CSP_ID, der_text("CN=x")),
    _vlek("a VLEK with a hwID", "format", _ANY_CHIP, extensions={HWID: CHIP_ID}),
    _vlek("a VLEK without a provider", "format", _ANY_CHIP, extensions={CSP_ID: None}),
    _vlek("a long provider", None, _ANY_CHIP, extensions={CSP_ID: b"\x16\x81\x80" + b" " * 128}),
    _vlek(
        "too long a provider",
        "format",
        _ANY_CHIP,
        extensions={CSP_ID: b"\x16\x81\x81" + b"x" * 129},
    ),
    _vlek("a VLEK with an empty provider", "format", _ANY_CHIP, extensions={CSP_ID: b"\x16\0"}),
)
_REVOCATION = (
    _with("issuing CA revoked", "certificate_revoked", crl=lambda: _GOOD.crl(revoked=[0x11])),
    _with("another CA revoked", None, crl=lambda: _GOOD.crl(revoked=[0x12, 0x110])),
    _with("CRL not signed by the root", "crl_signature", crl=lambda: _GOOD.crl(signer="ask")),
    _with("CRL of another line", "crl_issuer", crl=FakeSnp(product=MILAN).crl),
    _with("an empty CRL", "crl_missing", crl=lambda: b""),
    _with("no CRL", "crl_missing", crl=lambda: None),
    _with("CRL expired", "crl_expired", crl=lambda: _GOOD.crl(next_update=evidence().at)),
    _with(
        "CRL not yet valid",
        "collateral_not_yet_valid",
        crl=lambda: _GOOD.crl(last_update=evidence().at + _DAY),
    ),
)
_REPORT = (
    _report("a VLEK's report with a VCEK", "signing_key", flags=1 << 2),
    _vlek("a VLEK", None, _ANY_CHIP),
    _vlek("a VLEK where chips are listed", "platform_not_allowed", {}),
    Case(
        change="a VCEK's report with a VLEK",
        code="signing_key",
        make=lambda: evidence(_VLEK, report=_GOOD.report()),
    ),
    _with(
        "signed by another key",
        "report_signature",
        report=lambda: sign_report(_GOOD.report(), vek_key("another")),
    ),
    _with("r and s the other way round", "report_signature", report=_big_endian),
    _with(
        "a signature of zeros",
        "report_signature",
        report=lambda: _GOOD.report()[:0x2A0] + bytes(0x200),
    ),
    _report("from a Milan processor", "hwid_mismatch", cpuid=bytes((0x19, 0x01, 1))),
    _report("from a Turin processor", "hwid_mismatch", cpuid=bytes((0x1A, 0x02, 1))),
    _report("from a Bergamo processor", None, cpuid=bytes((0x19, 0xA0, 2))),
    _report("from an unknown processor", "unsupported_tee", cpuid=bytes((0x19, 0x20, 0))),
    _report("from another chip", "hwid_mismatch", chip_id=CHIP_ID[:-1] + b"\0"),
    _report("chip masked in the report", None, chip_id=bytes(64)),
    _report("chip key masked", None, flags=0b10),
    _report("version 2", None, version=2, cpuid=bytes(3)),
    _report("version 3", None, version=3),
    _report("version 4", None, version=4),
    _report("mitigations in version 5", None, launch_mit_vector=3, current_mit_vector=7),
    Case(change="a Milan chip", code=None, make=lambda: evidence(FakeSnp(product=MILAN))),
    Case(change="a Turin chip", code=None, make=lambda: evidence(FakeSnp(product=TURIN))),
    Case(
        change="another Turin chip",
        code="hwid_mismatch",
        make=lambda: evidence(
            FakeSnp(product=TURIN),
            report=FakeSnp(product=TURIN).report(chip_id=CHIP_ID[:9].ljust(64, b"\0")),
        ),
    ),
    *(
        Case(
            change=f"key for another {name} level",
            code="tcb_mismatch",
            make=lambda name=name: evidence(  # type: ignore[misc]
                FakeSnp(product=TURIN),
                vek=FakeSnp(product=TURIN, levels=LEVELS | {name: LEVELS[name] + 1}).vek(),
            ),
        )
        for name in LEVELS
    ),
    _at(
        "before the key was issued",
        "certificate_time",
        datetime.fromisoformat("2026-11-30T11:59:59Z"),
        replace(_GOOD, vek_not_before=datetime.fromisoformat("2026-11-30T12:00:00Z")),
    ),
    _at(
        "after the key ended",
        "certificate_time",
        datetime.fromisoformat("2026-12-02T12:00:01Z"),
        replace(_GOOD, vek_not_after=datetime.fromisoformat("2026-12-02T12:00:00Z")),
    ),
)
_RULES = (
    _policy("product line refused", "product_refused", products=["Milan", "Turin"]),
    _report("debug on", "debug_enabled", policy=0x12_0137 | 1 << 19),
    _report("fixed policy bit clear", "guest_policy", policy=0x10_0137),
    _report("unknown policy bit", "guest_policy", policy=0x12_0137 | 1 << 26),
    _report("migration agent allowed", "guest_policy", policy=0x12_0137 | 1 << 18),
    _report("SMT allowed", "guest_policy", policy=0x12_0137 | 1 << 16),
    _report("two sockets allowed", "guest_policy", policy=0x02_0137),
    _report("SMT on", "platform_info", platform_info=0x25),
    _report("TSME on", "platform_info", platform_info=0x26),
    _report("no alias check", "platform_info", platform_info=0x04),
    _report("no ECC", "platform_info", platform_info=0x20),
    _report("a platform bit that we do not know", None, platform_info=0x64),
    _report("VMPL 1", "vmpl", vmpl=1),
    _report("asked for by the host", "vmpl", vmpl=0xFFFFFFFF),
    _report("older guest", "claims", guest_svn=1),
    *(
        _tcb(f"{field} behind in {component}", field, component)
        for field in ("committed_tcb", "launch_tcb")
        for component in ("boot_loader", "tee", "snp", "microcode")
    ),
    *(
        Case(
            change=f"reported_tcb behind in {name}",
            code="tcb_floor",
            make=lambda name=name: _reported_behind(name),  # type: ignore[misc]
        )
        for name in LEVELS
    ),
    _report("another measurement", "measurement_mismatch", measurement=b"\7" * 48),
    _report("another of the measurements", None, measurement=bytes(48)),
    _report("other host data", "measurement_mismatch", host_data=b"\7" * 32),
    _report("another ID key", "measurement_mismatch", id_key_digest=b"\7" * 48),
    _report("another author key", "measurement_mismatch", author_key_digest=b"\7" * 48),
    _report("another family", "measurement_mismatch", family_id=b"\7" * 16),
    _report("another image", "measurement_mismatch", image_id=b"\7" * 16),
    _tee("a chip that is not listed", "platform_not_allowed", chip_id=CHIP_ID[::-1]),
    _policy("issuing CA not listed", "chain", signing_cas="listed"),
    _policy("measurements not checked", None, measurements=_NO_VALUES),
)


def _reported_behind(component: str) -> Evidence:
    """The VCEK is for the lower TCB, so that only the floor can refuse it."""
    tee = FakeSnp(product=TURIN, levels=LEVELS | {component: LEVELS[component] - 1})
    tcb = FakeSnp(product=TURIN).tcb()
    return evidence(tee, report=tee.report(committed_tcb=tcb, launch_tcb=tcb))


CASES = (*_FORMAT, *_CHAIN, *_IDENTITY, *_REVOCATION, *_REPORT, *_RULES)
