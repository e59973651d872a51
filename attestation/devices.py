"""Are the GPUs behind this CPU TEE genuine, fresh and known, and does NRAS say so too?

All answer one nonce, which the binding profile derives.  GPU evidence is not bound to the CPU TEE
that presents it until TDISP is in use: the nonce, the measured guest that collected it and a list
of devices in the policy are all that hold a relayed GPU off, and the verdict says so.
"""

from collections.abc import Sequence
from datetime import timedelta

from attestation.anchors import TrustAnchors
from attestation.draft import Draft
from attestation.errors import EndorsementMismatch, UntrustedEndorsement
from attestation.model import ClaimValue, GpuEndorsements, GpuEntry
from attestation.nras.jwks import Jwks
from attestation.nras.token import NrasClaims, verify_nras
from attestation.nvidia.measurements import VerifiedRims
from attestation.nvidia.ocsp import NO_GRACE
from attestation.nvidia.ocsp_answer import select_answers
from attestation.nvidia.report import DeviceReport, parse_report
from attestation.nvidia.rim import RimKind, VerifiedRim, verify_rim
from attestation.nvidia.rules import RevocationChecked
from attestation.nvidia.topology import GpuSystem, assemble
from attestation.nvidia.verifier import GpuClaims, GpuVerifier, OcspAnswers
from attestation.policy import AppraisalPolicy
from attestation.strict_json import format_time
from attestation.x509 import KeyKind, parse_chain

_RELAY = "gpu_relay: without TDISP a GPU of another machine could be presented as this one's"
_NO_OWN_CHECK = (
    "gpu: only NVIDIA's service looked at the GPUs, their own reports did not come along"
)
_JWKS = "nras_keys: the keys of NVIDIA's service are trusted as given, no root pins them"
_NO_OCSP = "revocation: no OCSP answer says that the certificates of {} are not revoked"
_NO_RIM_OCSP = "revocation: nobody was asked whether the signers of reference values are revoked"
_SWITCH_ARCH = "LS10"
_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384"})


def verify_gpus(
    draft: Draft,
    entries: Sequence[GpuEntry],
    *,
    nonce: bytes,
    anchors: TrustAnchors,
    endorsements: GpuEndorsements | None,
) -> GpuSystem:
    """Every device, then that they make one machine; admitted as the section ``nvidia``.

    Raises: AttestationError.
    """
    narrowed = draft.narrowed(anchors)
    rims = _verify_rims(draft, endorsements, narrowed)
    verifier = GpuVerifier(anchors=narrowed, cache=draft.cache, ocsp_grace=ocsp_grace(draft.policy))
    claims = []
    for index, entry in enumerate(entries):
        label = f"gpu-{index}"
        device = verifier.verify(
            entry,
            nonce=nonce,
            at=draft.at,
            log=draft.log,
            rims=None if rims is None else _select_rims(entry, rims),
            ocsp=_select_ocsp(entry, endorsements),
            label=label,
        )
        if device.revocation is None:
            draft.not_covered.append(_NO_OCSP.format(label))
        if device.late_since is not None:
            ended = format_time(device.late_since)
            draft.shortfalls.append((f"{label}_ocsp_grace", f"an OCSP answer that ended {ended}"))
        draft.add_submodule(label, anchors=device.anchors, facts=gpu_facts(device))
        claims.append(device)
    with draft.log.step("gpu_topology", "the devices make one machine, each of them once"):
        system = assemble(claims)
    draft.admit(
        "nvidia",
        submodules=[f"gpu-{index}" for index in range(len(claims))],
        verified=system,
        not_after=system.not_after,
    )
    draft.not_covered.append(_RELAY)
    if rims is not None:
        draft.not_covered.append(_NO_RIM_OCSP)
    return system


def ocsp_grace(policy: AppraisalPolicy) -> timedelta:
    """How late an OCSP answer may be; a policy without its rule on revocation gives no grace."""
    rules = policy.rules.get("nvidia", ())
    return max(
        (rule.grace for rule in rules if isinstance(rule, RevocationChecked)), default=NO_GRACE
    )


