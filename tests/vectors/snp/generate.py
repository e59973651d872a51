"""Writes the SNP vectors: good Evidence under fake roots, then one change a file.

    python -m tests.vectors.snp.generate

Keys and signatures are deterministic, so the same code makes the same bytes.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.snp.product import PRODUCTS
from tests.attestation.snp.own_cases import CASES
from tests.attestation.snp.samples import POLICY, Evidence, evidence
from tests.support.fake_snp import FakeSnp

FOLDER = Path(__file__).parent
GOOD_FILE = "001-good.json"
SOURCES = {
    None: "positive control",
    "bad_key": "AMD 57230 sec. 3",
    "certificate_revoked": "RFC 5280 sec. 6.3",
    "certificate_time": "RFC 5280 sec. 6.1.3",
    "chain": "RFC 5280 sec. 6.1.4",
    "chain_order": "RFC 5280 sec. 6.1.3",
    "chain_signature": "RFC 5280 sec. 6.1.3; RFC 8017 sec. 8.1",
    "claims": "AMD 56860 sec. 7.3: GUEST_SVN",
    "collateral_not_yet_valid": "RFC 5280 sec. 5.1.2.4",
    "crl_expired": "RFC 5280 sec. 5.1.2.5",
    "crl_issuer": "RFC 5280 sec. 5.1.2.3",
    "crl_missing": "RFC 5280 sec. 6.3.3",
    "crl_signature": "RFC 5280 sec. 5.1.1.3",
    "debug_enabled": "AMD 56860 sec. 4.3: POLICY.DEBUG",
    "format": "AMD 56860 sec. 7.3; AMD 57230 sec. 3.1; X.690",
    "guest_policy": "AMD 56860 sec. 4.3: POLICY",
    "hwid_mismatch": "AMD 57230 sec. 3.1: hwID; AMD 56860 sec. 7.3: CHIP_ID",
    "measurement_mismatch": "AMD 56860 sec. 7.3: MEASUREMENT, HOST_DATA, digests and ids",
    "platform_info": "AMD 56860 sec. 7.3: PLATFORM_INFO; AMD-SB-3015",
    "platform_not_allowed": "AMD 56860 sec. 7.3: CHIP_ID",
    "product_refused": "AMD 57230 sec. 3.1: productName",
    "report_signature": "AMD 56860 sec. 7.3: SIGNATURE",
    "signer_role": "AMD 57230 sec. 3: names of ARK, ASK, ASVK, VCEK, VLEK",
    "signing_key": "AMD 56860 sec. 7.3: SIGNING_KEY",
    "tcb_floor": "AMD 56860 sec. 3.3: TCB_VERSION; AMD-SB-3019",
    "tcb_mismatch": "AMD 57230 sec. 3.1: SPLs; AMD 56860 sec. 7.3: REPORTED_TCB",
    "unsupported_algorithm": "AMD 56860 sec. 7.3: SIGNATURE_ALGO",
    "unsupported_tee": "AMD 56860 sec. 7.3: CPUID",
    "unsupported_version": "AMD 56860 sec. 7.3: VERSION",
    "untrusted_root": "anchors.toml",
    "vmpl": "AMD 56860 sec. 7.3: VMPL",
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    good = _input(evidence())
    roots = [FakeSnp(product=product).ark() for product in PRODUCTS.values()]
    yield (
        GOOD_FILE,
        {
            "source": "AMD 56860 sec. 7.3; AMD 57230 sec. 3",
            "input": {
                "roots_sha256": [hashlib.sha256(root).hexdigest() for root in roots],
                "policy": POLICY,
                **good,
            },
            "expect": {"code": None},
        },
    )
    for number, case in enumerate(CASES, start=2):
        changed = _input(case.make())
        slug = case.change.lower().replace(" ", "-").replace("'", "")
        yield (
            f"{number:03}-{slug}.json",
            {
                "source": SOURCES[case.code],
                "input": {
                    "base": GOOD_FILE,
                    "replace": {k: v for k, v in changed.items() if v != good.get(k)},
                },
                "expect": {"code": case.code},
            },
        )


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def read(replace: dict[str, Any], good: dict[str, Any]) -> Evidence:
    """The Evidence of one file, ``good`` being the input of the base."""
    values = good | replace
    return Evidence(
        report=base64.b64decode(values["report"]),
        vek=base64.b64decode(values["vek"]),
        chain=base64.b64decode(values["chain"]),
        crl=None if values["crl"] is None else base64.b64decode(values["crl"]),
        policy=good["policy"] | replace.get("policy", {}),
        at=datetime.fromisoformat(values["at"]),
    )


def _input(given: Evidence) -> dict[str, Any]:
    """Members in base64; of the policy only what differs from the base's."""
    return {
        "report": base64.b64encode(given.report).decode(),
        "vek": base64.b64encode(given.vek).decode(),
        "chain": base64.b64encode(given.chain).decode(),
        "crl": None if given.crl is None else base64.b64encode(given.crl).decode(),
        "at": given.at.isoformat(),
        **({"policy": dict(given.policy)} if given.policy else {}),
    }


def main() -> None:
    """Writes every file and removes those that are made no more."""
    made = {name: render(document) for name, document in vectors()}
    for old in FOLDER.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
