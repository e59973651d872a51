"""Key configurations: what parses, what is refused, what is chosen."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.channel.encapsulation import ServerKey
from attestation.channel.errors import KeyConfigError, UnsupportedSuite
from attestation.channel.hpke import KEM_SIZES, KEM_X25519, KEM_XWING, PrivateKey, Suite
from attestation.channel.keyconfig import (
    MAX_KEY_LIST_BYTES,
    KeyConfig,
    SymmetricSuite,
    parse_key_config,
    parse_key_configs,
    select_key_config,
    serialize_key_configs,
)
from tests.attestation.channel.keys import SERVER_KEY
from tests.support.resources import vectors_dir

ids = st.integers(0, 0xFFFF)


@st.composite
def key_configs(draw: st.DrawFn) -> KeyConfig:
    kem_id = draw(st.sampled_from(sorted(KEM_SIZES)))
    length = KEM_SIZES[kem_id].public_key_bytes
    return KeyConfig(
        key_id=draw(st.integers(0, 255)),
        kem_id=kem_id,
        public_key=draw(st.binary(min_size=length, max_size=length)),
        symmetric=tuple(
            draw(st.lists(st.builds(SymmetricSuite, ids, ids), min_size=1, max_size=5))
        ),
    )


@settings(deadline=None)
@given(st.lists(key_configs(), min_size=1, max_size=4))
def test_parse_undoes_serialize(configs: list[KeyConfig]) -> None:
    assert parse_key_configs(serialize_key_configs(configs)) == tuple(configs)
    assert parse_key_config(configs[0].serialize()) == configs[0]


def test_published_key_lists() -> None:
    vectors = json.loads((vectors_dir() / "protocol" / "ohttp_keys.json").read_text())["vectors"]
    for vector in vectors:
        body = bytes.fromhex(vector["body"])
        if vector["expect"] == "accept":
            assert [config.key_id for config in parse_key_configs(body)] == [1]
        else:
            with pytest.raises(KeyConfigError):
                parse_key_configs(body)


def test_a_bare_configuration_ends_with_its_last_suite() -> None:
    bare = SERVER_KEY.config.serialize()
    for length in range(len(bare)):
        with pytest.raises((KeyConfigError, UnsupportedSuite)):
            parse_key_config(bare[:length])
    with pytest.raises(KeyConfigError):
        parse_key_config(bare + b"\x00")
    with pytest.raises(KeyConfigError):
        parse_key_config(bare[:35] + b"\x00\x06" + bare[37:43])  # one suite and a half
    with pytest.raises(UnsupportedSuite):
        parse_key_config(b"\x01\x00\x10" + bare[3:])


def test_a_list_is_refused_when_cut_oversized_or_without_a_known_kem() -> None:
    body = serialize_key_configs([SERVER_KEY.config, SERVER_KEY.config])
    boundary = len(body) // 2
    for length in range(len(body)):
        if length != boundary:
            with pytest.raises(KeyConfigError):
                parse_key_configs(body[:length])
    for bad in (
        bytes(MAX_KEY_LIST_BYTES + 1),
        b"\x00\x03\x01\x00\x10",
        serialize_key_configs([SERVER_KEY.config]) * 256,
    ):
        with pytest.raises(KeyConfigError):
            parse_key_configs(bad)


def test_fields_are_checked_when_built() -> None:
    good = SERVER_KEY.config
    for changes in (
        {"key_id": 256},
        {"public_key": bytes(31)},
        {"symmetric": ()},
        {"symmetric": (SymmetricSuite(0x10000, 1),)},
    ):
        with pytest.raises(KeyConfigError):
            KeyConfig(
                **{
                    "key_id": 1,
                    "kem_id": good.kem_id,
                    "public_key": good.public_key,
                    "symmetric": good.symmetric,
                    **changes,
                }  # type: ignore[arg-type]
            )
    with pytest.raises(UnsupportedSuite):
        KeyConfig(key_id=1, kem_id=0x10, public_key=bytes(65))


def test_the_attested_configuration_is_selected() -> None:
    first, second = ServerKey.generate(1).config, ServerKey.generate(2, kem_id=KEM_XWING).config
    assert second.sha256 == hashlib.sha256(second.serialize()).hexdigest()
    assert select_key_config([first, second], {second.sha256}) == second
    with pytest.raises(KeyConfigError):
        select_key_config([first], {second.sha256})
    with pytest.raises(KeyConfigError):
        select_key_config([first], [])


def test_the_preferred_suite_is_the_first_that_is_implemented() -> None:
    pairs = (SymmetricSuite(3, 1), SymmetricSuite(1, 0xFFFF), SymmetricSuite(1, 3))
    config = ServerKey.from_private_key(1, PrivateKey.generate(), pairs).config
    assert config.preferred_suite() == Suite(KEM_X25519, 1, 3)
    none = ServerKey.from_private_key(1, PrivateKey.generate(), pairs[:2]).config
    with pytest.raises(UnsupportedSuite):
        none.preferred_suite()


def test_a_private_key_belongs_to_its_configuration() -> None:
    with pytest.raises(KeyConfigError):
        ServerKey(config=SERVER_KEY.config, private_key=PrivateKey.generate())
