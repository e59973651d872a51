"""Is what a genuine SNP report claims good enough?  One small class per rule, one question each.

A rule takes verified claims and returns nothing or raises with its code.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from attestation.errors import PolicyCode, PolicyViolation, UntrustedEndorsement
from attestation.policy_table import PolicyTable, in_hex
from attestation.rules import (
    LenientRule,
    Observed,
    RegistersExpected,
    Rule,
    ValuesAllowed,
    listed,
    read_reference_values,
)
from attestation.snp.facts import REGISTERS, measurements
from attestation.snp.product import MILAN, PRODUCTS, SIGNING_CAS, ProductLine, Tcb
from attestation.snp.report import PLATFORM_BITS, POLICY_BITS, POLICY_MUST_BE_ONE
from attestation.snp.verifier import SnpClaims

MAX_VMPL = 3
MAX_LEVEL = 0xFF  # a component of a TCB is one byte
CHIP_ID_BYTES = 64
_ABI_BITS = 0xFFFF
_KNOWN_POLICY = _ABI_BITS | POLICY_MUST_BE_ONE | sum(POLICY_BITS.values())
_POLICY_CHOICES = tuple(sorted(POLICY_BITS.keys() - {"debug"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductAllowed(ValuesAllowed[SnpClaims], LenientRule):
    """The chip is of a product line that the policy names."""

    name: str = "product"
    passed: str = "the policy accepts this product line"
    code: PolicyCode = "product_refused"

    def observe(self, claims: SnpClaims) -> Observed:
        """The product line of the chip."""
        got = claims.product.name
        yield got, f"product line is {got}, want {listed(self.allowed)}"

    def conceded(self) -> tuple[str, ...]:
        """Milan, whose endorsement keys could be extracted."""
        return (f"product line {MILAN.name}",) if MILAN.name in self.allowed else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOff:
    """The guest cannot be inspected by its host."""

    name: str = "debug_off"
    passed: str = "debug is off"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("debug_enabled")."""
        if claims.report.policy & POLICY_BITS["debug"]:
            raise PolicyViolation("debug_enabled", "debug is on: the host can read its memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPolicySound:
    """POLICY has its fixed bit and no unknown one, each ``required`` bit and no ``refused`` one."""

    required: frozenset[str]
    refused: frozenset[str]
    name: str = "guest_policy"
    passed: str = "the guest policy is sound"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("guest_policy")."""
        policy = claims.report.policy
        if not policy & POLICY_MUST_BE_ONE or policy & ~_KNOWN_POLICY:
            raise PolicyViolation("guest_policy", f"POLICY {policy:#x} has a bit we do not know")
        _require_bits("guest_policy", policy, POLICY_BITS, self.required, self.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSound:
    """PLATFORM_INFO: what the machine has on, whatever the guest would have allowed.

    "alias_check" is the firmware's answer to BadRAM  [AMD-SB-3015, CVE-2024-21944].
    """

    required: frozenset[str]
    refused: frozenset[str]
    name: str = "platform_info"
    passed: str = "the platform has what the policy asks for"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("platform_info")."""
        info = claims.report.platform_info
        _require_bits("platform_info", info, PLATFORM_BITS, self.required, self.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmplAllowed:
    """The report was asked for at a privilege level of the guest, and at no lesser one.

    A report that the host asked for says 0xFFFFFFFF and never passes  [AMD 56860 sec. 7.3].
    """

    maximum: int
    name: str = "vmpl"
    passed: str = "the report is from a privileged enough level"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("vmpl")."""
        if claims.report.vmpl > min(self.maximum, MAX_VMPL):
            raise PolicyViolation(
                "vmpl", f"VMPL is {claims.report.vmpl}, want at most {self.maximum}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSvnFloor:
    """The guest image is not an older one than the policy knows."""

    minimum: int
    name: str = "guest_svn"
    passed: str = "the guest's version is recent enough"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("claims")."""
        if claims.report.guest_svn < self.minimum:
            raise PolicyViolation(
                "claims", f"GUEST_SVN is {claims.report.guest_svn}, want {self.minimum}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumTcb:
    """Every component of three TCBs reaches its floor; a product line without floors does not.

    Reported is what the key was derived for, committed is what the machine cannot go back behind,
    launch is what the guest started on.
    """

    floors: Mapping[str, Tcb]
    name: str = "tcb_floor"
    passed: str = "reported, committed and launch TCB reach their floors"

    def require(self, claims: SnpClaims) -> None:
        """Raises: PolicyViolation("tcb_floor")."""
        floor = self.floors.get(claims.product.name)
        if floor is None:
            raise PolicyViolation("tcb_floor", f"no TCB floor for {claims.product.name}")
        tcbs = (
            ("REPORTED_TCB", claims.reported_tcb),
            ("COMMITTED_TCB", claims.committed_tcb),
            ("LAUNCH_TCB", claims.launch_tcb),
        )
        for name, tcb in tcbs:
            if below := tcb.below(floor):
                raise PolicyViolation(
                    "tcb_floor", f"{name} is {tcb}, {listed(below)} is below {floor}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsExpected(RegistersExpected[SnpClaims]):
    """The launched guest, its owner and its keys are those of the reference values."""

    def observe(self, claims: SnpClaims) -> dict[str, str]:
        """What the launched guest is, by name, lower-case hex."""
        return measurements(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAllowed(ValuesAllowed[SnpClaims]):
    """The chip is one of those that the policy lists by CHIP_ID; an unnamed chip is not."""

    name: str = "platform"
    passed: str = "the chip is one of the policy's own"
    code: PolicyCode = "platform_not_allowed"

    def observe(self, claims: SnpClaims) -> Observed:
        """The CHIP_ID."""
        chip_id = None if claims.chip_id is None else claims.chip_id.hex()
        yield chip_id, f"chip is none of {len(self.allowed)} that are allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationChecked:
    """A CRL came along; the verifier checks every one that does."""

    name: str = "revocation_checked"
    passed: str = "a CRL came along and was checked"

    def require(self, claims: SnpClaims) -> None:
        """Raises: UntrustedEndorsement("crl_missing")."""
        if not claims.is_revocation_checked:
            raise UntrustedEndorsement("crl_missing", "no CRL of the ARK came along")


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningCaListed:
    """The ASK or ASVK is one that we list: a revoked one is refused without a CRL too."""

    sha256: frozenset[str]
    name: str = "signing_ca"
    passed: str = "the issuing CA is one of those we list"

    def require(self, claims: SnpClaims) -> None:
        """Raises: UntrustedEndorsement("chain")."""
        if claims.signing_ca_sha256 not in self.sha256:
            raise UntrustedEndorsement("chain", f"issuing CA is none of {len(self.sha256)} listed")


def parse_rules(table: PolicyTable) -> tuple[Rule[SnpClaims], ...]:
    """The rules of a policy's ``snp`` table, see ``policies/production.toml``."""
    products = table.names("products", PRODUCTS.__contains__)

    def bits(key: str, known: Collection[str]) -> frozenset[str]:
        return table.names(key, known.__contains__, may_be_empty=True)

    table.choice("debug", ("refused",))  # no policy can allow it; it is there to be read
    rules: list[Rule[SnpClaims]] = [
        ProductAllowed(allowed=products),
        DebugOff(),
        GuestPolicySound(
            required=bits("policy_required", _POLICY_CHOICES),
            refused=bits("policy_refused", _POLICY_CHOICES),
        ),
        PlatformSound(
            required=bits("platform_required", PLATFORM_BITS),
            refused=bits("platform_refused", PLATFORM_BITS),
        ),
        VmplAllowed(maximum=table.number("max_vmpl", minimum=0, maximum=MAX_VMPL)),
        GuestSvnFloor(minimum=table.number("min_guest_svn", minimum=0)),
        MinimumTcb(floors=_floors(table.table("min_tcb"), products)),
    ]
    if table.choice("crl", ("required", "not_required")) == "required":
        rules.append(RevocationChecked())
    if table.choice("signing_cas", ("listed", "any")) == "listed":
        rules.append(SigningCaListed(sha256=SIGNING_CAS))
    if table.has("chip_ids"):  # left out: any chip; there, it is stricter
        chip_ids = table.names("chip_ids", in_hex(CHIP_ID_BYTES))
        rules.append(PlatformAllowed(allowed=chip_ids))
    if values := read_reference_values(table.table("measurements"), REGISTERS):
        rules.append(MeasurementsExpected(values=values))
    table.finish()
    return tuple(rules)


def _floors(table: PolicyTable, products: frozenset[str]) -> dict[str, Tcb]:
    """A table per product line that the policy accepts, a level per component of that line."""
    floors: dict[str, Tcb] = {}
    for product in PRODUCTS:
        if product not in products and not table.has(product):
            continue
        levels = table.table(product)
        floors[product] = _floor(levels, PRODUCTS[product])
        levels.finish()
    table.finish()
    return floors


def _floor(levels: PolicyTable, product: ProductLine) -> Tcb:
    return Tcb(
        **{name: levels.number(name, minimum=0, maximum=MAX_LEVEL) for name, _ in product.tcb_bytes}
    )


def _require_bits(
    code: PolicyCode,
    value: int,
    bits: Mapping[str, int],
    required: frozenset[str],
    refused: frozenset[str],
) -> None:
    if missing := [name for name in sorted(required) if not value & bits[name]]:
        raise PolicyViolation(code, f"{value:#x} lacks {listed(missing)}")
    if found := [name for name in sorted(refused) if value & bits[name]]:
        raise PolicyViolation(code, f"{value:#x} has {listed(found)}")
