"""`starshade receipt verify`: is a receipt believed only under a key that Evidence attests?"""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestation import transport
from attestation.commands.receipt import receipt as command
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.keyset import ReceiptKey, TlsKey, build_keyset
from attestation.model import parse_nonce
from attestation.receipt import receipt_key, response_digest, sign_receipt
from attestation.strict_json import JsonObject
from tests.attestation.fetch.service import Call, FakeService, Reply, Route
from tests.attestation.samples import AT
from tests.attestation.test_receipt import KEY, RECEIPT
from tests.support.tls import key_sha256, require_client_of, self_signed, server_context

PATH = f"/v1/receipts/{RECEIPT.id}"
RESPONSE = b": pad\n\ndata: a\n\n"
RECEIPT_HERE = replace(RECEIPT, response_sha256=response_digest(RESPONSE, is_streamed=True))
SIGNED = sign_receipt(RECEIPT_HERE, KEY)
NONCE = "ab" * 32


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


def keyset(tls_key: bytes, *keys: ReceiptKey, at: datetime = AT) -> JsonObject:
    return build_keyset(
        not_after=at + timedelta(minutes=5),
        replica="gateway",
        mode="terminate",
        ohttp=[],
        policy_sha256="44" * 32,
        receipt=keys,
        tls=[TlsKey(spki_sha256=tls_key.hex(), host="127.0.0.1")],
    )


def attest(tls_key: bytes, call: Call, *, at: datetime = AT) -> Reply:
    attested = keyset(tls_key, receipt_key(KEY.public_key()), at=at)
    nonce = parse_nonce(call.params["nonce"])
    return Reply(content=make_bundle(FakeTee(), nonce, attested, at).to_json())


@pytest.fixture
def gateway(certificate: tuple[Path, Path]) -> Iterator[FakeService]:
    """Serves one receipt to one key, and attests the key that signed it."""
    evidence = partial(attest, key_sha256(certificate[0]))

    def receipt(call: Call) -> Reply:
        is_ours = call.headers.get("authorization") == "Bearer sk-test"
        return Reply(content=SIGNED.to_json()) if is_ours else Reply(status=404)

    routes: dict[str, Route | list[Route]] = {"/v1/attestation": evidence, PATH: receipt}
    with FakeService(routes, tls=server_context(certificate)) as running:
        yield running


@pytest.fixture
def verify(certificate: tuple[Path, Path], tmp_path: Path) -> Callable[..., Result]:
    def run(
        *arguments: str, key: str = "sk-test", policy: str = "development", ca_file: str = ""
    ) -> Result:
        at = AT.astimezone(UTC).isoformat()
        trusted = ca_file or str(certificate[0])
        common = ["--ca-file", trusted, "--policy", policy, "--at", at]
        env = {"COLUMNS": "200", "XDG_CACHE_HOME": str(tmp_path), "STARSHADE_API_KEY": key}
        return CliRunner().invoke(command, ["verify", *arguments, *common], env=env)

    return run


def written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def test_a_receipt_of_a_gateway_with_what_came_back(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path
) -> None:
    response = written(tmp_path, "response", RESPONSE)
    result = verify(gateway.url + PATH, "--response", response)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("VERIFIED; THE TEE IS SIMULATED")
    assert f"by the attested key {RECEIPT.kid}" in result.output
    assert "debug_enabled" in result.output


def test_a_file_and_a_gateway_as_json(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path
) -> None:
    path = written(tmp_path, "receipt.json", SIGNED.to_json())
    result = verify(path, "--gateway", gateway.url, "--json")
    document = json.loads(result.output)
    assert (document["accepted"], document["code"]) == (True, None)
    assert document["receipt"]["id"] == RECEIPT.id
    assert [c["outcome"] for c in document["checks"]] == [
        "pass",
        "not_applicable",
        "not_applicable",
    ]


def test_a_receipt_that_outlived_its_gateway(
    certificate: tuple[Path, Path], verify: Callable[..., Result], tmp_path: Path
) -> None:
    attested = keyset(key_sha256(certificate[0]), receipt_key(KEY.public_key()))
    bundle = make_bundle(FakeTee(), parse_nonce(NONCE), attested, AT).to_json()
    evidence = ["--evidence", written(tmp_path, "evidence.json", bundle), "--offline"]
    path = written(tmp_path, "receipt.json", SIGNED.to_json())
    assert verify(path, *evidence, "--nonce", NONCE).exit_code == 0
    assert verify(path, *evidence, "--nonce", "cd" * 32).exit_code == 10
    assert verify(path, *evidence).exit_code == 2
    assert verify(path).exit_code == 2


@pytest.mark.parametrize("option", ["--request", "--response"])
def test_another_body(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path, option: str
) -> None:
    result = verify(gateway.url + PATH, option, written(tmp_path, "body", b"other"))
    assert result.exit_code == 1
    assert result.output.startswith("NOT VERIFIED: receipt_digest_mismatch")


