"""Who is let in, for how long after a revocation, and do tenants get salts of their own?"""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from gateway.auth import (
    CACHE_TTL_S,
    DEFAULT_SCOPES,
    MAX_STRANGERS,
    Authenticator,
    Scope,
    StoredKey,
    TenantLimits,
    cache_salt,
    hash_key,
    is_tenant_name,
    tenant_in_spans,
)
from gateway.db import ApiKeyStore, KeyNotFound, TenantStore
from gateway.problems import GatewayError
from telemetry import semconv
from telemetry.redact import allowed_attributes
from tests.support.patience import PATIENCE_S


@pytest.fixture
def store(engine: Engine) -> ApiKeyStore:
    return ApiKeyStore(engine)


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def unix_ns(self) -> int:
        return int(self.now_s * 1e9)


def authenticator_of(store: ApiKeyStore, clock: _Clock | None = None) -> Authenticator:
    clock = clock or _Clock()
    return Authenticator(store, clock_s=clock, unix_ns=clock.unix_ns)


async def test_a_stored_key_names_its_tenant(store: ApiKeyStore) -> None:
    key = store.create(label="laptop", tenant="acme", now_ns=1)
    principal = await authenticator_of(store).authenticate(f"Bearer {key}")
    assert principal.tenant == "acme"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer sk-other", "Bearer sk-starshade-wrong"],
)
async def test_anything_else_is_refused(store: ApiKeyStore, header: str | None) -> None:
    with pytest.raises(GatewayError) as caught:
        await authenticator_of(store).authenticate(header)
    assert caught.value.code == "invalid_api_key"


async def test_a_revoked_key_ends_with_the_cache(store: ApiKeyStore) -> None:
    clock = _Clock()
    key = store.create(label="laptop", tenant="acme", now_ns=1)
    authenticator = authenticator_of(store, clock)
    await authenticator.authenticate(f"Bearer {key}")
    assert store.revoke(store.list_keys()[0].id, now_ns=2)
    clock.now_s += CACHE_TTL_S - 0.1
    await authenticator.authenticate(f"Bearer {key}")
    clock.now_s += 0.2
    with pytest.raises(GatewayError):
        await authenticator.authenticate(f"Bearer {key}")


async def test_a_key_ends_to_the_moment_though_it_is_remembered(store: ApiKeyStore) -> None:
    clock = _Clock()
    key = store.create(label="ci", tenant="acme", now_ns=1, expires_ns=clock.unix_ns() + 1)
    authenticator = authenticator_of(store, clock)
    await authenticator.authenticate(f"Bearer {key}")
    clock.now_s += 1e-9 * 2**9  # more than a nanosecond, less than the cache remembers
    with pytest.raises(GatewayError) as caught:
        await authenticator.authenticate(f"Bearer {key}")
    assert caught.value.code == "api_key_expired"


async def test_the_rights_of_a_key_are_those_it_was_made_with(store: ApiKeyStore) -> None:
    plain = store.create(label="a", tenant="acme", now_ns=1)
    narrow = store.create(
        label="b", tenant="acme", now_ns=2, scopes=[Scope.EMBEDDINGS], priority=-2
    )
    authenticator = authenticator_of(store)
    default = await authenticator.authenticate(f"Bearer {plain}")
    assert (default.scopes, default.priority) == (DEFAULT_SCOPES, 0)
    principal = await authenticator.authenticate(f"Bearer {narrow}")
    assert principal.priority == -2
    principal.require(Scope.EMBEDDINGS)
    with pytest.raises(GatewayError) as caught:
        principal.require(Scope.CHAT)
    assert caught.value.code == "insufficient_scope"


