"""An Azure blob with its TPM's answer to our nonce: one verdict, fresh only by that answer."""

import hashlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import attestation
from attestation.appraise import appraise_report
from attestation.appraise_azure import appraise_azure
from attestation.cli import attest
from attestation.model import AttestationResult
from attestation.policy import load_policy
from attestation.snp.azure import TpmAnswer
from attestation.snp.endorsements import SnpEndorsements
from tests.attestation import samples
from tests.attestation.samples import failures
from tests.attestation.sessions import all_anchors, relaxed
from tests.attestation.snp.azure_samples import (
    HCL,
    NONCE,
    PCRS,
    QUOTE,
    QUOTE_SIGNATURE,
    hcl,
    quote,
    sign_quote,
)
from tests.support.fake_snp import AT, FakeSnp, rsa_key

ANSWER = TpmAnswer(attest=QUOTE, signature=QUOTE_SIGNATURE, nonce=NONCE)


def _endorsements() -> SnpEndorsements:
    machine = FakeSnp()
    return SnpEndorsements(vek=machine.vek(), chain=machine.chain(), crl=machine.crl())


def _judge(
    answer: TpmAnswer = ANSWER, blob: bytes = HCL, at: datetime = AT, **policy: Any
) -> AttestationResult:
    return appraise_azure(
        blob,
        _endorsements(),
        answer=answer,
        policy=relaxed(**policy),
        anchors=all_anchors(),
        at=at,
    )


def test_a_quote_by_the_attested_key_makes_the_blob_fresh() -> None:
    result = _judge()

    assert failures(result) == []
    assert result.is_accepted
    assert not any(gap.startswith("freshness") for gap in result.not_covered)
    pcrs = "pcrs: what the TPM quoted is told, and compared with no reference values"
    assert pcrs in result.not_covered
    assert any(gap.startswith("channel:") for gap in result.not_covered)
    assert [c.outcome for c in result.checks if c.name == "tpm_quote"] == ["pass"]


def test_pcrs_and_key_are_told() -> None:
    claims = _judge().claims

    assert claims["tpm_pcrs"] == tuple(str(index) for index in PCRS)
    digest = hashlib.sha256(b"\1" * 32 + b"\2" * 32 + b"\3" * 32).hexdigest()
    assert claims["tpm_pcr_digest"] == digest
    assert claims["tpm_nonce"] == NONCE.hex()
    assert claims["azure_ak_modulus"] == f"{rsa_key('ak').public_key().public_numbers().n:x}"


def test_without_a_quote_freshness_is_open_as_before() -> None:
    result = appraise_report(
        "azure-snp", HCL, _endorsements(), policy=relaxed(), anchors=all_anchors(), at=AT
    )

    assert result.is_accepted
    assert any("only a TPM quote" in gap for gap in result.not_covered)
    assert "tpm_pcrs" not in result.claims


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (replace(ANSWER, nonce=bytes(32)), "nonce_mismatch"),
        (replace(ANSWER, nonce=b""), "nonce_length"),
        (replace(ANSWER, nonce=NONCE[:31]), "nonce_length"),
        (replace(ANSWER, nonce=NONCE + b"\0"), "nonce_length"),
        (TpmAnswer(attest=quote(b""), signature=sign_quote(quote(b"")), nonce=b""), "nonce_length"),
        (replace(ANSWER, signature=sign_quote(QUOTE, "other")), "quote_signature"),
        (replace(ANSWER, attest=quote(bytes(32))), "quote_signature"),
        (replace(ANSWER, attest=QUOTE + b"\0"), "trailing_bytes"),
        (replace(ANSWER, attest=b""), "format"),
        (replace(ANSWER, signature=b""), "format"),
    ],
)
def test_another_answer_is_refused(answer: TpmAnswer, code: str) -> None:
    result = _judge(answer)

    assert (result.code, result.is_accepted) == (code, False)
    assert [c.name for c in result.checks if c.outcome == "fail"] == ["tpm_quote"]


def test_the_rules_of_the_policy_are_asked() -> None:
    strict = load_policy("production").rules["snp"]
    result = _judge(rules={**relaxed().rules, "snp": strict})

    assert not result.is_accepted
    assert result.code in {check.code for check in result.checks if check.outcome == "fail"}
    assert "remaining" in [check.name for check in result.checks]


def test_everything_else_is_judged_as_without_a_quote() -> None:
    foreign = hcl(report=FakeSnp().report(report_data=bytes(64)))

    assert _judge(blob=foreign).code == "report_data"
    assert _judge(blob=b"HCLA").code == "format"
    assert _judge(cpu=frozenset({"tdx"})).code == "tee_type"
    assert _judge(at=samples.AT.replace(year=2040)).code in ("certificate_time", "crl_expired")
    without = appraise_azure(
        HCL, None, answer=ANSWER, policy=relaxed(), anchors=all_anchors(), at=AT
    )
    assert without.code == "endorsement_missing"


def test_by_hand(tmp_path: Path) -> None:
    """Two more files and the nonce; one without the other, or for another kind, is no question."""
    machine = FakeSnp()
    files = {
        "blob": HCL,
        "vek": machine.vek(),
        "chain": machine.chain(),
        "crl": machine.crl(),
        "root": machine.ark(),
        "quote": QUOTE,
        "signature": QUOTE_SIGNATURE,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    paths = {name: str(tmp_path / name) for name in files}
    policy = Path(attestation.__file__).parent / "policies" / "vectors.toml"

    def run(*arguments: str) -> Result:
        command = ["verify", paths["blob"], "--offline", "--at", AT.isoformat()]
        command += ["--policy", str(policy), "--trust-anchor", paths["root"]]
        for name in ("vek", "chain", "crl"):
            command += ["--collateral", paths[name]]
        return CliRunner().invoke(attest, [*command, *arguments], env={"COLUMNS": "200"})

    quoted = ("--tpm-quote", paths["quote"], "--tpm-signature", paths["signature"])
    nonce = ("--nonce", NONCE.hex())

    without, fresh = run(), run(*quoted, *nonce)
    assert (without.exit_code, fresh.exit_code) == (0, 0), without.output + fresh.output
    assert "not covered  freshness" in without.output
    assert "not covered  freshness" not in fresh.output
    stale = run(*quoted, "--nonce", "00" * 32)
    assert (stale.exit_code, "nonce_mismatch" in stale.output) == (10, True)
    swapped = ("--tpm-quote", paths["signature"], "--tpm-signature", paths["quote"])
    assert run(*swapped, *nonce).exit_code == 30
    assert run(*nonce).exit_code == 10  # a blob alone holds no nonce
    for wrong in (quoted, (*quoted[:2], *nonce), (*quoted[2:], *nonce)):
        assert run(*wrong).exit_code == 2
    assert run(*quoted, *nonce, "--kind", "snp").exit_code == 2
    assert run("--tpm-quote", "none", *quoted[2:], *nonce).exit_code == 2