def test_another_signer(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path
) -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
    claimed = written(tmp_path, "claimed", sign_receipt(RECEIPT, other).to_json())
    result = verify(claimed, "--gateway", gateway.url)
    assert (result.exit_code, "receipt_signature" in result.output) == (10, True)
    own_kid = replace(RECEIPT, kid=receipt_key(other.public_key()).kid)
    honest = written(tmp_path, "honest", sign_receipt(own_kid, other).to_json())
    result = verify(honest, "--gateway", gateway.url)
    assert (result.exit_code, "unknown_kid" in result.output) == (10, True)


def test_evidence_that_the_policy_refuses_vouches_for_nothing(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    result = verify(gateway.url + PATH, policy="production")
    assert result.exit_code == 10
    assert "NOT VERIFIED: the gateway's Evidence is refused" in result.output
    assert "next:  a simulated TEE passes --policy development alone" in result.stderr
    assert gateway.paths == ["/v1/attestation"]  # no key was sent


def test_the_key_goes_to_no_other_tls_key_than_the_attested_one(
    certificate: tuple[Path, Path], verify: Callable[..., Result], tmp_path: Path
) -> None:
    """Somebody else with a certificate that is trusted answers from the second connection on."""
    context, tls_key = server_context(certificate), key_sha256(certificate[0])
    (tmp_path / "other").mkdir()
    other = self_signed(tmp_path / "other", "another server")
    both = written(tmp_path, "both.pem", certificate[0].read_bytes() + other[0].read_bytes())

    def evidence(call: Call) -> Reply:
        context.load_cert_chain(*other)
        nonce = parse_nonce(call.params["nonce"])
        return Reply(content=make_bundle(FakeTee(), nonce, keyset(tls_key), AT).to_json())

    with FakeService({"/v1/attestation": evidence}, tls=context) as gateway:
        result = verify(gateway.url + PATH, ca_file=both)
    assert result.exit_code == 40
    assert "its TLS key is not the one that was attested" in result.stderr
    assert gateway.paths == ["/v1/attestation"]


def test_a_gateway_that_wants_a_client_certificate(
    certificate: tuple[Path, Path], gateway: FakeService, verify: Callable[..., Result]
) -> None:
    """The fixture's service is asked over TLS like any; it is told here whom to let in."""
    assert gateway.tls is not None
    require_client_of(gateway.tls, certificate)
    assert verify(gateway.url + PATH).exit_code == 40
    cert, key = map(str, certificate)
    assert verify(gateway.url + PATH, "--client-cert", cert).exit_code == 2
    result = verify(gateway.url + PATH, "--client-cert", cert, "--client-key", key)
    assert result.exit_code == 0, result.output


def test_who_gives_a_receipt_out_is_judged_whatever_vouches_for_its_signer(
    certificate: tuple[Path, Path],
    gateway: FakeService,
    verify: Callable[..., Result],
    tmp_path: Path,
) -> None:
    """Beside kept Evidence, whose time is told, the gateway is judged as of now."""
    bundle = make_bundle(
        FakeTee(), parse_nonce(NONCE), keyset(bytes(32), receipt_key(KEY.public_key())), AT
    )
    kept = ["--evidence", written(tmp_path, "evidence.json", bundle.to_json())]
    assert verify(gateway.url + PATH, *kept).exit_code == 2
    assert gateway.paths == []
    of_then = gateway.routes["/v1/attestation"]
    now = datetime.now(UTC)  # noqa: TID251 - the command's own clock
    gateway.routes["/v1/attestation"] = partial(attest, key_sha256(certificate[0]), at=now)
    result = verify(gateway.url + PATH, *kept, "--nonce", NONCE)
    assert result.exit_code == 0, result.output
    assert gateway.paths == ["/v1/attestation", PATH]
    gateway.routes["/v1/attestation"] = of_then
    result = verify(gateway.url + PATH, "--node", "worker-0")
    assert result.exit_code == 0, result.output
    assert [c.params.get("node") for c in gateway.calls[2:]] == [None, None, "worker-0"]


def test_a_receipt_that_drips_does_not_hold_the_command_open(
    gateway: FakeService, verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.routes[PATH] = Reply(content=SIGNED.to_json(), drip_s=0.05)
    fetch = transport.fetch_receipt
    monkeypatch.setattr(transport, "fetch_receipt", partial(fetch, timeout_s=0.5))
    result = verify(gateway.url + PATH)
    assert result.exit_code == 40
    assert "nothing whole within 0.5 s" in result.stderr


def test_nobody_there_is_no_verdict(verify: Callable[..., Result]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        origin = f"https://127.0.0.1:{bound.getsockname()[1]}"
        result = verify(origin + PATH)
    assert (result.exit_code, result.stdout) == (40, "")
    assert f"NO VERDICT: nobody answers at {origin} (connection refused)" in result.stderr
    assert "next:  check that it runs" in result.stderr
    document = json.loads(verify(origin + PATH, "--json").stdout)
    assert (document["accepted"], document["code"]) == (False, "evidence_unavailable")


def test_what_cannot_be_had_or_read(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path
) -> None:
    other = verify(gateway.url + PATH, key="sk-other")
    assert (other.exit_code, "next:  check the id" in other.stderr) == (40, True)
    assert verify(gateway.url + PATH, key="").exit_code == 2
    assert verify(gateway.url + "/v1/other").exit_code == 2
    bad = written(tmp_path, "bad", b"{}")
    assert verify(bad, "--gateway", gateway.url).exit_code == 30
