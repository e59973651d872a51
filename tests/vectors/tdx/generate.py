"""Writes the TDX vectors: one good bundle under the fake root, then one fault a file.

    python -m tests.vectors.tdx.generate

The fake TEE is deterministic, so the same code makes the same bytes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attestation.cases import CASES
from tests.attestation.samples import AT, NONCE, evidence

FOLDER = Path(__file__).parent
GOOD_FILE = "001-good.json"
SOURCES = {
    "bad_key": "SEC 1 sec. 3.2.2",
    "certificate_revoked": "RFC 5280 sec. 6.3",
    "certificate_time": "RFC 5280 sec. 6.1.3",
    "chain": "RFC 5280 sec. 6.1.4",
    "chain_order": "RFC 5280 sec. 6.1.3",
    "channel_binding": "binding.py: keyset",
    "collateral_expired": "Intel PCS API v4: nextUpdate",
    "collateral_not_yet_valid": "Intel PCS API v4: issueDate",
    "crl_expired": "RFC 5280 sec. 5.1.2.5",
    "crl_issuer": "RFC 5280 sec. 5.1.2.3",
    "crl_missing": "RFC 5280 sec. 6.3.3",
    "crl_signature": "RFC 5280 sec. 5.1.1.3",
    "debug_enabled": "Intel TDX module ABI: TDATTRIBUTES.DEBUG",
    "endorsement_missing": "RFC 9334 sec. 8.2",
    "fmspc_mismatch": "Intel DCAP QVL: FMSPC",
    "format": "Intel TDX DCAP Quoting Library API app. 3; Intel PCS API v4",
    "pceid_mismatch": "Intel DCAP QVL: PCEID",
    "qe_binding": "Intel TDX DCAP Quoting Library API app. 3: QE report data",
    "qe_identity_mismatch": "Intel DCAP QVL: enclave identity",
    "qe_identity_signature": "Intel PCS API v4: enclaveIdentity signature",
    "qe_report_signature": "Intel TDX DCAP Quoting Library API app. 3: QE report signature",
    "qe_vendor": "Intel TDX DCAP Quoting Library API app. 3: QE vendor id",
    "quote_signature": "Intel TDX DCAP Quoting Library API app. 3: quote signature",
    "signer_role": "Intel PCS API v4: TCB signing certificate",
    "tcb_info_mismatch": "Intel PCS API v4: tcbInfo id and version",
    "tcb_info_signature": "Intel PCS API v4: tcbInfo signature",
    "tcb_no_match": "Intel DCAP QVL: TCB level",
    "tcb_status": "Intel DCAP QVL: TCB status",
    "td_attributes": "Intel TDX module ABI: TDATTRIBUTES",
    "tdx_module": "Intel DCAP QVL: TDX module identity",
    "tee_type": "registry.py: a label allows one kind of root",
    "trailing_bytes": "Intel TDX DCAP Quoting Library API app. 3: signature data length",
    "gpu_evidence_hash": "binding.py: the statement commits to the gpu array",
    "unsupported_key_type": "Intel TDX DCAP Quoting Library API app. 3: attestation key type",
    "unsupported_tee": "registry.py",
    "unsupported_version": "Intel TDX DCAP Quoting Library API app. 3: version",
    "untrusted_root": "anchors.toml",
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    good = json.loads(evidence().to_json())
    yield (
        GOOD_FILE,
        {
            "source": "Intel TDX DCAP Quoting Library API app. 3; Intel PCS API v4",
            "input": {
                "verify_at": AT.isoformat(),
                "nonce": NONCE.hex(),
                "policy": "development",
                "bundle": good,
            },
            "expect": {"code": None, "tier": "warning"},
        },
    )
    for number, case in enumerate(CASES, start=2):
        slug = case.change.lower().replace(" ", "-").replace("'", "")
        yield (
            f"{number:03}-{slug}.json",
            {
                "source": SOURCES[case.code],
                "input": {
                    "base": GOOD_FILE,
                    "replace": _difference(good, json.loads(case.make().to_json())),
                },
                "expect": {"code": case.code},
            },
        )


def apply(good: dict[str, Any], replace: dict[str, Any]) -> dict[str, Any]:
    """The bundle of a vector: members of ``replace`` win, inside ``collateral`` too."""
    merged = {**good, **replace}
    if isinstance(replace.get("collateral"), dict):
        merged["collateral"] = {**good["collateral"], **replace["collateral"]}
    return merged


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def _difference(good: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    difference = {name: value for name, value in changed.items() if value != good[name]}
    if isinstance(difference.get("collateral"), dict):
        difference["collateral"] = _difference(good["collateral"], difference["collateral"])
    return difference


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()
