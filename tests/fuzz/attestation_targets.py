"""Parsers of Intel's and AMD's Evidence, of certificates, and of what holds them together."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from cryptography.hazmat.primitives.serialization import Encoding

from attestation import der, strict_json
from attestation.anchors import load_anchors
from attestation.certificate import Certificate, KeyKind, parse_certificate, parse_chain
from attestation.endorsement_files import sort_endorsements
from attestation.errors import AttestationError
from attestation.eventlog.ccel import parse_ccel
from attestation.eventlog.compare import measure
from attestation.eventlog.dstack import parse_dstack
from attestation.fake import FakeTee
from attestation.fake.pki import TCB_SIGNER_NAME
from attestation.keyset import parse_keyset
from attestation.model import parse_bundle
from attestation.policy import parse_policy
from attestation.raw_json import member_bytes
from attestation.snp.azure import parse_hcl, require_runtime
from attestation.snp.report import fields as report_fields
from attestation.snp.report import parse_report
from attestation.snp.tpm import parse_tpm_quote, parse_tpm_signature
from attestation.snp.vcek import (
    CSP_ID,
    HWID,
    PRODUCT_NAME,
    SPLS,
    STRUCT_VERSION,
    parse_vek_identity,
)
from attestation.tdx.collateral import verify_qe_identity, verify_tcb_info
from attestation.tdx.endorsements import parse_collateral
from attestation.tdx.fields import quote_fields
from attestation.tdx.pck import SGX_EXTENSION, parse_pck_extension
from attestation.tdx.quote import parse_quote
from attestation.tinfoil import parse_tinfoil
from attestation.x509 import VerifiedChain, require_unrevoked, verify_chain, verify_crl
from tests.attestation import samples
from tests.attestation.eventlog import logs
from tests.attestation.snp import azure_samples
from tests.attestation.tdx.td15 import Td15Tee
from tests.fuzz import damage
from tests.fuzz.driver import Target
from tests.fuzz.seeds import published, with_published
from tests.support.fake_snp import FakeSnp

_ALL_KEYS: frozenset[KeyKind] = frozenset({"p256", "p384", "rsa"})
_MAX_JSON_BYTES = 1 << 20
_REPO_ROOT = Path(__file__).resolve().parents[2]
_TEE = FakeTee()
_DATA = bytes(range(64))
_SNP, _VLEK = FakeSnp(), FakeSnp(kind="VLEK")


@dataclass(frozen=True)
class _Bearer:
    """Stands for a certificate whose extension holds the bytes under test."""

    data: bytes
    good: Certificate
    replaced: object

    common_name = "SEV-VCEK"

    def extension(self, oid: object) -> bytes | None:
        return self.data if oid == self.replaced else self.good.extension(oid)  # type: ignore[arg-type]


def tdx_quote() -> Target:
    def parse(data: bytes) -> None:
        quote_fields(data)
        parse_quote(data)

    own = [_TEE.quote(_DATA)]
    own += [Td15Tee(body_type=body_type).quote(_DATA) for body_type in (2, 3, 4)]
    seeds = with_published(own, "tdx/quotes/*.bin")
    return Target(name="tdx-quote", parse=parse, seeds=seeds, mutate=damage.raw)


def pck_extension() -> Target:
    good = _certificate(_TEE.pck.public_bytes(Encoding.DER))

    def parse(data: bytes) -> None:
        parse_pck_extension(cast("Certificate", _Bearer(data, good, SGX_EXTENSION)))

    seeds = [good.extension(SGX_EXTENSION) or b""]
    return Target(name="pck-extension", parse=parse, seeds=seeds, mutate=damage.der)


@cache
def _tcb_signer() -> VerifiedChain:
    pem = _TEE.attest(_DATA, at=samples.AT)[1].tcb_info_issuer_chain.encode()
    return verify_chain(
        parse_chain(pem, what="signer"),
        num_certificates=2,
        family="dcap",
        anchors=load_anchors(),
        what="signer",
    )


def _signed(data: bytes, verify: Callable[..., object]) -> None:
    """Signs what is to be parsed, since nothing unsigned is ever parsed."""
    text = data.decode("utf-8", "replace")
    signature = _TEE.pki.sign(TCB_SIGNER_NAME, text.encode())
    verify(text, signature, signer=_tcb_signer(), tee="tdx")


def _intel_text(name: str) -> list[bytes]:
    """Intel's own texts, or the fake platform's."""
    own = getattr(_TEE.attest(_DATA, at=samples.AT)[1], name).encode()
    files = published("tdx/collateral/tdx-*.json")
    return [own, *(json.loads(file)[name].encode() for file in files)]


def tcb_info() -> Target:
    return Target(
        name="tcb-info",
        parse=lambda data: _signed(data, verify_tcb_info),
        seeds=_intel_text("tcb_info"),
        mutate=damage.json_text,
    )


def qe_identity() -> Target:
    return Target(
        name="qe-identity",
        parse=lambda data: _signed(data, verify_qe_identity),
        seeds=_intel_text("qe_identity"),
        mutate=damage.json_text,
    )


def collateral() -> Target:
    own = json.dumps(_TEE.attest(_DATA, at=samples.AT)[1].to_json_value()).encode()
    seeds = with_published([own], "tdx/collateral/*.json")
    return Target(name="collateral", parse=parse_collateral, seeds=seeds, mutate=damage.json_text)


def crl() -> Target:
    _, given = _TEE.attest(_DATA, at=samples.AT)
    issuer = _certificate(_TEE.pki.root.public_bytes(Encoding.DER))

    def parse(data: bytes) -> None:
        require_unrevoked(verify_crl(data, issuer=issuer, what="CRL"), issuer)

    own = [*[given.root_ca_crl] * 4, given.pck_crl, _SNP.crl()]  # mostly of this issuer
    seeds = with_published(own, "snp/crl/*.der")
    return Target(name="crl", parse=parse, seeds=seeds, mutate=damage.der)


def certificate() -> Target:
    own = [_SNP.vek(), _SNP.ark(), _TEE.pck.public_bytes(Encoding.DER)]
    seeds = with_published(own, "snp/certs/*.der")
    return Target(name="certificate", parse=_certificate, seeds=seeds, mutate=damage.der)


def _certificate(data: bytes) -> Certificate:
    return parse_certificate(data, what="certificate", key_kinds=_ALL_KEYS)


def certificate_chain() -> Target:
    def parse(data: bytes) -> None:
        parse_chain(data, what="chain", key_kinds=_ALL_KEYS)

    own = [_SNP.chain(), _tcb_signer_pem()]
    seeds = with_published(own, "snp/certs/*.pem", "nvidia/gpu/*-0.chain.pem")
    return Target(name="certificate-chain", parse=parse, seeds=seeds, mutate=damage.pem)


def _tcb_signer_pem() -> bytes:
    return _TEE.attest(_DATA, at=samples.AT)[1].tcb_info_issuer_chain.encode()


def vcek() -> Target:
    """AMD's extensions one by one, and whole certificates."""
    good = {kind: _certificate(tee.vek()) for kind, tee in (("VCEK", _SNP), ("VLEK", _VLEK))}
    oids = (STRUCT_VERSION, PRODUCT_NAME, HWID, CSP_ID, *SPLS.values())

    def parse(data: bytes) -> None:
        for oid in oids:
            bearer = _Bearer(data, good["VCEK"], oid)
            with suppress(AttestationError):
                parse_vek_identity(cast("Certificate", bearer), _SNP.product)
        parse_vek_identity(_certificate(data), _SNP.product)

    extensions = [one.extension(oid) for one in good.values() for oid in oids]
    own = [_SNP.vek(), _VLEK.vek(), *(value for value in extensions if value)]
    seeds = with_published(own, "snp/certs/*.der")
    return Target(name="vcek", parse=parse, seeds=seeds, mutate=damage.der)


