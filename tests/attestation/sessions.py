"""Whole sessions to test with: CPU, GPU, token and keys that belong together, all of them fake.

Each part comes from its family's own fake; here they are made to answer one nonce. A test breaks
one tie at a time.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from attestation.anchors import TrustAnchors, load_anchors
from attestation.appraise import appraise
from attestation.binding import gpu_digest, gpu_nonce, keyset_digest, report_data, statement_bytes
from attestation.composite import Session, SessionEndorsements, appraise_session
from attestation.fake import FakeTee
from attestation.model import AttestationResult, EvidenceBundle, GpuEndorsements, GpuEntry
from attestation.nras.jwks import Jwks, parse_jwks
from attestation.policy import AppraisalPolicy, load_internal_policy, load_policy
from attestation.profiles import PROFILES, SessionFacts
from attestation.snp.endorsements import SnpEndorsements
from tests.attestation import samples
from tests.attestation.nras.samples import good_answer, to_json
from tests.attestation.nvidia.device import FakeDevice, hopper, pem
from tests.attestation.samples import AT, NONCE
from tests.support import fake_snp
from tests.vectors.nvidia_refs.pki import sign
from tests.vectors.nvidia_refs.rim_documents import document, resource

KEYSET = samples.keyset()
DEVICE_NONCE = gpu_nonce(NONCE, keyset_digest(KEYSET))
FACTS = SessionFacts(
    nonce=NONCE,
    tls_key_sha256=b"\1" * 32,
    hpke_key=b"\2" * 32,
    signing_address=b"\3" * 20,
    tag="app-data",
    content=b"content",
)


def all_anchors() -> TrustAnchors:
    """The shipped roots and those of the fakes, which count as vendors here."""
    snp = fake_snp.anchors(fake_snp.FakeSnp()).anchors
    return TrustAnchors(
        anchors=(
            *load_anchors().anchors,
            *(replace(anchor, kind="vendor") for anchor in snp),
            *hopper().pki.anchors.anchors,
        )
    )


def relaxed(**changes: Any) -> AppraisalPolicy:
    """Development's roots and the rules that ask for no RIMs, no OCSP answers and no CRL."""
    policy = load_internal_policy("vectors")
    development = load_policy("development")
    fields: dict[str, Any] = {
        "anchor_kinds": development.anchor_kinds,
        "profiles": development.profiles,
        "nras": "when_present",
        **changes,
    }
    return replace(policy, **fields)


def gpu_entry(device: FakeDevice | None = None, nonce: bytes = DEVICE_NONCE) -> GpuEntry:
    """A device's report and chain."""
    device = device or hopper()
    return GpuEntry(
        arch="HOPPER", cert_chain=pem(device.certificates()), report=device.report(nonce)
    )


def rims(device: FakeDevice | None = None) -> GpuEndorsements:
    """A driver and a VBIOS RIM that a GPU matches, under the root of ``nvidia_refs.pki``."""
    measured = (device or hopper()).measurements
    driver, vbios = (
        document(
            version=version,
            resources=tuple(resource(index, hashes=(measured[index].hex(),)) for index in indexes),
        )
        for version, indexes in (("590.12", range(21)), ("96.00.A5.00.01", range(21, 33)))
    )
    return GpuEndorsements(rims=(sign(driver).encode(), sign(vbios).encode()), ocsp=())


def token(nonce: bytes = DEVICE_NONCE, ueid: str = str(0x2000)) -> bytes:
    """NRAS's answer about one GPU."""
    answer = good_answer()
    answer.devices["GPU-0"].claims["ueid"] = ueid
    for each in (answer.overall, *answer.devices.values()):
        each.claims["eat_nonce"] = nonce.hex()
    return to_json(answer.bundle())


def jwks() -> Jwks:
    """The keys of that NRAS."""
    return parse_jwks(to_json(good_answer().jwks))


def bundle(
    gpu: tuple[GpuEntry, ...] = (), nras: bytes | None = None, tee: str = "fake-tdx"
) -> EvidenceBundle:
    """A bundle that commits to these devices, by a FakeTee or a fake SNP machine."""
    statement = statement_bytes(
        nonce=NONCE, keyset_sha256=keyset_digest(KEYSET), gpu_sha256=gpu_digest(gpu)
    )
    wanted = report_data(statement)
    if tee == "snp":
        machine = fake_snp.FakeSnp()
        quote = machine.report(report_data=wanted)
        collateral: Any = SnpEndorsements(
            vek=machine.vek(), chain=machine.chain(), crl=machine.crl()
        )
    else:
        quote, collateral = FakeTee().attest(wanted, at=AT)
    return EvidenceBundle(
        tee=tee,
        quote=quote,
        event_log=None,
        statement=statement.decode(),
        keyset=KEYSET,
        gpu=gpu,
        collateral=collateral,
        nras=nras,
    )


def judge_bundle(evidence: EvidenceBundle, **changes: Any) -> AttestationResult:
    """The verdict with all that is needed at hand."""
    given: dict[str, Any] = {
        "nonce": NONCE,
        "policy": relaxed(),
        "anchors": all_anchors(),
        "at": AT,
        "jwks": jwks(),
        **changes,
    }
    return appraise(evidence, **given)


@dataclass(frozen=True)
class Peer:
    """A server that binds by ``profile`` and is honest about ``facts``."""

    profile: str
    facts: SessionFacts = field(default=FACTS)

    def session(self, **changes: Any) -> Session:
        """Its session, with REPORT_DATA over its own facts."""
        quote = FakeTee().quote(PROFILES[self.profile].report_data(self.facts))
        fields: dict[str, Any] = {
            "profile": self.profile,
            "label": "fake-tdx",
            "cpu": quote,
            "gpu": (),
            "stated": self.facts,
            "certificate_key_sha256": self.facts.tls_key_sha256,
            "gpu_sha256": None,
            **changes,
        }
        return Session(**fields)


def judge_session(session: Session, **changes: Any) -> AttestationResult:
    """The verdict of a RelyingParty that knows NONCE and FACTS' TLS key."""
    given: dict[str, Any] = {
        "nonce": NONCE,
        "tls_key_sha256": FACTS.tls_key_sha256,
        "endorsements": SessionEndorsements(cpu=FakeTee().collateral(AT), jwks=jwks()),
        "policy": relaxed(),
        "anchors": all_anchors(),
        "at": AT,
        **changes,
    }
    return appraise_session(session, **given)
