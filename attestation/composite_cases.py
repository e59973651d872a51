"""Does a published composite case hold?  Its session is accepted, and every mutation is found.

The mutations of ``must_fail_when`` are applied here, each to the session as it was published and
by the name that the case gives it.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from attestation.anchors import load_anchors
from attestation.composite import SessionEndorsements, appraise_session
from attestation.errors import AttestationError
from attestation.model import AttestationResult, parse_nonce
from attestation.nras.jwks import parse_jwks
from attestation.policy import load_internal_policy
from attestation.tdx.endorsements import parse_collateral
from attestation.tinfoil import parse_tinfoil
from attestation.vectors import CaseOutcome, read_input

_LATER = timedelta(hours=2)  # beyond a token's hour
_BINDING_VALUES = ("tls_key_fp", "hpke_key", "gpu_evidence_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """One session with all that judging it needs."""

    document: bytes
    nonce: str
    endorsements: SessionEndorsements
    nras: bytes
    at: datetime
    folder: Path

    def judge(self) -> AttestationResult | AttestationError:
        """The verdict, or why the document cannot be read."""
        try:
            session = parse_tinfoil(self.document, nras=self.nras)
            nonce = parse_nonce(self.nonce)
        except AttestationError as err:
            return err
        return appraise_session(
            session,
            nonce=nonce,
            tls_key_sha256=None,
            endorsements=self.endorsements,
            policy=replace(load_internal_policy("vectors"), nras="required"),
            anchors=load_anchors(),
            at=self.at,
        )


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """``reported["problem"]`` says which mutation was not found, or which value differs."""

    def read(name: str) -> bytes:
        return read_input(folder, inputs[name])

    given = _Given(
        document=read("document"),
        nonce=case["nonce"],
        endorsements=SessionEndorsements(
            cpu=parse_collateral(read("tdx_collateral")), jwks=parse_jwks(read("nras_jwks"))
        ),
        nras=read("nras_eat"),
        at=at,
        folder=folder,
    )
    result = given.judge()
    if isinstance(result, AttestationError):
        return CaseOutcome(verdict="reject", code=result.code)
    problem = _differing_part(given, case, read) or _mutation_not_found(given, case)
    reported: dict[str, object] = {"tcb_status": result.claims.get("tcb_status")}
    if problem is not None:
        reported["problem"] = problem
    return CaseOutcome(
        verdict="accept" if result.is_accepted else "reject", code=result.code, reported=reported
    )


def _differing_part(
    given: _Given, case: Mapping[str, Any], read: Callable[[str], bytes]
) -> str | None:
    """The parts beside the document are its own, and the values to recompute are right."""
    session = parse_tinfoil(given.document, nras=given.nras)
    (device,) = session.gpu
    parts = {"tdx_quote": session.cpu, "gpu_report": device.report, "gpu_chain": device.cert_chain}
    for name, part in parts.items():
        if read(name).strip() != part.strip():
            return f"{name} is not the document's"
    values = {
        "tls_key_fp": session.certificate_key_sha256,
        "hpke_key": session.stated.hpke_key,
        "gpu_evidence_hash": session.gpu_sha256,
    }
    for name in _BINDING_VALUES:
        if values[name] != bytes.fromhex(case["binding"][name]):
            return f"{name} is not the case's"
    return None


def _mutation_not_found(given: _Given, case: Mapping[str, Any]) -> str | None:
    for name, want in case["must_fail_when"]:
        mutate = _MUTATIONS.get(name)
        if mutate is None:
            return f"mutation {name!r} is not known here"
        result = mutate(given).judge()
        if result.code != want:
            return f"{name}: rejected with {result.code}, want {want}"
    return None


def _edited(given: _Given, edit: Callable[[dict[str, Any]], object]) -> _Given:
    """The document with members changed, everything else byte for byte as it was."""
    document = json.loads(given.document)
    gpu = json.dumps(document["gpu"], separators=(",", ":"))
    edit(document)
    text = json.dumps(document, separators=(",", ":"))
    if gpu.encode() not in given.document:  # then the digest over it would change as well
        raise ValueError("the document's GPU evidence is not in its shortest form")
    return replace(given, document=text.encode())


def _stated(given: _Given, name: str) -> _Given:
    def edit(document: dict[str, Any]) -> None:
        document["report_data"][name] = bytes(
            byte ^ 1 for byte in bytes.fromhex(document["report_data"][name])
        ).hex()

    return _edited(given, edit)


def _other_gpu(given: _Given) -> _Given:
    """Any other report of the nvidia folder, with its chain."""
    folder = given.folder / "nvidia" / "gpu"
    report = (folder / "hopper-580.159.03.report.bin").read_bytes()
    chain = (folder / "hopper-580.159.03.chain.pem").read_bytes()

    def edit(document: dict[str, Any]) -> None:
        (evidence,) = document["gpu"]["evidences"]
        evidence["evidence"] = base64.b64encode(report).decode()
        evidence["certificate"] = base64.b64encode(chain).decode()

    return _edited(given, edit)


def _spaced_gpu(given: _Given) -> _Given:
    document = json.loads(given.document)
    shortest = json.dumps(document["gpu"], separators=(",", ":")).encode()
    spaced = json.dumps(document["gpu"]).encode()
    return replace(given, document=given.document.replace(shortest, spaced))


_MUTATIONS: Mapping[str, Callable[[_Given], _Given]] = {
    "nonce replaced": lambda given: replace(given, nonce="00" * 32),
    "tls_key_fp of another certificate": lambda given: _stated(given, "tls_key_fp"),
    "hpke_key replaced": lambda given: _stated(given, "hpke_key"),
    "GPU report of another session": _other_gpu,
    "gpu JSON value re-serialised with other spacing": _spaced_gpu,
    "verify_at after NRAS exp (iat+3600) when the token is required": lambda given: replace(
        given, at=given.at + _LATER
    ),
}
