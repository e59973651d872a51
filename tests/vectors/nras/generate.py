"""Writes the NRAS vectors: one good bundle under a JWKS of our own, then one change a file.

    python -m tests.vectors.nras.generate

Keys and signatures are deterministic, so the same code makes the same bytes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attestation.nras.cases import CASES
from tests.attestation.nras.samples import AT, POLICY, Answer, good_answer

FOLDER = Path(__file__).parent
GOOD_FILE = "001-good.json"
SOURCES = {
    None: "NVIDIA NRAS claims 2.0 and 3.0",
    "claims_version": "policy: versions",
    "device_claims": "NVIDIA NRAS claims 2.0 and 3.0",
    "device_identity": "policy: devices.ueids",
    "device_signatures": "RFC 7515 sec. 5.2",
    "device_tokens": "RFC 9711 sec. 4.1; RFC 7519 sec. 4.1",
    "driver_version": "policy: devices.driver_versions",
    "gpu_count": "policy: devices.gpus",
    "hardware_model": "policy: devices.hardware_models",
    "jwks": "RFC 7517 sec. 5",
    "nonce": "RFC 9711 sec. 4.1",
    "nras_warning": "policy: warnings",
    "submods": "RFC 9711 sec. 4.2.18",
    "token_age": "policy: max_age_s",
    "token_dates": "RFC 7519 sec. 4.1",
    "token_format": "RFC 7515 sec. 7.1; RFC 9711 sec. 5",
    "token_signature": "RFC 7515 sec. 5.2; RFC 7517 sec. 4; RFC 7518 sec. 3.4",
    "token_type": "NVIDIA NRAS claims 2.0 and 3.0",
    "vbios_version": "policy: devices.vbios_versions",
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    good = _inputs(good_answer(), POLICY)
    yield (
        GOOD_FILE,
        {
            "source": SOURCES[None],
            "input": {"verify_at": AT.isoformat(), **good},
            "expect": {"code": None, "check": None},
        },
    )
    for number, case in enumerate(CASES, start=2):
        slug = case.change.lower().replace(" ", "-").replace(".", "-")
        inputs = _inputs(case.make(), case.policy or POLICY)
        yield (
            f"{number:03}-{slug}.json",
            {
                "source": SOURCES[case.check],
                "input": {
                    "base": GOOD_FILE,
                    "replace": {n: v for n, v in inputs.items() if v != good[n]},
                },
                "expect": {"code": case.code, "check": case.check},
            },
        )


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def _inputs(answer: Answer, policy: dict[str, Any]) -> dict[str, Any]:
    return {
        "nonce": answer.nonce.hex(),
        "policy": policy,
        "eat": answer.bundle(),
        "jwks": answer.jwks,
    }


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
