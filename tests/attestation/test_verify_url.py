"""`starshade attest verify URL`: a gateway's Evidence over the connection it vouches for."""

import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attestation.cli import attest
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.model import parse_nonce
from tests.attestation import samples
from tests.attestation.fetch.service import Call, FakeService, Reply
from tests.attestation.samples import AT
from tests.support.tls import key_sha256, self_signed, server_context

_PATH = "/v1/attestation"
_AT = AT.astimezone(UTC).isoformat()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def gateway(certificate: tuple[Path, Path]) -> Iterator[FakeService]:
    """Attests its own TLS key; with `node` it passes on a worker's Evidence, which names none."""
    own = key_sha256(certificate[0])

    def answer(call: Call) -> Reply:
        return Reply(content=bundle(call.params["nonce"], () if "node" in call.params else (own,)))

    with FakeService({_PATH: answer}, tls=server_context(certificate)) as running:
        yield running


def bundle(nonce: str, tls_keys: tuple[bytes, ...], at: datetime = AT) -> bytes:
    keyset = samples.keyset(tls_keys=tls_keys)
    return make_bundle(FakeTee(), parse_nonce(nonce), keyset, at).to_json()


@pytest.fixture
def verify(certificate: tuple[Path, Path], tmp_path: Path) -> Callable[..., Result]:
    """Trusts the gateway's certificate and accepts simulated hardware."""

    def run(url: str, *arguments: str) -> Result:
        command = ["verify", url, "--ca-file", str(certificate[0])]
        policy = () if "--policy" in arguments else ("--policy", "development")
        at = () if "--at" in arguments else ("--at", _AT)
        env = {"COLUMNS": "200", "XDG_CACHE_HOME": str(tmp_path)}
        return CliRunner().invoke(attest, [*command, *policy, *at, *arguments], env=env)

    return run


