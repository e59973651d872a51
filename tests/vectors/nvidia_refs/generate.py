"""Makes the RIM and OCSP vectors: ``python -m tests.vectors.nvidia_refs.generate``."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.vectors.nvidia_refs import ocsp_cases, rim_cases, rim_documents
from tests.vectors.nvidia_refs.pki import AT, chain, pem

FOLDER = Path(__file__).parent
PKI_FILE = "000-pki.json"
GOOD_RIM_FILE = "001-rim-driver.json"


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    names = ("signer", "l3", "l2", "root")
    yield (
        PKI_FILE,
        {
            "verify_at": AT.isoformat(),
            "certificates": {n: pem([c]) for n, c in zip(names, chain(), strict=True)},
        },
    )
    number = 0
    for rim in rim_cases.CASES:
        number += 1
        expect: dict[str, Any] = (
            {"code": rim.code} if rim.code else {"code": None, **(rim.facts or {})}
        )
        yield (
            _file(number, "rim", rim.change),
            {"source": rim.source, "input": {"rim": _shortened(rim.make())}, "expect": expect},
        )
    for answer in ocsp_cases.CASES:
        number += 1
        nonce = None if answer.nonce is None else answer.nonce.hex()
        encoded = base64.b64encode(answer.make()).decode()
        yield (
            _file(number, "ocsp", answer.change),
            {
                "source": answer.source,
                "input": {"ocsp": encoded, "nonce": nonce}
                | ({"grace_s": answer.grace_s} if answer.grace_s else {}),
                "expect": {"code": answer.code}
                | ({"is_late": answer.is_late} if answer.grace_s and not answer.code else {}),
            },
        )


def restored(rim: str | list[Any], good: str) -> str:
    """The document of a vector; {"first": n} and {"last": n} are so many characters of ``good``."""
    parts = [rim] if isinstance(rim, str) else rim
    return "".join(part if isinstance(part, str) else _cut(part, good) for part in parts)


def _cut(part: dict[str, int], good: str) -> str:
    return good[: part["first"]] if "first" in part else good[len(good) - part["last"] :]


def _shortened(document: str) -> Any:
    """Only what differs from the good document, which the first vector holds whole."""
    good = rim_documents.GOOD
    if document == good:
        return document
    limit = min(len(good), len(document))
    start = next((i for i in range(limit) if good[i] != document[i]), limit)
    end = next((i for i in range(limit - start) if good[-1 - i] != document[-1 - i]), limit - start)
    return [{"first": start}, document[start : len(document) - end], {"last": end}]


def _file(number: int, kind: str, change: str) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in change.lower().replace("'", ""))
    return f"{number:03}-{kind}-{slug.replace('--', '-')}.json"


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Replaces every vector of this folder."""
    made = tuple(vectors())
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in made:
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
