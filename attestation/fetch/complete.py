"""Which endorsements does a whole piece of Evidence lack, and what of that can be had?

What came with the Evidence or was given by hand is never replaced: only gaps are filled. The
nonces of OCSP are drawn here; the NRAS keys are fetched anew every time, since nothing signs them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from attestation.anchors import TrustAnchors
from attestation.devices import ocsp_grace
from attestation.endorsement_files import EndorsementFiles
from attestation.fetch.amd import snp_endorsements
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.fetch.gpus import gpu_endorsements
from attestation.fetch.intel import tdx_collateral
from attestation.fetch.nvidia import fetch_jwks
from attestation.judging import Request
from attestation.kinds import Kind
from attestation.model import GpuEntry, parse_bundle
from attestation.nras.jwks import parse_jwks
from attestation.nvidia.chain import verify_device_chain
from attestation.nvidia.ocsp import NO_GRACE
from attestation.snp.azure import parse_hcl
from attestation.snp.endorsements import SnpEndorsements
from attestation.tinfoil import parse_tinfoil


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Evidence whose gaps are to be filled.

    ``nras`` is a token that came beside the Evidence; ``ocsp_grace`` is the policy's.
    """

    evidence: bytes
    files: EndorsementFiles
    endorser: Endorser
    anchors: TrustAnchors
    token_bytes: Callable[[int], bytes]
    nras: bytes | None = None
    has_jwks: bool = False
    ocsp_grace: timedelta = NO_GRACE

    def fill_tdx(self, quote: bytes) -> None:
        """Raises: AttestationError."""
        if self.files.tdx is None:
            self.files.tdx = tdx_collateral(self.endorser, quote, anchors=self.anchors)

    def fill_snp(self, report: bytes, carried: SnpEndorsements | None = None) -> None:
        """Raises: AttestationError."""
        files = self.files
        given = files.snp() or carried
        if given is None and len(files.certificates) == 1 and not files.chains:
            crl = files.crls[0] if len(files.crls) == 1 else None
            given = SnpEndorsements(vek=files.certificates[0], chain=b"", crl=crl)
        found = snp_endorsements(self.endorser, report, anchors=self.anchors, carried=given)
        files.certificates, files.chains = [found.vek], [found.chain]
        files.crls = [] if found.crl is None else [found.crl]

    def fill_gpus(self, entries: Sequence[GpuEntry]) -> None:
        """Raises: AttestationError."""
        if entries and self.files.gpu() is None:
            found = gpu_endorsements(
                self.endorser,
                entries,
                anchors=self.anchors,
                token_bytes=self.token_bytes,
                ocsp_grace=self.ocsp_grace,
            )
            self.files.rims, self.files.ocsp = list(found.rims), list(found.ocsp)

    def jwks(self, *, is_needed: bool) -> bytes | None:
        """The keys of NRAS when a token needs them; None, and a failure noted, without."""
        fetcher = self.endorser.fetcher
        if not is_needed or self.has_jwks:
            return None
        if fetcher is None:
            said = "keys of NRAS: never cached, and offline"
            self.endorser.failures.append(FetchFailed("endorsement_missing", "offline", said))
            return None
        failure: FetchFailed | None = None
        for base in fetcher.config.urls["nras"]:
            try:
                return fetch_jwks(fetcher, base)
            except FetchFailed as err:
                failure = failure or err
        if failure is not None:
            self.endorser.failures.append(failure)
        return None


def complete(kind: Kind, completion: Completion) -> bytes | None:
    """Fills the gaps of ``completion.files`` in place; returns the JWKS when it fetched one.

    What a policy may do without is left out when it is not to be had, and
    ``completion.endorser.failures`` says why.

    Raises: AttestationError: malformed Evidence, a foreign root; FetchFailed: there is no verdict
    without it.
    """
    return _FILL[kind](completion)


def completed(
    kind: Kind, request: Request, endorser: Endorser, *, token_bytes: Callable[[int], bytes]
) -> Request:
    """``request`` with what vouches for its Evidence.  Raises: as ``complete``."""
    completion = Completion(
        evidence=request.evidence,
        files=request.files,
        endorser=endorser,
        anchors=request.anchors.of_kinds(request.policy.anchor_kinds | {"foreign"}),
        token_bytes=token_bytes,
        nras=request.nras,
        has_jwks=request.jwks is not None,
        ocsp_grace=ocsp_grace(request.policy),
    )
    jwks = complete(kind, completion)
    return request if jwks is None else replace(request, jwks=parse_jwks(jwks))


def _bundle(completion: Completion) -> bytes | None:
    bundle = parse_bundle(completion.evidence)
    if bundle.tee == "snp":
        carried = bundle.collateral if isinstance(bundle.collateral, SnpEndorsements) else None
        completion.fill_snp(bundle.quote, carried)
    elif bundle.collateral is None and bundle.tee in ("tdx", "fake-tdx"):
        completion.fill_tdx(bundle.quote)
    if bundle.gpu_endorsements is None:
        completion.fill_gpus(bundle.gpu)
    return completion.jwks(is_needed=bundle.nras is not None)


def _tinfoil(completion: Completion) -> bytes | None:
    session = parse_tinfoil(completion.evidence, nras=completion.nras)
    fill = completion.fill_snp if session.label == "snp" else completion.fill_tdx
    fill(session.cpu)
    completion.fill_gpus(session.gpu)
    return completion.jwks(is_needed=session.nras is not None)


def _quote(completion: Completion) -> None:
    completion.fill_tdx(completion.evidence)


def _snp(completion: Completion) -> None:
    completion.fill_snp(completion.evidence)


def _azure(completion: Completion) -> None:
    completion.fill_snp(parse_hcl(completion.evidence).report)


def _gpu(completion: Completion) -> None:
    """The chain comes from the device alone, so without it there is nothing to look up."""
    if len(completion.files.chains) != 1:
        return
    chain = completion.files.chains[0]
    arch = verify_device_chain(chain, anchors=completion.anchors, at=completion.endorser.at).arch
    completion.fill_gpus([GpuEntry(arch=arch, cert_chain=chain, report=completion.evidence)])


def _nras(completion: Completion) -> bytes | None:
    return completion.jwks(is_needed=True)


def _nothing(completion: Completion) -> None:
    """A Nitro document brings its whole chain."""


_FILL: Mapping[Kind, Callable[[Completion], bytes | None]] = {
    "bundle": _bundle,
    "tinfoil": _tinfoil,
    "quote": _quote,
    "snp": _snp,
    "azure-snp": _azure,
    "gpu": _gpu,
    "nras": _nras,
    "nitro": _nothing,
}