def verify_token(
    draft: Draft, eat: bytes, *, nonce: bytes, jwks: Jwks | None, system: GpuSystem | None
) -> NrasClaims:
    """NRAS's answer, about the very devices that were appraised here; admitted as ``nras``.

    Raises: AttestationError.
    """
    log = draft.log.scoped("nras")
    with log.step("jwks", "the keys of NVIDIA's service are at hand"):
        if jwks is None:
            raise UntrustedEndorsement("endorsement_missing", "no JWKS to check the token with")
    claims = verify_nras(eat, jwks, nonce=nonce, at=draft.at, log=log)
    if system is not None:
        with log.step("same_devices", "the token is about the devices that were appraised here"):
            _require_same_devices(claims, system)
    draft.add_submodule("nras", anchors=(), facts=nras_facts(claims))
    draft.admit("nras", submodules=["nras"], verified=claims, not_after=claims.not_after)
    draft.not_covered.append(_JWKS)
    if system is None:
        draft.not_covered.append(_NO_OWN_CHECK)
    return claims


def gpu_facts(claims: GpuClaims) -> dict[str, ClaimValue]:
    """One device's claims as the verdict shows them; EAT's names where it has some."""
    opaque = claims.report.opaque
    return {
        "arch": claims.arch,
        "hwmodel": claims.identity.hwmodel,
        "ueid": claims.identity.ueid,
        "eat_nonce": claims.report.request_nonce.hex(),
        "mode": claims.mode or "",
        "driver_version": opaque.driver_version or "",
        "vbios_version": opaque.vbios_version,
        "fwid": "" if opaque.fwid is None else opaque.fwid.hex(),
        "measurements_matched": 0
        if claims.measurements is None
        else claims.measurements.num_matched,
        "revocation": _revocation(claims),
    }


def nras_facts(claims: NrasClaims) -> dict[str, ClaimValue]:
    """The token's claims as the verdict shows them."""
    return {
        "claims_version": claims.version,
        "eat_nonce": claims.nonce.hex(),
        "issued_at": format_time(claims.issued_at),
        "devices": tuple(device.name for device in claims.devices),
        "ueids": tuple(device.ueid for device in claims.devices),
        "hwmodels": tuple(device.hw_model for device in claims.devices),
    }


def _revocation(claims: GpuClaims) -> str:
    if claims.revocation is None:
        return "not checked"
    return "good" if claims.late_since is None else "good, but late"


def _verify_rims(
    draft: Draft, endorsements: GpuEndorsements | None, anchors: TrustAnchors
) -> list[VerifiedRim] | None:
    if endorsements is None or not endorsements.rims:
        return None
    with draft.log.step("gpu_rims", "the reference values are signed by NVIDIA's role for them"):
        return [verify_rim(xml, anchors=anchors, at=draft.at) for xml in endorsements.rims]


def _select_rims(entry: GpuEntry, rims: Sequence[VerifiedRim]) -> VerifiedRims:
    """By what the report says it runs, which the match then holds it to."""
    if entry.arch == _SWITCH_ARCH:
        report = parse_report(entry.report, "switch")
        return VerifiedRims(driver=None, firmware=_find(rims, "switch", report))
    report = parse_report(entry.report, "gpu")
    return VerifiedRims(driver=_find(rims, "driver", report), firmware=_find(rims, "vbios", report))


def _find(rims: Sequence[VerifiedRim], kind: RimKind, report: DeviceReport) -> VerifiedRim | None:
    opaque = report.opaque
    version = opaque.driver_version if kind == "driver" else opaque.vbios_version
    fitting = [
        rim for rim in rims if rim.kind == kind and rim.version.upper() == (version or "").upper()
    ]
    same_chip = [rim for rim in fitting if rim.product == opaque.chip_info]
    return next(iter(same_chip or fitting), None)


def _select_ocsp(entry: GpuEntry, endorsements: GpuEndorsements | None) -> OcspAnswers | None:
    """The answers about this chain's certificates 1 to 3."""
    if endorsements is None or not endorsements.ocsp:
        return None
    chain = parse_chain(entry.cert_chain, what="device chain", key_kinds=_KEY_KINDS)
    answers = select_answers(endorsements.ocsp, chain)
    return OcspAnswers(answers=answers, nonces=(None,) * len(answers))


def _require_same_devices(claims: NrasClaims, system: GpuSystem) -> None:
    told = {device.ueid for device in claims.devices}
    seen = {device.identity.ueid for device in system.devices}
    if told != seen:
        raise EndorsementMismatch(
            "hwid_mismatch",
            f"the token is about {len(told)} devices, {len(told & seen)} are here",
        )
