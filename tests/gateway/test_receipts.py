"""Has every end of a request a receipt that says how it ended, and can nobody else read it?"""

import contextlib
import hashlib
import json
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

import gateway.receipts
from attestation.keyset import parse_keyset
from attestation.model import parse_bundle
from attestation.receipt import Receipt, SignedReceipt, response_digest
from attestation.sampling import sampling_digest
from gateway.db import open_engine
from gateway.db import receipts as table
from gateway.db.engine import writing
from gateway.db.receipts import Intent, insert_intent
from tests.gateway.doors.clients import ask_chunked, inner_request
from tests.gateway.support import (
    HashEngine,
    Stack,
    chat_body,
    error_of,
    make_config,
    make_key,
    running_stack,
    wait_until,
)
from tests.support.patience import PATIENCE_S

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("receipts")) as stack:
        yield stack


def receipt_of(stack: Stack, response: httpx.Response) -> Receipt:
    return receipt_by_id(stack, response.headers["starshade-receipt"])


def receipt_by_id(stack: Stack, receipt_id: str) -> Receipt:
    """Verified under the keys of the gateway's Evidence."""
    answer = stack.client.get(f"/v1/receipts/{receipt_id}")
    assert answer.status_code == 200, answer.text
    nonce = secrets.token_bytes(32).hex()
    bundle = stack.client.get("/v1/attestation", params={"nonce": nonce}).content
    keyset = parse_keyset(parse_bundle(bundle).keyset)
    receipt = SignedReceipt.parse(answer.content).verify(keyset.receipt)
    assert receipt.id == receipt_id
    return receipt


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_whole_answer(stack: Stack) -> None:
    request = json.dumps(chat_body(temperature=0.5, seed=3)).encode()
    response = stack.client.post(
        CHAT, content=request, headers={"content-type": "application/json"}
    )
    assert response.status_code == 200
    receipt = receipt_of(stack, response)
    assert (receipt.outcome, receipt.status, receipt.code) == ("complete", 200, None)
    assert receipt.request_sha256 == sha256(request)
    assert receipt.response_sha256 == sha256(response.content)
    assert receipt.bytes_sent == len(response.content)
    assert receipt.sampling_sha256 == sampling_digest(json.loads(request))
    assert (receipt.model, receipt.worker, receipt.weights_sha256) == (
        "hash",
        "worker-0",
        "ab" * 32,
    )
    node = stack.client.get("/v1/nodes").json()["data"][0]
    assert receipt.lease_id == node["verdict_id"]
    assert receipt.worker_keyset_sha256 == node["keyset_sha256"]
    assert receipt.policy_sha256 == node["policy_sha256"]
    assert receipt.endpoint == CHAT
    assert not receipt.is_streamed


def test_a_streamed_answer(stack: Stack) -> None:
    response = stack.chat(stream=True)
    receipt = receipt_of(stack, response)
    assert (receipt.outcome, receipt.is_streamed) == ("complete", True)
    assert receipt.response_sha256 == response_digest(response.content, is_streamed=True)
    assert receipt.bytes_sent == len(response.content)


def test_a_streamed_answer_that_travels_sealed_and_padded(stack: Stack) -> None:
    answer = ask_chunked(stack, inner_request(stack, chat_body(stream=True)))
    receipt = receipt_by_id(stack, dict(answer.fields)["starshade-receipt"])
    assert b"\n:" in answer.content
    assert receipt.response_sha256 == response_digest(answer.content, is_streamed=True)
    assert receipt.bytes_sent < len(answer.content)


def test_the_receipt_is_there_as_soon_as_the_answer_is(stack: Stack) -> None:
    for number in range(20):
        receipt_of(stack, stack.chat(stream=bool(number % 2), max_tokens=1))


@pytest.mark.parametrize(
    ("members", "code"),
    [({"temperature": 9}, "invalid_value"), ({"model": "gpt-9"}, "model_not_found")],
)
def test_a_refused_request(stack: Stack, members: dict[str, object], code: str) -> None:
    response = stack.chat(**members)
    assert error_of(response)["receipt"] == response.headers["starshade-receipt"]
    receipt = receipt_of(stack, response)
    assert (receipt.outcome, receipt.code, receipt.status) == (
        "refused",
        code,
        response.status_code,
    )
    assert receipt.response_sha256 == sha256(response.content)
    assert receipt.worker is None


def test_numbers_without_a_canonical_form_cost_the_digest_alone(stack: Stack) -> None:
    request = (
        b'{"model":"hash","messages":[{"role":"user","content":"x"}],"max_tokens":1,"response_format":'
        b'{"type":"json_schema","json_schema":{"name":"n","schema":{"maximum":1e999}}}}'
    )
    response = stack.client.post(
        CHAT, content=request, headers={"content-type": "application/json"}
    )
    assert response.status_code != 500
    assert receipt_of(stack, response).sampling_sha256 is None