def snp_report() -> Target:
    def parse(data: bytes) -> None:
        if len(data) == len(own[0]):
            report_fields(data)
        parse_report(data)

    own = [FakeSnp(kind=kind).report() for kind in ("VCEK", "VLEK")]
    seeds = with_published(own, "snp/reports/*.bin")
    return Target(name="snp-report", parse=parse, seeds=seeds, mutate=damage.raw)


def hcl() -> Target:
    def parse(data: bytes) -> None:
        require_runtime(parse_hcl(data), azure_samples.report_data(azure_samples.runtime_json()))

    seeds = with_published([azure_samples.HCL], "snp/azure/hcl*.bin")
    return Target(name="hcl", parse=parse, seeds=seeds, mutate=damage.raw)


def hcl_runtime() -> Target:
    """The JSON inside, with the digest that lets it be read."""

    def parse(data: bytes) -> None:
        blob = parse_hcl(azure_samples.hcl(data, report=report))
        require_runtime(blob, azure_samples.report_data(data))

    report = FakeSnp().report()
    seeds = [azure_samples.runtime_json()]
    return Target(name="hcl-runtime", parse=parse, seeds=seeds, mutate=damage.json_text)


def tpm_quote() -> Target:
    seeds = [azure_samples.QUOTE]
    return Target(name="tpm-quote", parse=parse_tpm_quote, seeds=seeds, mutate=damage.raw)


