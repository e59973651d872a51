"""Is Evidence of each kind judged by its own verifier, with the files and nonce that it needs?"""

import base64
import hashlib
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.anchors import load_anchors
from attestation.appraise_device import appraise_gpus
from attestation.endorsement_files import EndorsementFiles
from attestation.errors import AttestationError
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.judging import NONCE_NEEDED, Request, judge
from attestation.kinds import KINDS, Kind
from attestation.model import AttestationResult
from attestation.profiles import PROFILES
from attestation.snp.azure import TpmAnswer
from attestation.tinfoil import FORMAT_V3
from tests.attestation import samples, sessions
from tests.attestation.nitro import samples as nitro
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nvidia.device import hopper, pem
from tests.attestation.samples import AT, NONCE, failures
from tests.support.fake_snp import FakeSnp

_NO_CONNECTION = "channel: no connection is bound: no TLS key was compared with the keyset's"


def _request(evidence: bytes, **changes: Any) -> Request:
    given: dict[str, Any] = {
        "nonce": NONCE,
        "files": EndorsementFiles(),
        "jwks": sessions.jwks(),
        "nras": None,
        "tls_key_sha256": None,
        "policy": sessions.relaxed(),
        "anchors": sessions.all_anchors(),
        "at": AT,
        **changes,
    }
    return Request(evidence=evidence, **given)


def _judge(kind: Kind, evidence: bytes, **changes: Any) -> AttestationResult:
    return judge(kind, _request(evidence, **changes))


def _snp_files(machine: FakeSnp) -> EndorsementFiles:
    return EndorsementFiles(
        certificates=[machine.vek()], chains=[machine.chain()], crls=[machine.crl()]
    )


def test_kinds_that_are_never_judged_without_a_nonce() -> None:
    assert {"bundle", "tinfoil", "gpu", "nras"} == NONCE_NEEDED
    for kind in NONCE_NEEDED:
        with pytest.raises(AttestationError) as caught:
            _ = _request(b"", nonce=None).own_nonce
        assert caught.value.code == "nonce_length"
        assert not _judge(kind, b"", nonce=None).is_accepted
    token = sessions.token(NONCE)
    assert _judge("nras", token, nonce=None).code == "nonce_length"


def test_every_kind_has_its_judge() -> None:
    for kind in KINDS:
        result = _judge(kind, b"\x00")
        assert (result.is_accepted, result.tier) == (False, "none"), kind


def test_a_bundle_with_the_files_of_its_own_tee() -> None:
    machine = FakeSnp()
    tdx, snp = sessions.bundle(), sessions.bundle(tee="snp")
    own = EndorsementFiles(tdx=FakeTee().collateral(AT))
    for bundle, files, others in (
        (tdx, own, _snp_files(machine)),
        (snp, _snp_files(machine), own),
    ):
        bare = replace(bundle, collateral=None).to_json()
        assert failures(_judge("bundle", bare, files=files)) == []
        assert _judge("bundle", bare, files=others).code == "endorsement_missing"


def test_a_bundle_of_a_connection() -> None:
    key = b"\7" * 32
    keyset = samples.keyset(tls_keys=(key,))
    bundle = make_bundle(FakeTee(), NONCE, keyset, AT).to_json()

    bound, open_ = (_judge("bundle", bundle, tls_key_sha256=own) for own in (key, None))
    assert bound.is_accepted
    assert _NO_CONNECTION not in bound.not_covered
    assert open_.not_covered == (*bound.not_covered, _NO_CONNECTION)
    assert _judge("bundle", bundle, tls_key_sha256=bytes(32)).code == "channel_binding"


def _tinfoil(platform: str, cpu: bytes) -> bytes:
    facts = sessions.FACTS
    assert facts.tls_key_sha256 is not None
    assert facts.hpke_key is not None
    document = {
        "format": FORMAT_V3,
        "report_data": {
            "tls_key_fp": facts.tls_key_sha256.hex(),
            "hpke_key": facts.hpke_key.hex(),
            "nonce": NONCE.hex(),
        },
        "cpu": {"platform": platform, "report": base64.b64encode(cpu).decode()},
    }
    return json.dumps(document).encode()


def test_a_tinfoil_document_with_the_files_of_its_own_tee() -> None:
    machine = FakeSnp()
    data = PROFILES["tinfoil-v3"].report_data(sessions.FACTS)
    own = EndorsementFiles(tdx=FakeTee().collateral(AT))
    snp = _tinfoil("sev-snp", machine.report(report_data=data))
    tls = {"tls_key_sha256": sessions.FACTS.tls_key_sha256}

    assert failures(_judge("tinfoil", snp, files=_snp_files(machine), **tls)) == []
    assert _judge("tinfoil", snp, files=own, **tls).code == "endorsement_missing"
    tdx = _tinfoil("tdx", FakeTee().quote(data))
    with_own, without = (_judge("tinfoil", tdx, files=f, **tls) for f in (own, _snp_files(machine)))
    assert with_own.code != "endorsement_missing"
    assert without.code == "endorsement_missing"


def test_a_quote_that_cannot_be_read_is_that_with_and_without_collateral() -> None:
    for files in (EndorsementFiles(), EndorsementFiles(tdx=FakeTee().collateral(AT))):
        assert _judge("quote", b"\4\0", files=files).code == "format"


