"""Evidence to test with: good by default, so that a test changes the one thing it is about."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.errors import PolicyViolation
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.fake.pki import TCB_SIGNER_NAME
from attestation.keyset import OhttpKey, TlsKey, build_keyset
from attestation.model import AttestationResult, EvidenceBundle, Nonce
from attestation.policy import AppraisalPolicy, load_policy
from attestation.strict_json import JsonObject
from attestation.tdx.endorsements import TdxCollateral

AT = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
NONCE = Nonce(bytes(range(32)))
OTHER_NONCE = Nonce(bytes(range(1, 33)))


class Refuse:
    """A rule that no claims follow."""

    name = "refuse"
    passed = ""

    def require(self, claims: object) -> None:
        raise PolicyViolation("claims", "never good")


def keyset(
    *,
    replica: str = "worker-0",
    config_sha256: str = "11" * 32,
    tls_keys: tuple[bytes, ...] = (),
) -> JsonObject:
    """A keyset that lives five minutes from AT."""
    return build_keyset(
        not_after=AT + timedelta(minutes=5),
        replica=replica,
        mode="terminate",
        ohttp=[OhttpKey(key_id=1, kem=0x20, config_sha256=config_sha256)],
        policy_sha256="44" * 32,
        tls=[TlsKey(spki_sha256=key.hex(), host="127.0.0.1") for key in tls_keys],
        weights_sha256=["55" * 32],
        build={"version": "0.1.0"},
    )


def evidence(tee: FakeTee | None = None) -> EvidenceBundle:
    """A bundle of a FakeTee that answers NONCE at AT."""
    return make_bundle(tee or FakeTee(), NONCE, keyset(), AT)


def judge(
    bundle: EvidenceBundle,
    *,
    policy: str | AppraisalPolicy = "development",
    nonce: Nonce = NONCE,
    at: datetime = AT,
    tls_key_sha256: bytes | None = None,
) -> AttestationResult:
    """The verdict under a shipped policy and the shipped anchors."""
    return appraise(
        bundle,
        nonce=nonce,
        policy=load_policy(policy) if isinstance(policy, str) else policy,
        anchors=load_anchors(),
        at=at,
        tls_key_sha256=tls_key_sha256,
    )


def with_collateral(
    bundle: EvidenceBundle, change: Callable[[TdxCollateral], TdxCollateral]
) -> EvidenceBundle:
    """The bundle with its collateral changed, and not signed again."""
    assert isinstance(bundle.collateral, TdxCollateral)
    return replace(bundle, collateral=change(bundle.collateral))


def resign_tcb_info(tee: FakeTee, text: str) -> Callable[[TdxCollateral], TdxCollateral]:
    """A change that puts another TCB info in place, correctly signed."""
    signature = tee.pki.sign(TCB_SIGNER_NAME, text.encode())
    return lambda collateral: replace(collateral, tcb_info=text, tcb_info_signature=signature)


def resign_qe_identity(tee: FakeTee, text: str) -> Callable[[TdxCollateral], TdxCollateral]:
    """A change that puts another QE identity in place, correctly signed."""
    signature = tee.pki.sign(TCB_SIGNER_NAME, text.encode())
    return lambda collateral: replace(collateral, qe_identity=text, qe_identity_signature=signature)


def flip_bit(data: bytes, bit: int) -> bytes:
    """``data`` with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def failures(result: AttestationResult) -> list[str | None]:
    """The codes of all failed checks."""
    return [check.code for check in result.checks if check.outcome == "fail"]