def test_a_body_that_grew_too_large_is_refused_with_a_receipt(stack: Stack) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * (1 << 16)

    response = stack.client.post(
        CHAT, content=endless(), headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    receipt = receipt_of(stack, response)
    assert (receipt.outcome, receipt.code) == ("refused", "body_too_large")
    assert receipt.request_sha256 is None


def test_a_stranger_gets_no_receipt(stack: Stack) -> None:
    response = stack.client.post(CHAT, json=chat_body(), headers={"authorization": "Bearer x"})
    assert response.status_code == 401
    assert "starshade-receipt" not in response.headers
    assert "receipt" not in error_of(response)


def test_nobody_else_can_read_it(stack: Stack) -> None:
    receipt_id = stack.chat().headers["starshade-receipt"]
    other = {"authorization": f"Bearer {make_key(stack.config, tenant='acme')}"}
    for headers in (other, {"authorization": "Bearer sk-starshade-x"}):
        answer = stack.client.get(f"/v1/receipts/{receipt_id}", headers=headers)
        assert answer.status_code in {401, 404}
        assert error_of(answer)["code"] in {"receipt_not_found", "invalid_api_key"}
    for unknown in ("0" * 32, "x", "A" * 32):
        assert stack.client.get(f"/v1/receipts/{unknown}").status_code == 404


def test_a_reader_who_leaves(tmp_path: Path) -> None:
    with running_stack(tmp_path, engine=HashEngine(step_s=0.02)) as stack:
        body = chat_body(stream=True, max_tokens=200, ignore_eos=True)
        with stack.client.stream("POST", CHAT, json=body) as response:
            receipt_id = response.headers["starshade-receipt"]
            next(response.iter_raw(64))
        url = f"/v1/receipts/{receipt_id}"
        wait_until(lambda: stack.client.get(url).status_code == 200)
        receipt = receipt_by_id(stack, receipt_id)
        assert (receipt.outcome, receipt.code) == ("cancelled", "client_disconnected")
        assert receipt.bytes_sent > 0


def test_a_reader_who_does_not_wait_for_a_whole_answer(tmp_path: Path) -> None:
    with running_stack(tmp_path, engine=HashEngine(step_s=0.05)) as stack:
        body = chat_body(max_tokens=200, ignore_eos=True)
        with pytest.raises(httpx.ReadTimeout):
            stack.client.post(CHAT, json=body, timeout=2)  # of the ten that it takes

        def signed() -> list[bytes]:
            with contextlib.closing(sqlite3.connect(tmp_path / "gateway.db")) as connection:
                rows = connection.execute("SELECT body FROM receipt WHERE body NOT NULL")
                return [row[0] for row in rows]

        wait_until(lambda: len(signed()) == 1)
        receipt = SignedReceipt.parse(signed()[0]).receipt
        assert (receipt.outcome, receipt.code, receipt.status) == (
            "cancelled",
            "client_disconnected",
            499,
        )
        assert receipt.worker == "worker-0"
        wait_until(lambda: stack.worker_stats()["open"] == 0)


def test_an_engine_that_breaks_half_way(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        steps = iter(range(100))

        def break_later(_plan: object) -> None:
            if next(steps) == 3:
                raise RuntimeError("broken")

        stack.engine.runner.before_run = break_later
        response = stack.chat(stream=True, max_tokens=50, ignore_eos=True)
        receipt = receipt_of(stack, response)
        assert (receipt.outcome, receipt.status) == ("failed", 200)
        assert receipt.code == "generation_failed"
        assert receipt.response_sha256 == response_digest(response.content, is_streamed=True)


def test_a_gateway_without_room_for_receipts_is_not_ready(tmp_path: Path) -> None:
    """Also when nobody asks for long; and it finds out by itself that there is room again."""
    with running_stack(tmp_path) as stack:
        writer = stack.gateway.app.services.receipts._writer
        is_full = True

        def refuse(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if is_full and statement.startswith("INSERT"):
                raise OperationalError(statement, {}, Exception("database or disk is full"))

        event.listen(writer._engine, "before_cursor_execute", refuse)
        assert stack.client.get("/readyz").status_code == 200  # nothing was tried yet
        assert stack.chat().status_code == 503
        assert stack.client.get("/readyz").json()["code"] == "receipt_unavailable"
        writer._retry_s = 0.0  # no failure is fresh
        answer = stack.client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "receipt_unavailable")
        is_full = False
        assert stack.client.get("/readyz").status_code == 200
        assert not writer.has_failed


def test_without_its_database_a_gateway_answers_nothing(tmp_path: Path) -> None:
    """A file that was deleted would take receipts that nobody can ever read."""
    state, kept = tmp_path / "state", tmp_path / "kept"
    state.mkdir()
    with running_stack(state) as stack:
        receipt_id = stack.chat().headers["starshade-receipt"]
        state.rename(kept)
        stranger = {"authorization": f"Bearer sk-starshade-{'a' * 43}"}
        refusals = [
            stack.chat(),
            stack.client.get(f"/v1/receipts/{'0' * 32}"),
            stack.client.get("/v1/models", headers=stranger),
        ]
        codes = [(refused.status_code, error_of(refused)["code"]) for refused in refusals]
        assert codes == [(503, "receipt_unavailable")] * 3
        kept.rename(state)
        wait_until(lambda: stack.chat().status_code == 200)
        assert stack.client.get(f"/v1/receipts/{receipt_id}").status_code == 200


def test_nobody_waits_for_ever_for_a_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that does not answer at all is like one that refuses."""
    may_go_on = threading.Event()
    monkeypatch.setattr(gateway.receipts, "MAX_STORING_S", 0.1)
    with running_stack(tmp_path) as stack:
        stack.gateway.app.services.receipts._writer.submit(
            lambda _: bool(may_go_on.wait(PATIENCE_S))
        )
        try:
            refused = stack.chat()
        finally:
            may_go_on.set()
        assert (refused.status_code, error_of(refused)["code"]) == (503, "receipt_unavailable")
        wait_until(lambda: stack.chat().status_code == 200)


def test_no_room_for_receipts_no_answer(tmp_path: Path) -> None:
    """Nothing is answered while intents cannot be stored; what ran before is not lost."""
    with running_stack(tmp_path) as stack:
        before = stack.chat().headers["starshade-receipt"]
        lock = sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)
        with contextlib.closing(lock):
            lock.execute("CREATE TRIGGER full BEFORE INSERT ON receipt BEGIN "
                         "SELECT RAISE(FAIL, 'database or disk is full'); END")  # fmt: skip
            refusals = [stack.chat(), stack.chat(stream=True)]
            lock.execute("DROP TRIGGER full")
        assert {error_of(r)["code"] for r in refusals} == {"receipt_unavailable"}
        assert {r.status_code for r in refusals} == {503}
        assert all("starshade-receipt" not in r.headers for r in refusals)
        wait_until(lambda: stack.chat().status_code == 200)
        assert receipt_by_id(stack, before).outcome == "complete"


@pytest.fixture
def key_id(tmp_path: Path) -> str:
    """Of the key in `tmp_path / "key"`, of a gateway whose database has no more yet."""
    config = make_config(tmp_path)
    (tmp_path / "key").write_text(make_key(config, tenant="acme"))
    with contextlib.closing(sqlite3.connect(tmp_path / "gateway.db")) as connection:
        ((key_id,),) = connection.execute("SELECT id FROM api_key").fetchall()
    return str(key_id)


def is_found(stack: Stack, path: str) -> bool:
    return stack.client.get(path).status_code == 200


def insert_intents(tmp_path: Path, intents: Iterable[Intent]) -> None:
    database = open_engine(make_config(tmp_path).database_url)
    with writing(database).begin() as connection:
        for intent in intents:
            insert_intent(connection, intent)
    database.dispose()


def test_the_next_process_signs_for_the_one_that_died(
    tmp_path: Path, key_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests that one had open, a few at a time."""
    monkeypatch.setattr(table, "MAX_SIGNED", 2)
    opened_ns = 1_700_000_000_000_000_000
    intents = [
        Intent(id=digit * 32, key_id=key_id, kid="dead", endpoint=CHAT, opened_ns=opened_ns)
        for digit in "abcde"
    ]
    insert_intents(tmp_path, intents)
    with running_stack(tmp_path, gateway__receipt_days=3650) as stack:
        stack.client.headers["authorization"] = f"Bearer {(tmp_path / 'key').read_text()}"
        for intent in intents:
            path = f"/v1/receipts/{intent.id}"
            wait_until(partial(is_found, stack, path))
            receipt = receipt_by_id(stack, intent.id)
            assert (receipt.outcome, receipt.code) == ("interrupted", "gateway_died")


def test_receipts_are_kept_as_long_as_is_said(
    tmp_path: Path, key_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are too old, a few at a time."""
    monkeypatch.setattr(table, "MAX_PRUNED", 2)
    insert_intents(
        tmp_path,
        (
            Intent(id=digit * 32, key_id=key_id, kid="dead", endpoint=CHAT, opened_ns=1)
            for digit in "abcde"
        ),
    )

    def ids() -> set[str]:
        with contextlib.closing(sqlite3.connect(tmp_path / "gateway.db")) as connection:
            return {row[0] for row in connection.execute("SELECT id FROM receipt")}

    with running_stack(tmp_path) as stack:
        made = stack.chat().headers["starshade-receipt"]
        wait_until(lambda: ids() == {made})
