"""Who is let in, for how long after a revocation, and do tenants get salts of their own?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from gateway.auth import (
    CACHE_TTL_S,
    Authenticator,
    cache_salt,
    hash_key,
    is_tenant_name,
    tenant_in_spans,
)
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.problems import GatewayError
from telemetry import semconv
from telemetry.redact import allowed_attributes


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: Engine) -> ApiKeyStore:
    return ApiKeyStore(engine)


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_stored_key_names_its_tenant(store: ApiKeyStore) -> None:
    key = store.create(label="laptop", tenant="acme", now_ns=1)
    principal = await Authenticator(store, clock_s=_Clock()).authenticate(f"Bearer {key}")
    assert principal.tenant == "acme"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer sk-other", "Bearer sk-starshade-wrong"],
)
async def test_anything_else_is_refused(store: ApiKeyStore, header: str | None) -> None:
    with pytest.raises(GatewayError) as caught:
        await Authenticator(store, clock_s=_Clock()).authenticate(header)
    assert caught.value.code == "invalid_api_key"


async def test_a_revoked_key_ends_with_the_cache(store: ApiKeyStore) -> None:
    clock = _Clock()
    key = store.create(label="laptop", tenant="acme", now_ns=1)
    authenticator = Authenticator(store, clock_s=clock)
    await authenticator.authenticate(f"Bearer {key}")
    assert store.revoke(store.list_keys()[0].id, now_ns=2)
    clock.now_s += CACHE_TTL_S - 0.1
    await authenticator.authenticate(f"Bearer {key}")
    clock.now_s += 0.2
    with pytest.raises(GatewayError):
        await authenticator.authenticate(f"Bearer {key}")


def test_only_the_hash_is_stored(store: ApiKeyStore, engine: Engine, tmp_path: Path) -> None:
    key = store.create(label="laptop", tenant="acme", now_ns=1)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT hash FROM api_key")) == hash_key(key)
    engine.dispose()
    for file in tmp_path.iterdir():
        assert key.encode() not in file.read_bytes()


def test_revoking_twice_or_nothing_says_so(store: ApiKeyStore) -> None:
    store.create(label="laptop", tenant="acme", now_ns=1)
    key_id = store.list_keys()[0].id
    assert store.revoke(key_id, now_ns=2)
    assert not store.revoke(key_id, now_ns=3)
    assert not store.revoke("nobody", now_ns=3)
    assert store.list_keys()[0].revoked_ns == 2


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 129, " lead"])
def test_names_are_plain(store: ApiKeyStore, name: str) -> None:
    with pytest.raises(ValueError, match="a label is"):
        store.create(label=name, tenant="acme", now_ns=1)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 129, "two words", "a@b", "-a", "ä"])
def test_a_tenant_is_named_as_spans_can_name_it(store: ApiKeyStore, name: str) -> None:
    with pytest.raises(ValueError, match="a tenant is") as caught:
        store.create(label="laptop", tenant=name, now_ns=1)
    assert "A-Z a-z 0-9" in str(caught.value)
    assert store.list_keys() == []


@given(st.text(max_size=130))
@example("two words")
@example("x" * 128)
def test_every_tenant_reaches_telemetry_under_a_name_of_its_own(tenant: str) -> None:
    name = tenant_in_spans(tenant)
    assert allowed_attributes({semconv.TENANT_ID: name}) == ({semconv.TENANT_ID: name}, 0)
    assert (name == tenant) is is_tenant_name(tenant)
    assert tenant_in_spans(tenant) == name
    assert tenant_in_spans(tenant + "!") != name


def test_salts_differ_by_tenant_and_secret() -> None:
    assert len(cache_salt(b"s", "a")) == 32
    assert cache_salt(b"s", "a") == cache_salt(b"s", "a")
    assert len({cache_salt(b"s", "a"), cache_salt(b"s", "b"), cache_salt(b"t", "a")}) == 3