async def test_a_scope_of_a_later_version_gives_no_right(
    store: ApiKeyStore, engine: Engine
) -> None:
    key = store.create(label="a", tenant="acme", now_ns=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE api_key SET scopes = 'root,chat'"))
    principal = await authenticator_of(store).authenticate(f"Bearer {key}")
    assert principal.scopes == {Scope.CHAT}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"scopes": []}, "at least one scope"),
        ({"priority": 3}, "-2 to 2"),
        ({"expires_ns": 1}, "ends after it begins"),
    ],
)
def test_rights_that_mean_nothing_are_refused(
    store: ApiKeyStore, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        store.create(label="a", tenant="acme", now_ns=1, **given)


async def test_a_rotated_key_works_beside_its_successor_for_the_grace(store: ApiKeyStore) -> None:
    clock = _Clock()
    now_ns, grace_ns = clock.unix_ns(), 2 * 10**9
    old = store.create(
        label="ci", tenant="acme", now_ns=now_ns, scopes=[Scope.ADMIN], expires_ns=now_ns + 10**12
    )
    key_id = store.list_keys()[0].id
    new = store.rotate(key_id, now_ns=now_ns + 10**9, grace_ns=grace_ns)
    authenticator = authenticator_of(store, clock)
    first = await authenticator.authenticate(f"Bearer {old}")
    second = await authenticator.authenticate(f"Bearer {new}")
    assert first.key_id != second.key_id
    assert (first.tenant, first.scopes) == (second.tenant, second.scopes)
    clock.now_s += 3
    await authenticator.authenticate(f"Bearer {new}")
    with pytest.raises(GatewayError):
        await authenticator.authenticate(f"Bearer {old}")
    before, after = store.list_keys()
    assert before.expires_ns == now_ns + 10**9 + grace_ns
    assert after.expires_ns == now_ns + 10**9 + 10**12


def test_a_rotation_lengthens_no_life_and_revives_no_dead_key(store: ApiKeyStore) -> None:
    store.create(label="ci", tenant="acme", now_ns=1, expires_ns=10)
    key_id = store.list_keys()[0].id
    store.rotate(key_id, now_ns=5, grace_ns=1000)
    assert store.list_keys()[0].expires_ns == 10
    with pytest.raises(KeyNotFound):
        store.rotate(key_id, now_ns=10, grace_ns=1000)
    successor = store.list_keys()[1].id
    store.revoke(successor, now_ns=6)
    with pytest.raises(KeyNotFound):
        store.rotate(successor, now_ns=7, grace_ns=1000)
    with pytest.raises(KeyNotFound):
        store.rotate("nobody", now_ns=7, grace_ns=1000)
    assert len(store.list_keys()) == 2


async def test_limits_come_with_the_key_and_may_be_taken_back(
    store: ApiKeyStore, engine: Engine
) -> None:
    tenants = TenantStore(engine)
    key = store.create(label="a", tenant="acme", now_ns=1)
    tenants.set_limits("acme", TenantLimits(requests_per_minute=5), now_ns=1)
    tenants.set_limits("acme", TenantLimits(requests_per_minute=6, open_requests=0), now_ns=1)
    tenants.set_limits("other", TenantLimits(tokens_per_minute=7), now_ns=1)
    principal = await authenticator_of(store).authenticate(f"Bearer {key}")
    assert principal.limits == TenantLimits(requests_per_minute=6, open_requests=0)
    tenants.set_limits("acme", TenantLimits(), now_ns=1)
    tenants.set_limits("acme", TenantLimits(), now_ns=1)
    assert set(tenants.all_limits()) == {"other"}
    assert tenants.limits("acme") == TenantLimits()
    with pytest.raises(ValueError, match="a limit is 0"):
        tenants.set_limits("acme", TenantLimits(open_requests=-1), now_ns=1)
    with pytest.raises(ValueError, match="no tenant"):
        tenants.set_limits("a b", TenantLimits(open_requests=1), now_ns=1)


class HeldStore:
    """Finds what `store` does, but strangers only when they may."""

    def __init__(self, store: ApiKeyStore, known: str) -> None:
        self._store = store
        self._known = hash_key(known)
        self.may_answer = threading.Event()

    def find(self, key_sha256: bytes) -> StoredKey | None:
        if key_sha256 != self._known:
            assert self.may_answer.wait(PATIENCE_S)
        return self._store.find(key_sha256)


async def test_made_up_keys_hold_up_one_another_and_nobody_else(store: ApiKeyStore) -> None:
    known = store.create(label="a", tenant="acme", now_ns=1)
    clock, held = _Clock(), HeldStore(store, known)
    authenticator = Authenticator(held, clock_s=clock, unix_ns=clock.unix_ns)
    await authenticator.authenticate(f"Bearer {known}")
    flood = [
        asyncio.ensure_future(authenticator.authenticate(f"Bearer sk-starshade-{number}"))
        for number in range(MAX_STRANGERS)
    ]
    await asyncio.sleep(0)
    try:
        with pytest.raises(GatewayError) as caught:
            await authenticator.authenticate("Bearer sk-starshade-one-more")
        assert caught.value.code == "overloaded"
        clock.now_s += 2 * CACHE_TTL_S  # the good one has to be looked up again
        async with asyncio.timeout(PATIENCE_S):
            assert (await authenticator.authenticate(f"Bearer {known}")).tenant == "acme"
    finally:
        held.may_answer.set()
    ends = await asyncio.gather(*flood, return_exceptions=True)
    assert {end.code for end in ends if isinstance(end, GatewayError)} == {"invalid_api_key"}
    with pytest.raises(GatewayError, match="Incorrect"):
        await authenticator.authenticate("Bearer sk-starshade-later")


async def test_requests_with_one_new_key_share_one_look_up(store: ApiKeyStore) -> None:
    key = store.create(label="a", tenant="acme", now_ns=1)
    clock, num_asked = _Clock(), 0

    class CountingStore:
        def find(self, key_sha256: bytes) -> StoredKey | None:
            nonlocal num_asked
            num_asked += 1
            return store.find(key_sha256)

    authenticator = Authenticator(CountingStore(), clock_s=clock, unix_ns=clock.unix_ns)
    many = [authenticator.authenticate(f"Bearer {key}") for _ in range(2 * MAX_STRANGERS)]
    principals = await asyncio.gather(*many)
    assert {principal.tenant for principal in principals} == {"acme"}
    assert num_asked == 1


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
