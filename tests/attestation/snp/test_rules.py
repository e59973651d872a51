"""A policy's SNP table: every key asked for, every wrong value told, no gap lets anything in."""

from dataclasses import replace
from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.policy import load_policy
from attestation.policy_table import PolicyTable
from attestation.snp.product import GENOA, MILAN, SIGNING_CAS, TURIN, Tcb, product_of_cpuid
from attestation.snp.rules import MinimumTcb, SigningCaListed, VmplAllowed, parse_rules
from tests.attestation.snp.samples import POLICY, evidence, verify
from tests.support.fake_snp import LEVELS


def _problems(**changes: Any) -> list[str]:
    problems: list[str] = []
    parse_rules(PolicyTable("snp.", POLICY | changes, problems))
    return problems


def test_every_key_is_needed_but_the_list_of_chips() -> None:
    for key in POLICY:
        problems: list[str] = []
        rest = {name: value for name, value in POLICY.items() if name != key}
        parse_rules(PolicyTable("snp.", rest, problems))
        assert bool(problems) == (key != "chip_ids"), key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("products", []),
        ("products", ["Naples"]),
        ("debug", "allowed"),
        ("policy_required", ["debug"]),  # nobody may ask for it
        ("policy_refused", ["turbo"]),
        ("platform_required", ["page_swap_off"]),  # a guest policy bit, not the platform's
        ("max_vmpl", -1),
        ("max_vmpl", 4),
        ("min_guest_svn", "2"),
        ("min_tcb", {"Genoa": POLICY["min_tcb"]["Genoa"]}),
        ("min_tcb", POLICY["min_tcb"] | {"Genoa": LEVELS}),  # Genoa has no FMC
        ("min_tcb", POLICY["min_tcb"] | {"Naples": LEVELS}),
        ("crl", "optional"),
        ("signing_cas", "none"),
        ("chip_ids", []),
        ("chip_ids", ["AB" * 64]),
        ("chip_ids", ["ab" * 8]),
        ("measurements", {"mode": "required"}),
        ("measurements", {"mode": "required", "measurement": ["00" * 32]}),
        ("measurements", {"mode": "not_checked", "measurement": ["00" * 48]}),
        ("surprise", 1),
    ],
)
def test_wrong_values_are_told(key: str, value: object) -> None:
    assert _problems(**{key: value})


def test_the_shipped_policies_have_rules_for_snp() -> None:
    for name in ("production", "development"):
        assert {rule.name for rule in load_policy(name).rules["snp"]} >= {
            "debug_off",
            "guest_policy",
            "vmpl",
            "tcb_floor",
        }


def test_a_tcb_is_compared_component_by_component() -> None:
    floor = Tcb(boot_loader=4, tee=0, snp=24, microcode=200)
    newer_but_older = Tcb(boot_loader=9, tee=9, snp=23, microcode=255)

    assert floor.below(floor) == ()
    assert newer_but_older.below(floor) == ("snp",)
    assert Tcb(boot_loader=0, tee=0, snp=0, microcode=0).below(floor) == (
        "boot_loader",
        "snp",
        "microcode",
    )


def test_a_product_line_without_floors_is_refused() -> None:
    with pytest.raises(AttestationError) as caught:
        MinimumTcb(floors={}).require(verify(evidence()))
    assert caught.value.code == "tcb_floor"


def test_a_listed_issuer_passes_and_another_does_not() -> None:
    claims = verify(evidence())

    SigningCaListed(sha256=frozenset({claims.signing_ca_sha256})).require(claims)
    with pytest.raises(AttestationError) as caught:
        SigningCaListed(sha256=SIGNING_CAS).require(claims)
    assert caught.value.code == "chain"


def test_no_policy_lets_in_what_the_host_asked_for() -> None:
    claims = verify(evidence())
    from_host = replace(claims, report=replace(claims.report, vmpl=0xFFFFFFFF))

    with pytest.raises(AttestationError) as caught:
        VmplAllowed(maximum=0xFFFFFFFF).require(from_host)
    assert caught.value.code == "vmpl"


@pytest.mark.parametrize(
    ("family", "model", "product"),
    [
        (0x19, 0x00, MILAN),
        (0x19, 0x0F, MILAN),
        (0x19, 0x10, GENOA),
        (0x19, 0x1F, GENOA),
        (0x19, 0xA0, GENOA),
        (0x19, 0xAF, GENOA),
        (0x1A, 0x00, TURIN),
        (0x1A, 0x1F, TURIN),
    ],
)
def test_product_lines_by_processor(family: int, model: int, product: object) -> None:
    assert product_of_cpuid(family, model) is product


@pytest.mark.parametrize(
    ("family", "model"), [(0x17, 0x31), (0x19, 0x20), (0x19, 0x9F), (0x19, 0xB0), (0x1A, 0x20)]
)
def test_other_processors_are_unsupported(family: int, model: int) -> None:
    with pytest.raises(AttestationError) as caught:
        product_of_cpuid(family, model)
    assert caught.value.code == "unsupported_tee"
