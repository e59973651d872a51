"""How many devices a machine has at most, how long its verdict holds, and one boot ROM for two."""

from dataclasses import replace
from datetime import timedelta

import pytest

from attestation.errors import AttestationError
from attestation.nvidia.topology import assemble
from tests.attestation.nvidia.claims import claims
from tests.attestation.nvidia.device import AT, blackwell


def test_sixteen_devices_are_a_machine_and_seventeen_are_none() -> None:
    devices = [claims(blackwell(number)) for number in range(17)]

    assert len(assemble(devices[:16]).gpus) == 16
    with pytest.raises(AttestationError) as caught:
        assemble(devices)
    assert caught.value.code == "gpu_count"


def test_a_machine_is_good_until_the_first_of_its_devices_is_not() -> None:
    first, second = claims(blackwell(0)), claims(blackwell(1))
    soon, late = AT + timedelta(hours=1), AT + timedelta(hours=2)

    for ends in ((soon, late), (late, soon)):
        devices = [replace(first, not_after=ends[0]), replace(second, not_after=ends[1])]
        assert assemble(devices).not_after == soon


def test_two_keys_of_one_boot_rom_are_one_device() -> None:
    first, second = claims(blackwell(0)), claims(blackwell(1))
    chain, other = second.identity.chain, first.identity.chain
    certificates = (chain.certificates[0], other.certificates[1], *chain.certificates[2:])
    twin = replace(
        second, identity=replace(second.identity, chain=replace(chain, certificates=certificates))
    )

    assert len(assemble([first, second]).gpus) == 2
    with pytest.raises(AttestationError) as caught:
        assemble([first, twin])
    assert caught.value.code == "topology"
