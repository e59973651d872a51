"""Which devices make one machine: one GPU, several in MPT, or a whole protected PCIe board."""

from collections.abc import Sequence

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.model import GpuEntry
from attestation.nvidia import opaque
from attestation.nvidia.topology import assemble
from attestation.nvidia.verifier import GpuClaims, GpuVerifier
from tests.attestation.nvidia.claims import claims
from tests.attestation.nvidia.device import (
    AT,
    GPU_PDIS,
    SWITCH_PDIS,
    FakeDevice,
    blackwell,
    board_gpu,
    hopper,
    switch,
)
from tests.support.resources import vectors_dir

_GPUS = tuple(board_gpu(number) for number in range(8))
_SWITCHES = tuple(switch(number) for number in range(4))
_MPT = {"feature_flag": b"\1\0"}


@pytest.fixture(scope="module")
def board() -> list[GpuClaims]:
    """Eight GPUs, then four switches."""
    return [claims(device) for device in (*_GPUS, *_SWITCHES)]


def _code(devices: Sequence[GpuClaims]) -> str:
    with pytest.raises(AttestationError) as caught:
        assemble(devices)
    return caught.value.code


def _with(board: Sequence[GpuClaims], index: int, device: FakeDevice) -> list[GpuClaims]:
    return [*board[:index], claims(device), *board[index + 1 :]]


def test_one_gpu_alone() -> None:
    system = assemble([claims(hopper())])

    assert (system.mode, len(system.gpus), system.switches) == ("spt", 1, ())


def test_several_gpus_only_in_mpt() -> None:
    several = [claims(blackwell(number)) for number in range(3)]

    assert assemble(several).mode == "mpt"
    assert _code([claims(hopper(0)), claims(hopper(1))]) == "topology"


def test_a_whole_board(board: list[GpuClaims]) -> None:
    system = assemble(board[::-1])

    assert (system.mode, len(system.gpus), len(system.switches)) == ("ppcie", 8, 4)
    assert system.not_after == board[0].not_after


def test_no_gpu_is_no_machine(board: list[GpuClaims]) -> None:
    assert _code([]) == "gpu_count"
    assert _code(board[8:]) == "gpu_count"


def test_more_devices_than_any_machine_has() -> None:
    assert _code([claims(blackwell())] * 17) == "gpu_count"


def test_a_device_counts_once(board: list[GpuClaims]) -> None:
    assert _code([claims(blackwell()), claims(blackwell())]) == "topology"
    assert _code([*board[:7], board[0], *board[8:]]) == "topology"
    assert _code([*board[:11], board[8]]) == "topology"


def test_modes_must_not_mix() -> None:
    assert _code([claims(hopper(0)), claims(hopper(1, **_MPT))]) == "gpu_mode"


def test_modes_must_not_mix_on_a_board(board: list[GpuClaims]) -> None:
    assert _code(_with(board, 3, hopper(3))) == "gpu_mode"


def test_architectures_must_not_mix() -> None:
    assert _code([claims(hopper(0, **_MPT)), claims(blackwell(1))]) == "topology"


@pytest.mark.parametrize("left_out", [0, 7, 8, 11])
def test_a_board_must_be_whole(board: list[GpuClaims], left_out: int) -> None:
    assert _code([*board[:left_out], *board[left_out + 1 :]]) == "topology"


def test_switches_belong_to_boards_only() -> None:
    assert _code([claims(blackwell()), claims(switch())]) == "topology"
    assert _code([claims(hopper()), claims(switch())]) == "topology"


def test_every_gpu_sees_exactly_the_switches_that_report(board: list[GpuClaims]) -> None:
    other = bytes([0xAF]) + bytes(7)
    three = b"".join(pdi[::-1] for pdi in SWITCH_PDIS[:3])
    five = b"".join(pdi[::-1] for pdi in (*SWITCH_PDIS, other))
    foreign = b"".join(pdi[::-1] for pdi in (*SWITCH_PDIS[:3], other))
    unreversed = b"".join(SWITCH_PDIS)

    for pdis in (three, five, foreign, unreversed, b""):
        assert _code(_with(board, 5, board_gpu(5, pdis=pdis))) == "topology"


def test_every_gpu_seeing_other_switches_is_no_board(board: list[GpuClaims]) -> None:
    """GPUs that agree with each other and not with the switches that came along."""
    other = b"".join(bytes([0xB0 + number]) + bytes(7) for number in range(4))
    gpus = [claims(board_gpu(number, pdis=other)) for number in range(8)]

    assert _code([*gpus, *board[8:]]) == "topology"


def test_switches_each_name_themselves(board: list[GpuClaims]) -> None:
    assert _code(_with(board, 9, switch(1, pdis=SWITCH_PDIS[0]))) == "topology"
    nameless = FakeDevice(
        chip="LS_10",
        number=1,
        num_blocks=31,
        items={key: value for key, value in switch(1).items.items() if key != opaque.PDIS},
    )
    assert _code(_with(board, 9, nameless)) == "topology"


def test_two_switches_of_one_name_are_not_four(board: list[GpuClaims]) -> None:
    """Nor when every GPU agrees that there are three."""
    three = b"".join(pdi[::-1] for pdi in SWITCH_PDIS[:3])
    gpus = [claims(board_gpu(number, pdis=three)) for number in range(8)]
    last = claims(switch(3, pdis=SWITCH_PDIS[2]))

    assert _code([*gpus, *board[8:11], last]) == "topology"


def test_switches_see_the_same_eight_gpus(board: list[GpuClaims]) -> None:
    other = b"".join((*GPU_PDIS[:7], bytes([0xCF]) + bytes(7)))
    twice = b"".join((*GPU_PDIS[:7], GPU_PDIS[0]))

    assert _code(_with(board, 10, switch(2, gpu_pdis=other))) == "topology"
    seven = [claims(switch(number, gpu_pdis=twice)) for number in range(4)]
    assert _code([*board[:8], *seven]) == "topology"


def _published(name: str, arch: str, nonce: str) -> GpuClaims:
    folder = vectors_dir() / "attestation" / "nvidia"
    entry = GpuEntry(
        arch=arch,
        cert_chain=(folder / f"{name}.chain.pem").read_bytes(),
        report=(folder / f"{name}.report.bin").read_bytes(),
    )
    return GpuVerifier(anchors=load_anchors()).verify(
        entry, nonce=bytes.fromhex(nonce), at=AT, log=CheckLog(), rims=None
    )


def test_real_blackwell_gpus_share_one_guest() -> None:
    nonce = "cdb72201e569085d6de41863745f6f77db1f75962c29564ec6abe91f0221861f"
    gpus = [
        _published(f"gpu/blackwell-mpt-590.48.01-{number}", "BLACKWELL", nonce)
        for number in range(3)
    ]

    assert assemble(gpus).mode == "mpt"


def test_half_of_a_real_board_is_no_machine() -> None:
    """Its GPUs agree on four switches, but half of them and other switches came along."""
    nonce = "e97b23a1718095a0e9e35edca810768c70a6a5a389b705e753b197912bc11576"
    gpus = [_published(f"gpu/multi4-hopper-{number}", "HOPPER", nonce) for number in range(4)]

    assert {len(gpu.report.opaque.switch_pdis) for gpu in gpus} == {4}
    assert len({gpu.report.opaque.switch_pdis for gpu in gpus}) == 1
    assert _code(gpus) == "topology"