def tpm_signature() -> Target:
    seeds = [azure_samples.QUOTE_SIGNATURE]
    return Target(name="tpm-signature", parse=parse_tpm_signature, seeds=seeds, mutate=damage.raw)


def bundle() -> Target:
    own = samples.evidence().to_json()
    return Target(name="bundle", parse=parse_bundle, seeds=[own], mutate=damage.json_text)


def keyset() -> Target:
    def parse(data: bytes) -> None:
        parse_keyset(_json_object(data))

    own = json.dumps(samples.keyset()).encode()
    return Target(name="keyset", parse=parse, seeds=[own], mutate=damage.json_text)


def _json_object(data: bytes) -> strict_json.JsonObject:
    return strict_json.parse_object(data, what="object", max_bytes=_MAX_JSON_BYTES, max_depth=16)


def strict_json_text() -> Target:
    def parse(data: bytes) -> None:
        for name in _json_object(data):
            assert member_bytes(data, name, what="object") is not None

    seeds = [samples.evidence().to_json(), json.dumps(samples.keyset()).encode()]
    return Target(name="strict-json", parse=parse, seeds=seeds, mutate=damage.json_text)


def policy() -> Target:
    shipped = sorted((_REPO_ROOT / "attestation" / "policies").glob("*.toml"))
    seeds = [path.read_bytes() for path in shipped]
    return Target(name="policy", parse=parse_policy, seeds=seeds, mutate=damage.TOML)


def tinfoil() -> Target:
    quote = base64.b64encode(_TEE.quote(_DATA)).decode()
    gpu = {"arch": "HOPPER", "certificate": "QUJD", "evidence": "QUJD"}
    hexes = {"tls_key_fp": "11" * 32, "hpke_key": "22" * 32, "nonce": "33" * 32}
    own = {
        "format": "https://tinfoil.sh/predicate/attestation/v3",
        "report_data": {**hexes, "gpu_evidence_hash": "44" * 32},
        "cpu": {"platform": "tdx", "report": quote},
        "gpu": {"evidences": [gpu]},
        "certificate": _tcb_signer_pem().decode(),
    }
    seeds = [json.dumps(own).encode()]
    return Target(name="tinfoil", parse=parse_tinfoil, seeds=seeds, mutate=damage.json_text)


def endorsement_files() -> Target:
    _, given = _TEE.attest(_DATA, at=samples.AT)
    own = [given.root_ca_crl, _SNP.chain(), _SNP.vek(), json.dumps(given.to_json_value()).encode()]
    seeds = with_published(own, "nvidia/ocsp/*.der")
    return Target(
        name="endorsement-files",
        parse=lambda data: sort_endorsements([data]),
        seeds=seeds,
        mutate=damage.der,
    )


def ccel_log() -> Target:
    seeds = [logs.ccel()]
    return Target(
        name="ccel",
        parse=lambda data: measure(parse_ccel(data), None),
        seeds=seeds,
        mutate=damage.raw,
    )


def dstack_log() -> Target:
    seeds = [json.dumps(logs.dstack_events()).encode()]
    return Target(
        name="dstack-log",
        parse=lambda data: measure(parse_dstack(data), None),
        seeds=seeds,
        mutate=damage.json_text,
    )


def der_value() -> Target:
    def parse(data: bytes) -> None:
        for element in der.read_all(data):
            der.pairs(element.value)

    pck = _TEE.pck.public_bytes(Encoding.DER)
    seeds = [_SNP.vek(), pck, _certificate(pck).extension(SGX_EXTENSION) or b""]
    return Target(name="der", parse=parse, seeds=seeds, mutate=damage.der)
