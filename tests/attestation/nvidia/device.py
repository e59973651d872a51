"""A GPU or switch to test with: a chain and report shaped like NVIDIA's under a root of our own.

Every key derives from a public seed and every signature is deterministic, so the same device makes
the same bytes. A test changes the one thing it is about, and what is signed is signed again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID, ObjectIdentifier

from attestation.anchors import Anchor, TrustAnchors
from attestation.nvidia import opaque
from attestation.nvidia.report import REQUEST_BYTES

AT = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
NONCE = bytes(range(32))
ROOT = "Starshade TEST Device Identity CA"
_P384_ORDER = int(
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    16,
)
_NOT_BEFORE = datetime(2024, 1, 1, tzinfo=UTC)
_NOT_AFTER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
COMPOSITE_DEVICE_ID = ObjectIdentifier("2.23.133.5.4.1")
TCB_INFO = ObjectIdentifier("2.23.133.5.4.1.1")
SHA384_OID = bytes.fromhex("0609608648016503040202")
SHA256_OID = bytes.fromhex("0609608648016503040201")
FWID = hashlib.sha384(b"firmware").digest()


def tlv(tag: int, value: bytes) -> bytes:
    """DER of one element of less than 64 KB."""
    size = len(value)
    if size < 0x80:
        return bytes([tag, size]) + value
    if size < 0x100:
        return bytes([tag, 0x81, size]) + value
    return bytes([tag, 0x82]) + size.to_bytes(2, "big") + value


def fwid_element(digest: bytes, algorithm: bytes = SHA384_OID) -> bytes:
    """FWID ::= SEQUENCE { hashAlg, digest }."""
    return tlv(0x30, algorithm + tlv(0x04, digest))


def composite_device_id(fwid: bytes) -> x509.UnrecognizedExtension:
    """How Hopper and LS10 leaves name their firmware; ``fwid`` is the DER of a FWID."""
    spki = tlv(0x30, b"")  # of the device, which nothing here reads
    value = tlv(0x30, tlv(0x02, b"\1") + spki + fwid)
    return x509.UnrecognizedExtension(COMPOSITE_DEVICE_ID, value)


def tcb_info(fwids: bytes) -> x509.UnrecognizedExtension:
    """How Blackwell leaves name their firmware; ``fwids`` is the DER of all FWIDs."""
    value = tlv(0x30, tlv(0x80, b"NVIDIA") + tlv(0xA6, fwids) + tlv(0x87, bytes(5)))
    return x509.UnrecognizedExtension(TCB_INFO, value)


@dataclass(frozen=True)
class DevicePki:
    """Issues device certificates; another seed is another root."""

    seed: bytes = b"starshade TEST device root: public, anybody can sign with it"

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """The P-384 key of that name."""
        digest = hashlib.shake_256(self.seed + b"/" + name.encode()).digest(64)
        scalar = int.from_bytes(digest, "big") % (_P384_ORDER - 1) + 1
        return ec.derive_private_key(scalar, ec.SECP384R1())

    def sign(self, name: str, data: bytes) -> bytes:
        """Raw r||s, 96 bytes, by the key of that name."""
        algorithm = ec.ECDSA(hashes.SHA384(), deterministic_signing=True)
        r, s = decode_dss_signature(self.key(name).sign(data, algorithm))
        return r.to_bytes(48, "big") + s.to_bytes(48, "big")

    def issue(
        self,
        subject: str,
        issuer: str,
        *,
        is_ca: bool = True,
        serial_number: int | None = None,
        extensions: Sequence[x509.ExtensionType] = (),
        not_after: datetime = _NOT_AFTER,
        public_key: ec.EllipticCurvePublicKey | None = None,
        key_of: str | None = None,
    ) -> x509.Certificate:
        """A certificate for the key named ``key_of``, or the subject's own."""
        named = hashlib.sha256(self.seed + subject.encode()).digest()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public_key or self.key(key_of or subject).public_key())
            .serial_number(serial_number or int.from_bytes(named[:16], "big"))
            .not_valid_before(_NOT_BEFORE)
            .not_valid_after(not_after)
            .add_extension(_key_usage(is_ca), critical=True)
        )
        if is_ca:
            constraints = x509.BasicConstraints(ca=True, path_length=None)
            builder = builder.add_extension(constraints, critical=True)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key(issuer), hashes.SHA384(), ecdsa_deterministic=True)

    @property
    def root(self) -> x509.Certificate:
        """The self-signed root."""
        return self.issue(ROOT, ROOT)

    @property
    def anchors(self) -> TrustAnchors:
        """Trust in this root alone."""
        sha256 = hashlib.sha256(self.root.public_bytes(Encoding.DER)).hexdigest()
        anchor = Anchor(
            name="test", kind="vendor", family="nvidia-device", sha256=sha256, source="tests"
        )
        return TrustAnchors(anchors=(anchor,))