@pytest.mark.parametrize("num_zeros", [31, 32, 33])
def test_the_nonce_of_bare_evidence_is_followed_by_zeros(num_zeros: int) -> None:
    """REPORT_DATA has 64 bytes: what stands behind the nonce must be nothing."""
    data = (NONCE + bytes(num_zeros) + b"\1" * 32)[:64]
    machine = FakeSnp()
    quote, collateral = FakeTee().attest(data, at=AT)
    report = machine.report(report_data=data)
    quoted = _judge("quote", quote, files=EndorsementFiles(tdx=collateral))
    reported = _judge("snp", report, files=_snp_files(machine))

    for result in (quoted, reported):
        is_bound = [c.outcome for c in result.checks if c.name == "report_data"] == ["pass"]
        assert is_bound == (num_zeros >= 32)


def test_a_nitro_document_holds_the_bare_nonce() -> None:
    document = nitro.good_document().to_bytes()

    def bound(own: bytes) -> list[str]:
        given = {"nonce": own, "at": nitro.AT, "anchors": VERIFIER.anchors}
        result = _judge("nitro", document, **given)
        return [check.outcome for check in result.checks if check.name == "report_data"]

    assert bound(nitro.NONCE) == ["pass"]
    assert bound(bytes(32)) == ["fail"]


def test_a_gpu_under_a_root_of_the_callers() -> None:
    device = hopper()
    files = EndorsementFiles(chains=[pem(device.certificates())])
    own = load_anchors().with_foreign(device.pki.root.public_bytes(Encoding.DER), source="test")
    report = device.report(NONCE)

    def judged(at: datetime = AT, **changes: Any) -> AttestationResult:
        return _judge("gpu", report, files=files, at=at, **changes)

    assert judged().tier == "affirming"
    vendors_alone = sessions.relaxed(anchor_kinds=frozenset({"vendor"}))
    assert judged(anchors=own, policy=vendors_alone).tier == "warning"
    assert judged(anchors=load_anchors()).code == "untrusted_root"
    assert _judge("gpu", report).code == "endorsement_missing"


def test_devices_alone_vouch_for_no_machine() -> None:
    told = "cpu: no CPU TEE vouches for the machine that these devices are in"
    device = hopper()
    files = EndorsementFiles(chains=[pem(device.certificates())])
    gpu = _judge("gpu", device.report(NONCE), files=files)
    token = _judge("nras", sessions.token(NONCE))

    for result in (gpu, token):
        assert result.is_accepted
        assert told in result.not_covered
        assert result.checks[0].name == "evidence_kind"
    assert gpu.evidence_sha256 == hashlib.sha256(device.report(NONCE)).hexdigest()


@pytest.mark.parametrize(("kind", "what"), [("gpu", "GPU evidence"), ("nras", "NRAS token")])
def test_devices_that_a_policy_refuses_are_not_looked_at(kind: Kind, what: str) -> None:
    device = hopper()
    evidence = {"gpu": device.report(NONCE), "nras": sessions.token(NONCE)}[kind]
    files = EndorsementFiles(chains=[pem(device.certificates())])
    result = _judge(kind, evidence, files=files, policy=sessions.relaxed(**{kind: "refused"}))

    assert [check.name for check in result.checks] == ["evidence_kind", "remaining"]
    assert not result.is_accepted
    assert result.code == "evidence_refused"
    assert result.checks[0].reason == f"the policy takes no {what} and some came"


@pytest.mark.parametrize(
    ("kind", "required", "what"),
    [
        ("quote", "gpu", "GPU evidence"),
        ("quote", "nras", "NRAS token"),
        ("snp", "nras", "NRAS token"),
        ("azure-snp", "gpu", "GPU evidence"),
        ("azure-snp", "nras", "NRAS token"),
        ("nitro", "nras", "NRAS token"),
        ("gpu", "nras", "NRAS token"),
        ("nras", "gpu", "GPU evidence"),
    ],
)
def test_one_part_is_not_all_that_a_policy_requires(kind: Kind, required: str, what: str) -> None:
    device = hopper()
    evidence = {"gpu": device.report(NONCE), "nras": sessions.token(NONCE)}.get(kind, b"")
    files = EndorsementFiles(chains=[pem(device.certificates())])
    policy = sessions.relaxed(**{required: "required"})

    for tpm in (None, TpmAnswer(attest=b"", signature=b"", nonce=NONCE)):
        result = _judge(kind, evidence, files=files, policy=policy, tpm=tpm)
        assert (result.is_accepted, result.code) == (False, "evidence_missing")
        check = result.checks[0]
        assert check.name == "evidence_kind"
        assert check.reason == f"the policy requires {what} and none came"


def test_two_devices_are_one_piece_of_evidence() -> None:
    entries = [sessions.gpu_entry(device, NONCE) for device in (hopper(), hopper(1))]
    result = appraise_gpus(
        entries, nonce=NONCE, at=AT, policy=sessions.relaxed(), anchors=sessions.all_anchors()
    )

    both = entries[0].report + entries[1].report
    assert result.evidence_sha256 == hashlib.sha256(both).hexdigest()


def test_a_pinned_root_stays_what_it_is_when_it_is_added_by_hand() -> None:
    shipped = load_anchors()
    root = FakeTee().pki.root.public_bytes(Encoding.DER)

    assert shipped.with_foreign(root, source="test") == shipped


def test_no_devices_are_none() -> None:
    policy = sessions.relaxed(gpu="required")
    result = appraise_gpus((), nonce=NONCE, at=AT, policy=policy, anchors=load_anchors())

    assert (result.code, result.tier) == ("evidence_missing", "contraindicated")
