"""Are the published keys those that are attested, and do caches keep them only while they open?"""

from pathlib import Path

import pytest

from attestation.binding import keyset_digest
from attestation.channel import KEM_X25519, KeyState, ehbp, parse_key_config
from tests.gateway.audit.test_log import events
from tests.gateway.doors.clients import ask_chunked, ask_ehbp, ehbp_key, inner_request, key_list
from tests.gateway.support import Stack, edge_keys, rotate, running_stack

NONCE = "ab" * 32
PATHS = ["/.well-known/ohttp-gateway", "/.well-known/hpke-keys"]


def test_every_published_key_is_attested(stack: Stack) -> None:
    keyset = stack.client.get("/v1/attestation", params={"nonce": NONCE}).json()["keyset"]
    attested = [(key["key_id"], key["config_sha256"]) for key in keyset["ohttp"]]
    assert attested == [(config.key_id, config.sha256) for config in key_list(stack)]
    bare = ehbp_key(stack)
    assert (bare.key_id, bare.sha256) in attested
    assert bare.symmetric == ehbp.OFFER.symmetric


def test_the_etag_is_the_keysets_digest(stack: Stack) -> None:
    answer = stack.client.get(PATHS[0])
    keyset = stack.client.get("/v1/attestation", params={"nonce": NONCE}).json()["keyset"]
    assert answer.headers["etag"] == f'"{keyset_digest(keyset).hex()}"'
    assert answer.headers["content-type"] == "application/ohttp-keys"


@pytest.mark.parametrize("path", PATHS)
def test_caching(stack: Stack, path: str) -> None:
    first = stack.client.get(path)
    name, _, age_s = first.headers["cache-control"].partition("=")
    assert name == "max-age"
    assert 0 < int(age_s) <= 300
    again = stack.client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = stack.client.get(path, headers={"if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_a_bare_key_for_clients_that_read_no_list(tmp_path: Path) -> None:
    with running_stack(tmp_path, gateway__bare_key_list=True) as stack:
        config = parse_key_config(stack.client.get(PATHS[0]).content)
        assert config.kem_id == KEM_X25519
        assert ask_chunked(stack, inner_request(stack), config).status == 200


def test_no_sealed_request_fails_while_the_edge_rotates(tmp_path: Path) -> None:
    """Both doors, with keys as old as a cached list may be."""
    with running_stack(tmp_path) as stack:
        keys = edge_keys(stack.gateway.app)
        listed = key_list(stack)
        for _ in range(2):
            listed = key_list(stack)
            for config in listed:
                assert ask_chunked(stack, inner_request(stack), config).status == 200
            assert ask_ehbp(stack).outer.status_code == 200
            rotate(stack.gateway, keys)
            assert keys.ring.states()[listed[0].key_id] is KeyState.STALE
            assert ask_chunked(stack, inner_request(stack), listed[0]).status == 200
    first, second = (e["fields"] for e in events(tmp_path) if e["kind"] == "channel_keys_rotated")
    assert str(listed[0].key_id) in first["active"].split()
    assert not first["erased"]
    assert second["erased"]
