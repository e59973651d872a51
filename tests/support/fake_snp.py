"""Who signs for the FAKE SNP platform?  An ARK, ASK, ASVK, VCEKs and reports of our own making.

The keys are public (``fake_snp_primes.json`` and a constant), so a signature under them proves
nothing. Everything is deterministic: the vectors made from it can be compared byte by byte.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestation.anchors import Anchor, TrustAnchors
from attestation.snp.product import GENOA, ProductLine
from attestation.snp.report import REPORT_BYTES, SIGNED_BYTES, SigningKey
from attestation.snp.vcek import CSP_ID, HWID, PRODUCT_NAME, SPLS, STRUCT_VERSION

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
CHIP_ID = bytes(range(1, 65))
LEVELS = {"boot_loader": 10, "tee": 1, "snp": 27, "microcode": 84, "fmc": 2}
MEASUREMENT = bytes(range(48))
CPUID = {"Milan": (0x19, 0x01, 1), "Genoa": (0x19, 0x11, 1), "Turin": (0x1A, 0x02, 1)}
OFFSETS = {  # of the fields that tests change -> (offset, bytes)
    "version": (0x000, 4),
    "guest_svn": (0x004, 4),
    "policy": (0x008, 8),
    "family_id": (0x010, 16),
    "image_id": (0x020, 16),
    "vmpl": (0x030, 4),
    "signature_algo": (0x034, 4),
    "current_tcb": (0x038, 8),
    "platform_info": (0x040, 8),
    "flags": (0x048, 4),
    "report_data": (0x050, 64),
    "measurement": (0x090, 48),
    "host_data": (0x0C0, 32),
    "id_key_digest": (0x0E0, 48),
    "author_key_digest": (0x110, 48),
    "reported_tcb": (0x180, 8),
    "cpuid": (0x188, 3),
    "chip_id": (0x1A0, 64),
    "committed_tcb": (0x1E0, 8),
    "launch_tcb": (0x1F0, 8),
    "launch_mit_vector": (0x1F8, 8),
    "current_mit_vector": (0x200, 8),
}
_PRIMES = json.loads(Path(__file__).with_name("fake_snp_primes.json").read_text())
_PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
_SERIAL = b"\xa0\3\2\1\2\2\1"  # version 3, then the header of a serial number of one byte
_NOT_BEFORE, _NOT_AFTER = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """ "ark", "ask" (of ASVKs too), "other" of nobody, "ak" of a TPM; all public."""
    p, q = (int(_PRIMES[name][prime], 16) for prime in ("p", "q"))
    e = 65537
    d = rsa.rsa_recover_private_exponent(e, p, q)
    numbers = rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=d,
        dmp1=d % (p - 1),
        dmq1=d % (q - 1),
        iqmp=pow(q, -1, p),
        public_numbers=rsa.RSAPublicNumbers(e=e, n=p * q),
    )
    return numbers.private_key()


@cache
def vek_key(
    name: str = "vek", curve: type[ec.EllipticCurve] = ec.SECP384R1
) -> ec.EllipticCurvePrivateKey:
    """The key of that name, as public as its name."""
    digest = hashlib.sha512(b"FAKE SNP, public: " + name.encode()).digest()
    return ec.derive_private_key(int.from_bytes(digest, "big") % (2**255), curve())


@dataclass(frozen=True, kw_only=True)
class FakeSnp:
    """One platform; a test changes the one thing it is about.

    ``extensions`` replaces AMD's extensions of the VEK by their DER, None leaves one out.
    """

    product: ProductLine = GENOA
    kind: SigningKey = "VCEK"
    chip_id: bytes = CHIP_ID
    levels: Mapping[str, int] = field(default_factory=lambda: LEVELS)
    extensions: Mapping[x509.ObjectIdentifier, bytes | None] = field(default_factory=dict)
    vek_name: str = ""
    vek_issuer: str = ""
    vek_public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey | None = None
    vek_not_before: datetime = _NOT_BEFORE
    vek_not_after: datetime = _NOT_AFTER
    issuer_is_ca: bool = True
    signer_of_vek: str = "ask"
    signer_of_issuer: str = "ark"
    root_key: str = "ark"
    root_name: str = ""

    def ark(self) -> bytes:
        """DER of the self-signed root."""
        return self._issue(
            self._root_name(),
            self._root_name(),
            key=rsa_key(self.root_key).public_key(),
            signer=self.root_key,
            serial=0x10,
            is_ca=True,
        )

    def issuer(self) -> bytes:
        """DER of the ASK, or of the ASVK for a VLEK."""
        return self._issue(
            self._issuer_name(),
            self._root_name(),
            key=rsa_key("ask").public_key(),
            signer=self.signer_of_issuer,
            serial=0x11,
            is_ca=self.issuer_is_ca,
        )

    def vek(self) -> bytes:
        """DER of the VCEK or VLEK, serial number 0."""
        return self._issue(
            self.vek_name or f"SEV-{self.kind}",
            self.vek_issuer or self._issuer_name(),
            key=self.vek_public_key or vek_key().public_key(),
            signer=self.signer_of_vek,
            serial=0,
            is_ca=None,
            extensions=self._amd_extensions(),
            dates=(self.vek_not_before, self.vek_not_after),
        )

    def chain(self) -> bytes:
        """PEM of ASK or ASVK, then ARK."""
        return pem(self.issuer()) + pem(self.ark())

    def crl(
        self,
        *,
        revoked: Iterable[int] = (),
        issuer: str = "",
        signer: str = "ark",
        last_update: datetime = _NOT_BEFORE,
        next_update: datetime = _NOT_AFTER,
    ) -> bytes:
        """DER of the ARK's CRL."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(issuer or self._root_name()))
            .last_update(last_update)
            .next_update(next_update)
        )
        for serial in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial)
            builder = builder.add_revoked_certificate(entry.revocation_date(last_update).build())
        crl = builder.sign(rsa_key(signer), hashes.SHA384(), rsa_padding=_PSS)
        signature = sign_pss(signer, crl.tbs_certlist_bytes)
        return crl.public_bytes(Encoding.DER).replace(crl.signature, signature)

    def tcb(self, **changes: int) -> bytes:
        """TCB_VERSION of this product line, 8 bytes."""
        raw = bytearray(8)
        for component, index in self.product.tcb_bytes:
            raw[index] = changes.get(component, self.levels[component])
        return bytes(raw)

    def report(
        self, *, edit: Callable[[bytearray], None] | None = None, **changes: object
    ) -> bytes:
        """A signed report; ``changes`` by field name (int or bytes), ``edit`` any byte of it."""
        tcb = self.tcb()
        chip_id = self.chip_id[: self.product.hwid_bytes].ljust(64, b"\0")
        values: dict[str, object] = {
            "version": 5,
            "guest_svn": 2,
            "policy": 0x12_0137,
            "family_id": b"\1" * 16,
            "image_id": b"\2" * 16,
            "signature_algo": 1,
            "current_tcb": tcb,
            "platform_info": 0x24,
            "flags": 0 if self.kind == "VCEK" else 1 << 2,
            "report_data": b"\3" * 64,
            "measurement": MEASUREMENT,
            "host_data": b"\4" * 32,
            "id_key_digest": b"\5" * 48,
            "author_key_digest": b"\6" * 48,
            "reported_tcb": tcb,
            "cpuid": bytes(CPUID[self.product.name]),
            "chip_id": chip_id if self.kind == "VCEK" else bytes(64),
            "committed_tcb": tcb,
            "launch_tcb": tcb,
            **changes,
        }
        raw = bytearray(REPORT_BYTES)
        for name, value in values.items():
            offset, size = OFFSETS[name]
            raw[offset : offset + size] = (
                value if isinstance(value, bytes) else int(str(value)).to_bytes(size, "little")
            )
        if edit is not None:
            edit(raw)
        return sign_report(bytes(raw))

    def _root_name(self) -> str:
        return self.root_name or f"ARK-{self.product.name}"

    def _issuer_name(self) -> str:
        return f"SEV-{'VLEK-' if self.kind == 'VLEK' else ''}{self.product.name}"

    def _amd_extensions(self) -> dict[x509.ObjectIdentifier, bytes]:
        made: dict[x509.ObjectIdentifier, bytes | None] = {
            STRUCT_VERSION: der_integer(self.product.struct_version),
            PRODUCT_NAME: der_text(self.product.name),
            **{SPLS[name]: der_integer(self.levels[name]) for name, _ in self.product.tcb_bytes},
        }
        if self.kind == "VCEK":
            made[HWID] = self.chip_id[: self.product.hwid_bytes]
        else:
            made[CSP_ID] = der_text("CN=fake.provider.example")
        made |= self.extensions
        return {oid: value for oid, value in made.items() if value is not None}

    def _issue(
        self,
        subject: str,
        issuer: str,
        *,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        signer: str,
        serial: int,
        is_ca: bool | None,
        extensions: Mapping[x509.ObjectIdentifier, bytes] | None = None,
        dates: tuple[datetime, datetime] = (_NOT_BEFORE, _NOT_AFTER),
    ) -> bytes:
        """``serial`` of one byte. ``is_ca`` None: an end entity without either extension."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(key)
            .serial_number(serial or 1)
            .not_valid_before(dates[0])
            .not_valid_after(dates[1])
        )
        if is_ca is not None:
            builder = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
            builder = builder.add_extension(_CA_USAGE, critical=True)
        for oid, value in (extensions or {}).items():
            unrecognized = x509.UnrecognizedExtension(oid, value)
            builder = builder.add_extension(unrecognized, critical=False)
        made = builder.sign(rsa_key(signer), hashes.SHA384(), rsa_padding=_PSS)
        tbs = made.tbs_certificate_bytes
        wanted = tbs.replace(_SERIAL + bytes([serial or 1]), _SERIAL + bytes([serial]), 1)
        encoded = made.public_bytes(Encoding.DER).replace(tbs, wanted)
        return encoded.replace(made.signature, sign_pss(signer, wanted))


def anchors(*platforms: FakeSnp) -> TrustAnchors:
    """The fake ARKs of these platforms, as the only roots there are."""
    return TrustAnchors(
        anchors=tuple(
            Anchor(
                name=f"fake-ark-{tee.product.name.lower()}",
                kind="fake",
                family="amd-ark",
                sha256=hashlib.sha256(tee.ark()).hexdigest(),
                source="tests/support/fake_snp.py",
            )
            for tee in platforms
        )
    )


def sign_report(raw: bytes, key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    """``raw`` with r and s of its first 0x2A0 bytes; what else is behind them stays."""
    signed = raw[:SIGNED_BYTES]
    algorithm = ec.ECDSA(hashes.SHA384(), deterministic_signing=True)
    r, s = decode_dss_signature((key or vek_key()).sign(signed, algorithm))
    scalars = r.to_bytes(48, "little"), s.to_bytes(48, "little")
    return b"".join((signed, scalars[0], raw[0x2D0:0x2E8], scalars[1], raw[0x318:]))


@cache
def sign_pss(name: str, data: bytes) -> bytes:
    """RSASSA-PSS with SHA-384 and a salt that is always the same  [RFC 8017 sec. 9.1.1]."""
    numbers = rsa_key(name).private_numbers()
    n = numbers.public_numbers.n
    num_bytes = (n.bit_length() + 7) // 8
    salt = hashlib.sha384(b"salt" + data).digest()
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(data).digest() + salt).digest()
    block = (b"\1" + salt).rjust(num_bytes - len(digest) - 1, b"\0")
    mask = b"".join(
        hashlib.sha384(digest + counter.to_bytes(4, "big")).digest()
        for counter in range(len(block) // len(digest) + 1)
    )
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=False))
    masked[0] &= 0x7F
    encoded = int.from_bytes(bytes(masked) + digest + b"\xbc", "big")
    p, q = numbers.p, numbers.q
    mod_p, mod_q = pow(encoded, numbers.dmp1, p), pow(encoded, numbers.dmq1, q)
    return (mod_q + (mod_p - mod_q) * numbers.iqmp % p * q).to_bytes(num_bytes, "big")


def pem(encoded: bytes) -> bytes:
    """One certificate, armoured."""
    text = base64.encodebytes(encoded)
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n"


def der_integer(value: int) -> bytes:
    """INTEGER of 0..0x7FFF."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\2" + bytes([len(raw)]) + raw


def der_text(value: str) -> bytes:
    """IA5String."""
    return b"\x16" + bytes([len(value)]) + value.encode("ascii")


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
