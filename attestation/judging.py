"""How is Evidence of each kind judged, given the bytes and files that a person has at hand?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.appraise import appraise, appraise_report, reject_unread
from attestation.appraise_azure import appraise_azure
from attestation.appraise_device import appraise_gpus, appraise_token
from attestation.composite import SessionEndorsements, appraise_session
from attestation.endorsement_files import EndorsementFiles
from attestation.errors import AttestationError, MalformedEvidence, UntrustedEndorsement
from attestation.kinds import Kind
from attestation.model import AttestationResult, GpuEntry, Nonce, parse_bundle
from attestation.nras.jwks import Jwks
from attestation.nvidia.chain import verify_device_chain
from attestation.policy import AppraisalPolicy
from attestation.snp.azure import TpmAnswer
from attestation.tinfoil import parse_tinfoil

_NO_CONNECTION = "channel: no connection is bound: no TLS key was compared with the keyset's"
NONCE_NEEDED: frozenset[Kind] = frozenset({"bundle", "tinfoil", "gpu", "nras"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked: ``nonce`` None only for kinds whose freshness may go unjudged.

    ``tpm`` is the answer of an Azure guest's TPM, to the same nonce.
    """

    evidence: bytes
    nonce: Nonce | None
    files: EndorsementFiles
    jwks: Jwks | None
    nras: bytes | None
    tls_key_sha256: bytes | None
    policy: AppraisalPolicy
    anchors: TrustAnchors
    at: datetime
    tpm: TpmAnswer | None = None

    @property
    def own_nonce(self) -> Nonce:
        """The nonce, for kinds that need one.  Raises: MalformedEvidence("nonce_length")."""
        if self.nonce is None:
            raise MalformedEvidence("nonce_length", "nonce: this kind of Evidence needs one")
        return self.nonce


def judge(kind: Kind, request: Request) -> AttestationResult:
    """The verdict on Evidence of this kind; Evidence that cannot be read is rejected as well."""
    try:
        return _JUDGES[kind](request)
    except AttestationError as err:
        return reject_unread(err, request.evidence, policy=request.policy, at=request.at)


def _bundle(request: Request) -> AttestationResult:
    bundle = parse_bundle(request.evidence)
    own = request.files.snp() if bundle.tee == "snp" else request.files.tdx
    result = appraise(
        bundle,
        nonce=request.own_nonce,
        policy=request.policy,
        anchors=request.anchors,
        at=request.at,
        collateral=own,
        gpu_endorsements=request.files.gpu(),
        jwks=request.jwks,
        tls_key_sha256=request.tls_key_sha256,
    )
    if request.tls_key_sha256 is not None:
        return result
    return replace(result, not_covered=(*result.not_covered, _NO_CONNECTION))


def _tinfoil(request: Request) -> AttestationResult:
    session = parse_tinfoil(request.evidence, nras=request.nras)
    own = request.files.snp() if session.label == "snp" else request.files.tdx
    return appraise_session(
        session,
        nonce=request.own_nonce,
        tls_key_sha256=request.tls_key_sha256,
        endorsements=SessionEndorsements(cpu=own, gpu=request.files.gpu(), jwks=request.jwks),
        policy=request.policy,
        anchors=request.anchors,
        at=request.at,
    )


def _report(label: str, endorsements: object, request: Request, *, zeros: int) -> AttestationResult:
    """A CPU TEE's bare Evidence; its report data must be the nonce and ``zeros`` zero bytes."""
    expected = None if request.nonce is None else request.nonce + bytes(zeros)
    return appraise_report(
        label,
        request.evidence,
        endorsements,
        policy=request.policy,
        anchors=request.anchors,
        at=request.at,
        expected_report_data=expected,
    )


def _azure(request: Request) -> AttestationResult:
    if request.tpm is None:
        return _report("azure-snp", request.files.snp(), request, zeros=32)
    return appraise_azure(
        request.evidence,
        request.files.snp(),
        answer=request.tpm,
        policy=request.policy,
        anchors=request.anchors,
        at=request.at,
    )


def _gpu(request: Request) -> AttestationResult:
    if len(request.files.chains) != 1:
        raise UntrustedEndorsement(
            "endorsement_missing", f"{len(request.files.chains)} device chains given, want 1"
        )
    chain = request.files.chains[0]
    narrowed = request.anchors.of_kinds(request.policy.anchor_kinds | {"foreign"})
    arch = verify_device_chain(chain, anchors=narrowed, at=request.at).arch
    return appraise_gpus(
        [GpuEntry(arch=arch, cert_chain=chain, report=request.evidence)],
        nonce=request.own_nonce,
        policy=request.policy,
        anchors=request.anchors,
        at=request.at,
        endorsements=request.files.gpu(),
    )


def _nras(request: Request) -> AttestationResult:
    return appraise_token(
        request.evidence,
        request.jwks,
        nonce=request.own_nonce,
        policy=request.policy,
        at=request.at,
    )


_JUDGES: Mapping[Kind, Callable[[Request], AttestationResult]] = {
    "bundle": _bundle,
    "tinfoil": _tinfoil,
    "quote": lambda request: _report("tdx", request.files.tdx, request, zeros=32),
    "snp": lambda request: _report("snp", request.files.snp(), request, zeros=32),
    "azure-snp": _azure,
    "gpu": _gpu,
    "nras": _nras,
    "nitro": lambda request: _report("nitro", None, request, zeros=0),
}