def test_a_gateway_is_accepted_over_its_own_connection(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    result = verify(f"{gateway.url}/v1")

    assert result.exit_code == 0, result.output
    assert result.output.startswith("ACCEPTED WITH A WARNING (warning): SIMULATED")
    assert "the connection's TLS key is in the attested keyset" in result.output
    assert "not covered  channel" not in result.output


def test_the_path_of_the_api_may_be_left_out(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    assert verify(gateway.url).exit_code == 0
    assert verify(f"{gateway.url}/").exit_code == 0
    assert set(gateway.paths) == {_PATH}
    assert verify(f"{gateway.url}/v2").exit_code == 40


def test_what_no_terminal_shows_is_neither_wrapped_nor_padded(
    gateway: FakeService, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    command = ["verify", gateway.url, "--ca-file", str(certificate[0]), "--at", _AT]
    env = {"COLUMNS": "40", "XDG_CACHE_HOME": str(tmp_path)}
    lines = CliRunner().invoke(attest, command, env=env).stdout.splitlines()

    assert lines == [line.rstrip() for line in lines]
    assert lines[-1].startswith("policy production ")
    assert " verdict v1-" in lines[-1]


def test_each_question_has_a_nonce_of_its_own(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    for _ in range(3):
        assert verify(gateway.url).exit_code == 0
    assert verify(gateway.url, "--nonce", samples.NONCE.hex()).exit_code == 0

    nonces = [call.params["nonce"] for call in gateway.calls]
    assert len({*nonces}) == 4
    assert nonces[-1] == samples.NONCE.hex()
    assert verify(gateway.url, "--nonce", "abcd").exit_code == 30
    assert len(gateway.calls) == 4  # nobody is asked with half a nonce


def test_json_is_the_verdict_as_for_a_file(
    gateway: FakeService, verify: Callable[..., Result], tmp_path: Path
) -> None:
    nonce = samples.NONCE.hex()
    by_url = json.loads(verify(gateway.url, "--nonce", nonce, "--json").output)
    delivered = tmp_path / "evidence.json"
    own = bytes.fromhex(by_url["claims"]["tls_spki_sha256"][0])
    delivered.write_bytes(bundle(nonce, (own,)))

    by_file = verify(str(delivered), "--nonce", nonce, "--tls-key", own.hex(), "--json")

    assert json.loads(by_file.output) == by_url


def test_another_key_than_the_connections_is_refused(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    for keys in ((), (b"\x11" * 32,)):
        gateway.routes[_PATH] = lambda call, keys=keys: Reply(  # type: ignore[misc]
            content=bundle(call.params["nonce"], keys)
        )
        result = verify(gateway.url, "--json")
        assert (result.exit_code, json.loads(result.output)["code"]) == (10, "channel_binding")


def test_a_workers_evidence_binds_no_connection_and_says_so(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    result = verify(gateway.url, "--node", "worker-0")

    assert result.exit_code == 0
    assert "not covered  channel" in result.output
    assert "no connection is bound" in result.output
    assert gateway.calls[0].params["node"] == "worker-0"


def test_a_recording_is_refused(gateway: FakeService, verify: Callable[..., Result]) -> None:
    gateway.routes[_PATH] = Reply(content=bundle("00" * 32, ()))

    for arguments in ((), ("--node", "worker-0")):
        result = verify(gateway.url, "--json", *arguments)
        assert (result.exit_code, json.loads(result.output)["code"]) == (10, "nonce_mismatch")


def test_simulated_hardware_is_refused_by_default(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    result = verify(gateway.url, "--policy", "production")

    assert result.exit_code == 10
    assert "next:  a simulated TEE passes --policy development alone" in result.stderr


@pytest.mark.parametrize(
    ("content", "exit_code"), [(b"{}", 30), (b"[]", 30), (b"", 30), (b"HCLA", 30)]
)
def test_what_is_no_bundle_is_malformed(
    gateway: FakeService, verify: Callable[..., Result], content: bytes, exit_code: int
) -> None:
    gateway.routes[_PATH] = Reply(content=content)

    assert verify(gateway.url).exit_code == exit_code


def test_nobody_there_is_unavailable(verify: Callable[..., Result]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{bound.getsockname()[1]}/v1"
        text, as_json = verify(url), verify(url, "--json")

    assert (text.exit_code, as_json.exit_code) == (40, 40)
    assert text.stdout == ""
    told = text.stderr.splitlines()
    assert told[0] == f"NO VERDICT: nobody answers at {url[:-3]} (connection refused)"
    assert told[1].startswith("next:  check that it runs, and the URL")
    document = json.loads(as_json.output)
    assert (document["tier"], document["code"]) == ("none", "evidence_unavailable")
    assert document["checks"][0]["name"] == "evidence"


def test_a_gateway_that_refuses_is_unavailable(
    gateway: FakeService, verify: Callable[..., Result]
) -> None:
    gateway.routes[_PATH] = Reply(status=404, content=b'{"code":"node_not_found"}')

    result = verify(gateway.url, "--node", "none")

    assert result.exit_code == 40
    assert result.stderr.startswith("NO VERDICT: no evidence from ")
    assert "node_not_found" in result.stderr
    assert "next:" in result.stderr


def test_a_certificate_of_an_unknown_authority_names_the_option(
    gateway: FakeService, tmp_path: Path
) -> None:
    other, _ = self_signed(tmp_path)
    result = CliRunner().invoke(attest, ["verify", gateway.url, "--ca-file", str(other)])

    assert result.exit_code == 40
    assert "its certificate is not trusted" in result.stderr
    assert "--ca-file STATE/ca.pem" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--offline",), "--offline"),
        (("--tls-key", "00" * 32), "--tls-key"),
        (("--kind", "quote"), "--kind"),
        (("--ca-file", "/nonexistent"), "no CA certificates"),
    ],
)
def test_what_makes_no_sense_with_a_url(
    gateway: FakeService, verify: Callable[..., Result], arguments: tuple[str, ...], words: str
) -> None:
    result = verify(gateway.url, *arguments)

    assert result.exit_code == 2
    assert words in result.stderr
    assert gateway.calls == []


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8443/v1", "ftp://x/v1", "https://u:p@127.0.0.1", "https://127.0.0.1?x=1"],
)
def test_only_https_is_asked(verify: Callable[..., Result], url: str) -> None:
    result = verify(url)

    assert result.exit_code == 2
    assert "an https URL is needed" in result.stderr


def test_a_node_is_of_a_url_alone(verify: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "evidence").write_bytes(samples.evidence().to_json())

    result = verify(str(tmp_path / "evidence"), "--node", "worker-0")

    assert result.exit_code == 2


def test_a_bundle_in_a_file_is_held_to_a_given_key(
    verify: Callable[..., Result], tmp_path: Path
) -> None:
    """A key that was given is never overlooked; without one the verdict says what is open."""
    path = tmp_path / "evidence"
    path.write_bytes(bundle(samples.NONCE.hex(), (b"\x01" * 32,)))
    command = (str(path), "--nonce", samples.NONCE.hex())

    assert verify(*command, "--tls-key", "01" * 32).exit_code == 0
    assert "channel_binding" in verify(*command, "--tls-key", "02" * 32).output
    assert "not covered  channel" in verify(*command).output
