"""Writes the Nitro vectors: one good document under a root of our own, then one change a file.

    python -m tests.vectors.nitro.generate

Keys and signatures are deterministic, so the same code makes the same bytes.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attestation.nitro.cases import CASES
from tests.attestation.nitro.samples import AT, NONCE, POLICY, PUBLIC_KEY, USER_DATA, good_document

FOLDER = Path(__file__).parent
GOOD_FILE = "001-good.json"
SOURCES = {
    None: "AWS NSM API: attestation document; RFC 9052 sec. 4.2",
    "dates": "RFC 5280 sec. 6.1.3",
    "debug_off": "AWS Nitro Enclaves: PCRs of an enclave in debug mode",
    "document_age": "policy: max_age_s",
    "document_chain": "AWS NSM API: cabundle; RFC 5280 sec. 6.1",
    "document_format": "AWS NSM API: attestation document; RFC 8949; RFC 9052 sec. 4.2",
    "document_signature": "RFC 9052 sec. 4.4; RFC 9053 sec. 2.1",
    "measurements": "policy: measurements",
    "nonce": "AWS NSM API: nonce",
    "public_key": "AWS NSM API: public_key",
    "user_data": "AWS NSM API: user_data",
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    yield (
        GOOD_FILE,
        {
            "source": SOURCES[None],
            "input": {
                "verify_at": AT.isoformat(),
                "nonce": NONCE.hex(),
                "public_key": PUBLIC_KEY.hex(),
                "user_data": USER_DATA.hex(),
                "policy": POLICY,
                "document_b64": _encode(good_document().to_bytes()),
            },
            "expect": {"code": None, "check": None},
        },
    )
    for number, case in enumerate(CASES, start=2):
        slug = case.change.lower().replace(" ", "-")
        replace: dict[str, Any] = {"document_b64": _encode(case.make().to_bytes())}
        if case.policy is not None:
            replace["policy"] = case.policy
        yield (
            f"{number:03}-{slug}.json",
            {
                "source": SOURCES[case.check],
                "input": {"base": GOOD_FILE, "replace": replace},
                "expect": {"code": case.code, "check": case.check},
            },
        )


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