@dataclass(frozen=True)
class FakeDevice:
    """One device; ``number`` tells devices of one kind apart."""

    chip: str = "GH100"
    number: int = 0
    leaf_extensions: tuple[x509.ExtensionType, ...] = (composite_device_id(fwid_element(FWID)),)
    items: Mapping[int, bytes] = field(default_factory=lambda: GPU_ITEMS)
    num_blocks: int = 64
    pki: DevicePki = field(default_factory=DevicePki)

    @property
    def leaf_name(self) -> str:
        """The common name of the certificate that signs."""
        return f"{self.chip} A01 {self._engine} FMC LF"

    @property
    def boot_rom_name(self) -> str:
        """The common name of its issuer."""
        return f"{self.chip} A01 {self._engine} BROM"

    @property
    def key_name(self) -> str:
        """The name of the key that signs."""
        return f"{self.leaf_name} {self.number}"

    def certificates(self) -> list[x509.Certificate]:
        """Leaf first, root last."""
        provisioner, line = f"NVIDIA {self.chip} Provisioner ICA 1", f"NVIDIA {self.chip} Identity"
        return [
            self.leaf(),
            self.pki.issue(
                self.boot_rom_name, provisioner, serial_number=self._serial_number(0x1000)
            ),
            self.pki.issue(provisioner, line),
            self.pki.issue(line, ROOT),
            self.pki.root,
        ]

    def leaf(
        self,
        *,
        is_ca: bool = False,
        not_after: datetime = _NOT_AFTER,
        public_key: ec.EllipticCurvePublicKey | None = None,
    ) -> x509.Certificate:
        """The certificate of the key that signs reports."""
        return self.pki.issue(
            self.leaf_name,
            self.boot_rom_name,
            is_ca=is_ca,
            serial_number=self._serial_number(0x2000),
            extensions=self.leaf_extensions,
            not_after=not_after,
            public_key=public_key,
            key_of=self.key_name,
        )

    @property
    def measurements(self) -> tuple[bytes, ...]:
        """SHA-384 of what each block measures; the same for all devices of a chip."""
        return tuple(
            hashlib.sha384(f"{self.chip} block {index + 1}".encode()).digest()
            for index in range(self.num_blocks)
        )

    def signed_part(self, nonce: bytes = NONCE) -> bytes:
        """Request and response without the signature."""
        items = b"".join(item(type_id, value) for type_id, value in self.items.items())
        record = b"".join(
            block(index, value) for index, value in enumerate(self.measurements, start=1)
        )
        return b"".join(
            (
                bytes([0x11, 0xE0, 0x01, 0xFF]) + nonce + b"\0",
                bytes([0x11, 0x60, 0x00, 0x00, self.num_blocks]),
                len(record).to_bytes(3, "little") + record,
                hashlib.sha256(b"response" + nonce).digest(),
                len(items).to_bytes(2, "little") + items,
            )
        )

    def sign(self, signed_part: bytes) -> bytes:
        """The whole report for these bytes."""
        return signed_part + self.pki.sign(self.key_name, signed_part)

    def report(
        self, nonce: bytes = NONCE, change: Callable[[bytearray], object] | None = None
    ) -> bytes:
        """A signed report; ``change`` edits what is signed, before it is."""
        signed_part = bytearray(self.signed_part(nonce))
        if change is not None:
            change(signed_part)
        return self.sign(bytes(signed_part))

    @property
    def opaque_at(self) -> int:
        """Where the two length bytes of the opaque data are."""
        return RECORD_AT + 55 * self.num_blocks + 32

    def _serial_number(self, base: int) -> int:
        return base + self.number + 0x100 * (self.chip == "LS_10")

    @property
    def _engine(self) -> str:
        return "FSP" if self.chip == "LS_10" else "GSP"


