"""REPORT_DATA commits to exactly the nonce, the keyset and the GPU evidence."""

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation import binding
from attestation.errors import AttestationError
from attestation.model import GpuEntry, parse_nonce
from tests.attestation import samples
from tests.support.resources import vectors_dir


def _load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((vectors_dir() / "protocol" / name).read_text())
    return document


def test_report_data_vector_without_gpu() -> None:
    vector = _load("report_data.json")
    nonce, digest = parse_nonce(vector["client_nonce"]), binding.keyset_digest(vector["keyset"])
    statement = binding.statement_bytes(
        nonce=nonce, keyset_sha256=digest, gpu_sha256=binding.gpu_digest(())
    )

    assert binding.jcs(vector["keyset"]).decode() == vector["keyset_jcs"]
    assert digest.hex() == vector["keyset_sha256"]
    assert binding.gpu_nonce(nonce, digest).hex() == vector["gpu_nonce"]
    assert binding.gpu_digest(()).hex() == vector["gpu_sha256"]
    assert statement.decode() == vector["statement"]
    assert binding.report_data(statement).hex() == vector["report_data"]


def test_report_data_vector_with_gpus() -> None:
    vector = _load("report_data.json")
    want = vector["with_gpus"]
    entries = [
        GpuEntry(
            arch=entry["arch"],
            cert_chain=base64.b64decode(entry["cert_chain"]),
            report=base64.b64decode(entry["report"]),
        )
        for entry in want["gpu"]
    ]
    statement = binding.statement_bytes(
        nonce=parse_nonce(vector["client_nonce"]),
        keyset_sha256=binding.keyset_digest(vector["keyset"]),
        gpu_sha256=binding.gpu_digest(entries),
    )

    assert binding.gpu_digest(entries).hex() == want["gpu_sha256"]
    assert statement.decode() == want["statement"]
    assert binding.report_data(statement).hex() == want["report_data"]


def test_jcs_reproduces_the_aci_chain() -> None:
    """Canonical texts stay what they are, and their digests are the published ones."""
    for vector in _load("aci_chain.json")["vectors"]:
        canonical = vector.get("jcs") or vector.get("bytes") or vector["signing_input"]
        again = binding.jcs(json.loads(canonical))
        assert again.decode() == canonical
        if vector["id"] != "receipt":  # its digest is over more than the signing input
            assert hashlib.sha256(again).hexdigest() == vector["sha256"]


def test_the_encoding_is_these_very_bytes() -> None:
    """Our own vector: another implementation must make the same."""
    nonce, digest = parse_nonce(bytes(range(32)).hex()), binding.keyset_digest({"a": [1, "b"]})
    gpu_sha256 = binding.gpu_digest([GpuEntry(arch="HOPPER", cert_chain=b"c", report=b"r")])
    statement = binding.statement_bytes(nonce=nonce, keyset_sha256=digest, gpu_sha256=gpu_sha256)

    assert digest == hashlib.sha256(b'{"a":[1,"b"]}').digest()
    assert (
        gpu_sha256
        == hashlib.sha256(b'[{"arch":"HOPPER","cert_chain":"Yw==","report":"cg=="}]').digest()
    )
    assert statement.decode() == (
        f'{{"gpu_sha256":"{gpu_sha256.hex()}","keyset":"sha256:{digest.hex()}",'
        f'"nonce":"{nonce.hex()}","purpose":"starshade/report_data/v1"}}'
    )
    assert binding.report_data(statement) == hashlib.sha256(statement).digest() + bytes(32)
    assert (
        binding.gpu_nonce(nonce, digest)
        == hashlib.sha256(b"starshade/gpu/v1" + nonce + digest).digest()
    )


def test_jcs_writes_the_largest_integers() -> None:
    assert binding.jcs([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


@pytest.mark.parametrize(("text", "code"), [("a" * 489, "nonce_mismatch"), ("a" * 490, "format")])
def test_a_statement_has_at_most_512_bytes(text: str, code: str) -> None:
    statement = json.dumps({"nonce": "", "other": text}, separators=(",", ":"))

    assert len(statement) in (512, 513)
    assert _require_bound(replace(samples.evidence(), statement=statement)) == code


def test_a_statement_is_flat() -> None:
    statement = json.dumps({"nonce": "", "other": []})

    assert _require_bound(replace(samples.evidence(), statement=statement)) == "nonce_mismatch"
    deeper = json.dumps({"nonce": "", "other": [{}]})
    assert _require_bound(replace(samples.evidence(), statement=deeper)) == "format"


def test_jcs_orders_names_by_utf16_code_units() -> None:
    """RFC 8785 sec. 3.2.3: U+1F600 (surrogates D83D DE00) sorts before U+FB33."""
    names = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7}

    got = list(json.loads(binding.jcs(names)))

    assert got == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize("value", [1.5, 2**53, -(2**53), {"a": "\ud800"}, b"bytes", {"a": [0.0]}])
def test_jcs_refuses_what_has_no_one_form(value: Any) -> None:
    with pytest.raises(AttestationError) as caught:
        binding.jcs(value)

    assert caught.value.code == "format"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@given(_json)
def test_jcs_keeps_the_value_and_is_idempotent(value: Any) -> None:
    canonical = binding.jcs(value)

    assert json.loads(canonical) == value
    assert binding.jcs(json.loads(canonical)) == canonical


def _require_bound(bundle: Any, nonce: Any = samples.NONCE) -> str:
    report_data = binding.report_data(samples.evidence().statement.encode())
    try:
        binding.require_bound(bundle, nonce, report_data)
    except AttestationError as err:
        return err.code
    return "bound"


@pytest.mark.parametrize("value", [{"\ud800": 1}, {"a": "\ud800"}, ["\udfff"]])
def test_a_lone_surrogate_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(AttestationError, match="lone surrogate"):
        binding.jcs(value)


def test_bound_evidence_is_bound() -> None:
    assert _require_bound(samples.evidence()) == "bound"


def test_each_binding_has_its_own_code() -> None:
    bundle = samples.evidence()
    gpu = GpuEntry(arch="HOPPER", cert_chain=b"chain", report=b"report")
    spaced = bundle.statement.replace(",", ", ")

    assert _require_bound(bundle, samples.OTHER_NONCE) == "nonce_mismatch"
    assert _require_bound(replace(bundle, keyset=samples.keyset(replica="x"))) == "channel_binding"
    assert _require_bound(replace(bundle, gpu=(gpu,))) == "gpu_evidence_hash"
    assert _require_bound(replace(bundle, statement=spaced)) == "format"
    assert _require_bound(replace(bundle, statement="")) == "format"


def test_rewriting_the_statement_too_does_not_help() -> None:
    """The quote still carries the digest of the first statement."""
    bundle = samples.evidence()
    keyset = samples.keyset(config_sha256="66" * 32)
    statement = binding.statement_bytes(
        nonce=samples.NONCE,
        keyset_sha256=binding.keyset_digest(keyset),
        gpu_sha256=binding.gpu_digest(()),
    ).decode()

    assert _require_bound(replace(bundle, keyset=keyset, statement=statement)) == "report_data"
