"""What does a negative test look at besides the answer?  What was forwarded, recorded and leaked.

Each test of this folder is one of the attacks of docs/threat-model.md, against a gateway and a
worker from the production wiring. After the refusal nothing may have reached the engine, the audit
log must say what was refused, and neither the prompt nor the key may be anywhere.
"""

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gateway.audit_chain import AuditEvent, parse_event
from gateway.db import open_engine
from gateway.db.audit import last_events
from runtime import GenerationRequest
from tests.e2e.leaks import places_of
from tests.e2e.support import Installation, installation
from tests.gateway.support import error_of, settle, wait_until

CANARY = "canary-71e0b3f2"
CHAT = "/v1/chat/completions"
LOGGERS = ("gateway", "attestation", "runtime", "telemetry", "uvicorn")


@dataclass
class Scene:
    """A running installation, and what its engine was asked to compute."""

    running: Installation
    folder: Path
    log: "Log"
    computed: list[GenerationRequest] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    seen_seq: int = 0  # events up to this one are those of earlier tests

    def begin(self) -> None:
        """What was recorded so far is nothing that `wait_for_event` waits for."""
        self.settle()
        self.seen_seq = self.events()[-1].seq
        audit = self.running.gateway.app.services.audit
        audit._last_states.clear()  # a worker's state is written where it differs from the last one

    def settle(self) -> None:
        """Waits until every request that was answered has ended, and is recorded."""
        self.running.settle()
        settle(self.running.gateway)

    def ask(self, *, stream: bool = False, **headers: str) -> httpx.Response:
        """A chat whose prompt is the canary."""
        with self.running.http() as client:
            body = self.running.body(f"{CANARY} and nothing else", stream=stream)
            answer = client.post(CHAT, json=body, headers=headers)
        self.answers.append(answer.text)
        return answer

    def events(self) -> list[AuditEvent]:
        engine = open_engine(self.running.config.database_url)
        try:
            return [parse_event(stored) for stored in last_events(engine, limit=1000)]
        finally:
            engine.dispose()

    def wait_for_event(self, kind: str, **fields: str | int) -> AuditEvent:
        """The newest such event since `begin`; it is written a moment after the answer."""
        found: list[AuditEvent] = []

        def is_there() -> bool:
            found[:] = [
                event
                for event in self.events()
                if event.seq > self.seen_seq
                and event.kind == kind
                and fields.items() <= event.fields.items()
            ]
            return bool(found)

        wait_until(is_there)
        return found[-1]

    def assert_refused(
        self, answer: httpx.Response, code: str, *, detail: str | None = None
    ) -> None:
        """With this code, an audit event that says why, and a signed receipt that says so."""
        error = error_of(answer)
        assert error["code"] == code
        receipt_id = answer.headers["starshade-receipt"]
        assert error["receipt"] == receipt_id
        fields: dict[str, str | int] = {"code": code, "receipt": receipt_id}
        if detail is not None:
            fields["detail"] = detail
        event = self.wait_for_event("request_refused", **fields)
        assert event.fields["status"] == answer.status_code
        receipt = self.receipt(receipt_id)
        assert (receipt["outcome"], receipt["code"]) == ("refused", code)

    def receipt(self, receipt_id: str) -> dict[str, Any]:
        with self.running.http() as client:
            wait_until(lambda: client.get(f"/v1/receipts/{receipt_id}").status_code == 200)
            answer = client.get(f"/v1/receipts/{receipt_id}")
        receipt: dict[str, Any] = answer.json()["receipt"]
        return receipt

    def assert_nothing_computed(self) -> None:
        self.settle()
        assert self.computed == []

    def assert_nothing_sealed(self) -> None:
        """Nothing was even sent: no worker had a lease."""
        self.settle()
        assert self.running.proxy.sealed_requests() == []

    def assert_no_secret(self, *secrets: str) -> None:
        """Prompts, keys and `secrets` are in no file, log record, span, answer or hop."""
        self.settle()
        places = {
            **places_of(self.folder, self.log.records),
            "spans": self.running.exported(),
            "answers": "\n".join(self.answers),
            "hop": self.running.proxy.recorded().decode("latin-1"),
        }
        for secret in (CANARY, self.running.key, *secrets):
            assert {place for place, text in places.items() if secret in text} == set()


class Log(logging.Handler):
    """Keeps every record of our own loggers and the servers', at every level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @contextlib.contextmanager
    def listening(self) -> Iterator["Log"]:
        loggers = {name: logging.getLogger(name) for name in LOGGERS}
        levels = {name: logger.level for name, logger in loggers.items()}
        for logger in loggers.values():
            logger.setLevel(logging.DEBUG)
            logger.addHandler(self)
        try:
            yield self
        finally:
            for name, logger in loggers.items():
                logger.removeHandler(self)
                logger.setLevel(levels[name])


@contextlib.contextmanager
def scene(folder: Path, model: Path, **options: Any) -> Iterator[Scene]:
    """`options` are those of `installation`."""
    with Log().listening() as log, installation(folder, model, **options) as running:
        made = Scene(running=running, folder=folder, log=log)
        wait_until(lambda: running.worker_get("/readyz").status_code == 200, timeout_s=60)
        listen(made)
        yield made


def listen(made: Scene) -> None:
    """Call it again for a worker that was started anew."""
    engine = made.running.worker.app.state.ready.bridge._engine
    add = engine.add

    def noted(request: GenerationRequest) -> None:
        made.computed.append(request)
        add(request)

    engine.add = noted


def code_of_event(data: str) -> str:
    """The code of a stream's last event."""
    code: str = json.loads(data.removeprefix("data: "))["error"]["code"]
    return code


def kinds(events: Sequence[AuditEvent]) -> list[str]:
    return [event.kind for event in events]