RESPONSE_AT = REQUEST_BYTES
RECORD_LENGTH_AT = RESPONSE_AT + 5
RECORD_AT = RESPONSE_AT + 8


def item(type_id: int, value: bytes) -> bytes:
    """One opaque item."""
    return type_id.to_bytes(2, "little") + len(value).to_bytes(2, "little") + value


def block(index: int, value: bytes) -> bytes:
    """One measurement block of a DMTF digest."""
    size = len(value)
    header = bytes([index, 1]) + (size + 3).to_bytes(2, "little")
    return header + b"\1" + size.to_bytes(2, "little") + value


GPU_ITEMS: Mapping[int, bytes] = {
    opaque.VBIOS_VERSION: bytes.fromhex("00a5009601000000"),
    opaque.BOARD_ID: bytes(4),
    opaque.CHIP_SKU: b"885\0\0\0\0\0\0",
    opaque.PROJECT: b"G520\0",
    opaque.PROJECT_SKU: b"0200\0",
    opaque.DRIVER_VERSION: b"590.12\0",
    opaque.MEASUREMENT_COUNTS: bytes(256),
    opaque.NVDEC0_STATUS: b"\x55",
    opaque.FWID: FWID,
    opaque.PROTECTED_PCIE_STATUS: b"\x55",
    opaque.FEATURE_FLAG: b"\0\0",
}
SWITCH_PDIS = tuple(bytes([0xA0 + number]) + bytes(range(1, 8)) for number in range(4))
GPU_PDIS = tuple(bytes([0xC0 + number]) + bytes(range(1, 8)) for number in range(8))


def hopper(number: int = 0, **items: bytes) -> FakeDevice:
    """A Hopper GPU alone in its guest."""
    return FakeDevice(number=number, items={**GPU_ITEMS, **_by_type(items)})


def blackwell(number: int = 0, **items: bytes) -> FakeDevice:
    """A Blackwell GPU that shares its guest with others over encrypted NVLink."""
    own = {opaque.CHIP_INFO: b"GB100\0", opaque.FEATURE_FLAG: b"\1\0"}
    inherited = {k: v for k, v in GPU_ITEMS.items() if k != opaque.PROTECTED_PCIE_STATUS}
    return FakeDevice(
        chip="GB100",
        number=number,
        leaf_extensions=(tcb_info(fwid_element(FWID) + fwid_element(bytes(48))),),
        items={**inherited, **own, **_by_type(items)},
    )


def switch(number: int = 0, **items: bytes) -> FakeDevice:
    """One of the four switches of a board with protected PCIe."""
    own = {
        opaque.VBIOS_VERSION: b"96.10.55.00.01",
        opaque.PDIS: SWITCH_PDIS[number],
        opaque.GPU_PDIS: b"".join(GPU_PDIS) + b"\xff" * 64,
    }
    return FakeDevice(chip="LS_10", number=number, num_blocks=31, items={**own, **_by_type(items)})


def board_gpu(number: int = 0, **items: bytes) -> FakeDevice:
    """One of the eight GPUs of a board with protected PCIe; two of its links are off."""
    links = [pdi[::-1] for pdi in SWITCH_PDIS for _ in range(4)] + [bytes(8)] * 2
    own = {"protected_pcie_status": b"\xaa", "feature_flag": b"\2\0", "pdis": b"".join(links)}
    return hopper(number, **{**own, **items})


def _by_type(items: Mapping[str, bytes]) -> dict[int, bytes]:
    types = {opaque.item_name(type_id): type_id for type_id in range(256)}
    return {types[name]: value for name, value in items.items()}


def pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """PEM, in the order given."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    """x||y."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
