"""Which EPYC product line is this, and how does it lay out its TCB?  [AMD 56860, AMD 57230]"""

from dataclasses import dataclass, fields

from attestation.errors import MalformedEvidence, UnsupportedEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcb:
    """Security patch levels of one TCB_VERSION; ``fmc`` is Turin's alone and 0 elsewhere."""

    boot_loader: int
    tee: int
    snp: int
    microcode: int
    fmc: int = 0

    def __str__(self) -> str:
        return " ".join(f"{part.name}={getattr(self, part.name)}" for part in fields(self))

    def below(self, floor: "Tcb") -> tuple[str, ...]:
        """The components that are lower than in ``floor``; a TCB is no single number."""
        return tuple(
            component.name
            for component in fields(self)
            if getattr(self, component.name) < getattr(floor, component.name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLine:
    """What differs between product lines.

    ``tcb_bytes`` maps a component to its byte in TCB_VERSION, all other bytes are reserved.
    ``models`` are (family, first model, last model) of CPUID.
    """

    name: str
    struct_version: int
    hwid_bytes: int
    tcb_bytes: tuple[tuple[str, int], ...]
    models: tuple[tuple[int, int, int], ...]

    def parse_tcb(self, raw: bytes) -> Tcb:
        """TCB_VERSION of 8 bytes.  Raises: MalformedEvidence("format"): a reserved byte is set."""
        used = {index for _, index in self.tcb_bytes}
        if any(byte for index, byte in enumerate(raw) if index not in used):
            raise MalformedEvidence("format", f"TCB version: reserved byte set for {self.name}")
        return Tcb(**{component: raw[index] for component, index in self.tcb_bytes})


_MILAN_TCB = (("boot_loader", 0), ("tee", 1), ("snp", 6), ("microcode", 7))
_TURIN_TCB = (("fmc", 0), ("boot_loader", 1), ("tee", 2), ("snp", 3), ("microcode", 7))

MILAN = ProductLine(
    name="Milan",
    struct_version=0,
    hwid_bytes=64,
    tcb_bytes=_MILAN_TCB,
    models=((0x19, 0x00, 0x0F),),
)
GENOA = ProductLine(
    name="Genoa",
    struct_version=0,
    hwid_bytes=64,
    tcb_bytes=_MILAN_TCB,
    models=((0x19, 0x10, 0x1F), (0x19, 0xA0, 0xAF)),  # 0xA0: Bergamo and Siena, on Genoa's keys
)
TURIN = ProductLine(
    name="Turin",
    struct_version=1,
    hwid_bytes=8,
    tcb_bytes=_TURIN_TCB,
    models=((0x1A, 0x00, 0x1F),),
)
PRODUCTS = {product.name: product for product in (MILAN, GENOA, TURIN)}

# The CAs that AMD's key server hands out under the three roots. Genoa's first ASK, serial number
# 0x20001, is revoked and not among them.  [https://kdsintf.amd.com/{vcek,vlek}/v1/*/cert_chain]
SIGNING_CAS = frozenset(
    {
        "67d303bd3905fd38db8b20e0793699870e7fa612eaad5dec358293fd8c0bac1b",  # SEV-Milan
        "c5e081f59b7efab1fe2f8b505e159704e72f29cab7ef7cf628a05a42439082f5",  # SEV-VLEK-Milan
        "5464738c1546aed5f2cecf1dc98c5c960a92e8913238a61711bc90ec6e828521",  # SEV-Genoa
        "197e610743a917d6b9bb982a5a9226ccc0a15b611be0619e626aca9151457372",  # SEV-VLEK-Genoa
        "5b77ef5fe7a7a004fd9032668fba9d0fda22f88c4442069a479636a6ae3b3185",  # SEV-Turin
        "104e10a8bd060a3c20a434261a57d0588fd65a88915b4f65b08bdecaf8df1a3c",  # SEV-VLEK-Turin
    }
)


def product_of_cpuid(family: int, model: int) -> ProductLine:
    """Raises: UnsupportedEvidence("unsupported_tee"): a processor that none of the lines has."""
    for product in PRODUCTS.values():
        if any(family == f and first <= model <= last for f, first, last in product.models):
            return product
    raise UnsupportedEvidence(
        "unsupported_tee", f"CPUID family {family:#x} model {model:#x}: no product line we know"
    )
