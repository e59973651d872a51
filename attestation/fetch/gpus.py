"""Which RIMs and OCSP answers do these devices need, and where are they?

A RIM's id is made of a signed report's words, and only of a device whose chain ends in a pinned
root; an id that the service does not know is a missing reference value, never another version's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from attestation.anchors import TrustAnchors
from attestation.errors import MalformedEvidence, UntrustedEndorsement
from attestation.fetch.cache import Window
from attestation.fetch.endorser import Endorser, ObjectSpec
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Fetcher
from attestation.fetch.nvidia import OCSP_NONCE_BYTES, fetch_ocsp, fetch_rim
from attestation.model import GpuEndorsements, GpuEntry
from attestation.nvidia.chain import DeviceIdentity, verify_device_chain
from attestation.nvidia.ocsp import NO_GRACE, verify_ocsp
from attestation.nvidia.opaque import OpaqueData
from attestation.nvidia.report import parse_report
from attestation.nvidia.rim import RimKind, require_rim, verify_rim
from attestation.nvidia.rim_service import driver_rim_id, switch_rim_id, vbios_rim_id
from attestation.x509 import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class _RimName:
    """One RIM: its id at the service, and what it must turn out to be."""

    rim_id: str
    kind: RimKind
    product: str
    version: str


def gpu_endorsements(
    endorser: Endorser,
    entries: Sequence[GpuEntry],
    *,
    anchors: TrustAnchors,
    token_bytes: Callable[[int], bytes],
    ocsp_grace: timedelta = NO_GRACE,
) -> GpuEndorsements:
    """RIMs and OCSP answers for all devices, each once; ``token_bytes`` draws nonces.

    An answer that ended less than ``ocsp_grace`` ago is better than none, and not than another.
    What is not to be had is left out, and ``endorser.failures`` says why: whether that is
    acceptable is the policy's question.

    Raises: AttestationError: a malformed report, a foreign root.
    """
    rims: dict[str, ObjectSpec] = {}
    answers: dict[str, ObjectSpec] = {}
    for entry in entries:
        identity = verify_device_chain(entry.cert_chain, anchors=anchors, at=endorser.at)
        opaque = parse_report(entry.report, identity.kind).opaque
        for name in _rim_names(identity, opaque):
            rims[name.rim_id] = _rim(endorser, name, anchors)
        for subject, issuer in _links(identity):
            spec = _ocsp(endorser, subject, issuer, token_bytes, ocsp_grace)
            answers[spec.slot] = spec
    return GpuEndorsements(
        rims=_all(endorser, rims.values()), ocsp=_all(endorser, answers.values())
    )


def _all(endorser: Endorser, specs: Iterable[ObjectSpec]) -> tuple[bytes, ...]:
    found = (endorser.try_get(spec) for spec in specs)
    return tuple(data for data in found if data is not None)


def _links(identity: DeviceIdentity) -> Iterator[tuple[Certificate, Certificate]]:
    """Those that NVIDIA's responder knows: all but the leaf and the root."""
    return pairwise(identity.chain.certificates[1:])


def _rim_names(identity: DeviceIdentity, opaque: OpaqueData) -> tuple[_RimName, ...]:
    if identity.arch == "LS10":
        switch = switch_rim_id(opaque.vbios_version)
        return (_name(switch, "switch", identity, opaque),)
    if opaque.driver_version is None:
        raise MalformedEvidence("format", "report: a GPU without driver version")
    driver = driver_rim_id(identity.arch, opaque.driver_version, chip=opaque.chip_info)
    vbios = vbios_rim_id(
        project=opaque.project or "",
        project_sku=opaque.project_sku or "",
        chip_sku=opaque.chip_sku or "",
        vbios_version=opaque.vbios_version,
    )
    return (
        _name(driver, "driver", identity, opaque),
        _name(vbios, "vbios", identity, opaque),
    )


def _name(rim_id: str, kind: RimKind, identity: DeviceIdentity, opaque: OpaqueData) -> _RimName:
    """The chip as RIMs name it: what the report says it is, else what its certificates say."""
    version = opaque.driver_version if kind == "driver" else opaque.vbios_version
    return _RimName(
        rim_id=rim_id, kind=kind, product=opaque.chip_info or identity.chip, version=version or ""
    )


def _rim(endorser: Endorser, name: _RimName, anchors: TrustAnchors) -> ObjectSpec:
    def verify(data: bytes) -> Window:
        rim = verify_rim(data, anchors=anchors, at=endorser.at)
        require_rim(rim, kind=name.kind, product=name.product, version=name.version)
        return Window(next_update=rim.not_after)

    return ObjectSpec(
        what=name.rim_id,
        slot=f"nvidia/rim/{name.rim_id}",
        code="endorsement_missing",
        service="rim",
        fetch=lambda fetcher, base: fetch_rim(fetcher, base, name.rim_id),
        verify=verify,
    )


def _ocsp(
    endorser: Endorser,
    subject: Certificate,
    issuer: Certificate,
    token_bytes: Callable[[int], bytes],
    grace: timedelta,
) -> ObjectSpec:
    def judge(data: bytes, nonce: bytes | None) -> Window:
        answer = verify_ocsp(
            data, subject=subject, issuer=issuer, at=endorser.at, nonce=nonce, grace=grace
        )
        return Window(issued=answer.this_update, next_update=answer.next_update)

    def fetch(fetcher: Fetcher, base: str) -> bytes:
        nonce = token_bytes(OCSP_NONCE_BYTES)
        data = fetch_ocsp(fetcher, base, subject=subject, issuer=issuer, nonce=nonce)
        try:
            judge(data, nonce)
        except UntrustedEndorsement as err:
            if err.code != "crl_missing":
                raise
            raise FetchFailed("crl_missing", "not_found", str(err)) from err
        return data

    return ObjectSpec(
        what=f"OCSP answer about {subject.common_name[:64]}",
        slot=f"nvidia/ocsp/{issuer.sha256[:16]}/{subject.sha256[:16]}",
        code="crl_missing",
        service="ocsp",
        fetch=fetch,
        verify=lambda data: judge(data, None),
        grace=grace,
    )
