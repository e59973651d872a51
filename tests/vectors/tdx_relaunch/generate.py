"""Writes the relaunch vectors: TD 1.5 quotes whose TDX module was updated under the TD.

    python -m tests.vectors.tdx_relaunch.generate

The fake TEE is deterministic, so the same code makes the same bytes.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attestation.samples import AT
from tests.attestation.tdx.td15 import RELAUNCHES

FOLDER = Path(__file__).parent
_SOURCE = "Intel DCAP QVL: TCB level with TEE_TCB_SVN_2, checkForRelaunch"


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    for number, case in enumerate(RELAUNCHES, start=1):
        quote, collateral = case.evidence()
        is_status = case.expect[0].isupper()
        yield (
            f"{number:03}-{case.name.lower().replace(' ', '-')}.json",
            {
                "source": _SOURCE,
                "input": {
                    "verify_at": AT.isoformat(),
                    "quote_b64": base64.b64encode(quote).decode("ascii"),
                    "collateral": collateral.to_json_value(),
                },
                "expect": {"tcb_status" if is_status else "code": case.expect},
            },
        )


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
