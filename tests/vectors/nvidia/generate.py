"""Writes the NVIDIA device vectors: three good devices under a test root, then one fault a file.

    python -m tests.vectors.nvidia.generate

The test devices are deterministic, so the same code makes the same bytes.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attestation.nvidia.device import AT, DevicePki, blackwell, hopper, switch
from tests.attestation.nvidia.faults import FAULTS, DeviceEvidence, evidence

FOLDER = Path(__file__).parent
GOOD = (
    ("001-good-hopper.json", evidence(hopper())),
    ("002-good-blackwell.json", evidence(blackwell(), "BLACKWELL")),
    ("003-good-switch.json", evidence(switch(), "LS10")),
)
_BASES = {document.arch: (name, document) for name, document in GOOD}
SOURCES = {
    "bad_key": "RFC 5480 sec. 2.1.1",
    "certificate_time": "RFC 5280 sec. 6.1.3",
    "chain": "RFC 5280 sec. 6.1.4",
    "chain_length": "NVIDIA device certificate chain: five certificates",
    "chain_order": "RFC 5280 sec. 6.1.3",
    "chain_signature": "RFC 5280 sec. 6.1.3",
    "format": "DMTF DSP0274 1.1 sec. 10.11; NVIDIA opaque data; TCG DICE sec. 6",
    "fwid_mismatch": "TCG DICE sec. 6: FWID",
    "gpu_arch": "chain.py: the architecture is the certificates'",
    "nonce_length": "DMTF DSP0274 1.1 sec. 10.11: nonce of 32 bytes",
    "nonce_mismatch": "DMTF DSP0274 1.1 sec. 10.11: nonce",
    "report_signature": "DMTF DSP0274 1.1 sec. 10.11.2",
    "signer_role": "chain.py: names of firmware and boot ROM certificates",
    "trailing_bytes": "DMTF DSP0274 1.1 sec. 10.11: exact length",
    "unsupported_gpu": "chain.py: unknown Evidence rejects",
    "unsupported_version": "DMTF DSP0274 1.1 sec. 10.11: SPDMVersion",
    "untrusted_root": "anchors.toml",
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    root = DevicePki().anchors.anchors[0].sha256
    for name, good in GOOD:
        inputs = {"verify_at": AT.isoformat(), "root_sha256": root, **_whole(good)}
        source = "DMTF DSP0274 1.1 sec. 10.11; TCG DICE sec. 6"
        yield name, {"source": source, "input": inputs, "expect": {"code": None}}
    for number, fault in enumerate(FAULTS, start=1 + len(GOOD)):
        slug = fault.change.lower().replace(" ", "-")
        made = fault.make()
        base_name, base = _base(made)
        yield (
            f"{number:03}-{slug}.json",
            {
                "source": SOURCES[fault.code or "format"],
                "input": {"base": base_name, "replace": _difference(base, made)},
                "expect": {"code": fault.code},
            },
        )


def apply(good: dict[str, Any], replace: dict[str, Any]) -> DeviceEvidence:
    """The Evidence of a vector: members of ``replace`` win, of a report only the bytes named."""
    report = bytearray(base64.b64decode(replace.get("report") or good["report"]))
    for offset, hex_bytes in replace.get("report_bytes", []):
        report[offset : offset + len(hex_bytes) // 2] = bytes.fromhex(hex_bytes)
    if "report_length" in replace:
        del report[replace["report_length"] :]
    chain = replace.get("chain", good["chain"])
    return DeviceEvidence(
        arch=replace.get("arch", good["arch"]),
        chain=tuple(certificate.encode() for certificate in chain),
        report=bytes(report),
        nonce=bytes.fromhex(replace.get("nonce", good["nonce"])),
    )


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def _whole(made: DeviceEvidence) -> dict[str, Any]:
    return {
        "arch": made.arch,
        "nonce": made.nonce.hex(),
        "chain": [certificate.decode() for certificate in made.chain],
        "report": base64.b64encode(made.report).decode(),
    }


def _base(made: DeviceEvidence) -> tuple[str, DeviceEvidence]:
    """The good device that most of the report is of: a wrong label does not decide."""
    return min(_BASES.values(), key=lambda base: len(_difference(base[1], made)))


def _difference(good: DeviceEvidence, made: DeviceEvidence) -> dict[str, Any]:
    before, after = _whole(good), _whole(made)
    difference = {name: value for name, value in after.items() if value != before[name]}
    if "report" in difference:
        if len(made.report) == len(good.report):
            del difference["report"]
            difference["report_bytes"] = _runs(good.report, made.report)
        elif good.report.startswith(made.report):
            del difference["report"]
            difference["report_length"] = len(made.report)
    return difference


def _runs(before: bytes, after: bytes) -> list[list[Any]]:
    """[offset, hex] of each stretch of bytes that differ; stretches closer than 8 are one."""
    runs: list[list[int]] = []
    for offset in (at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b):
        if runs and offset - runs[-1][1] < 8:
            runs[-1][1] = offset + 1
        else:
            runs.append([offset, offset + 1])
    return [[start, after[start:end].hex()] for start, end in runs]


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
