"""Does `starshade up` find trouble first, name the next step, and know when it is ready?"""

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway import preflight
from gateway.cli_support import ExitCode, Failure
from gateway.config import StarshadeConfig, load_config
from gateway.models import KNOWN_MODELS
from gateway.probes import (
    NO_ANSWER,
    Answer,
    gateway_answers,
    observatory_answers,
    probe_worker,
    worker_answers,
)
from gateway.sockets import SocketTaken, listen_tcp, listen_unix
from gateway.startup import Probes, Started, wait_until_ready
from gateway.tls import ensure_certificates, server_context
from gateway.up import child_environment, roles, supervise, up
from tests.support.servers import ServerThread, free_port

LOOPBACK = "127.0.0.1"


@pytest.fixture
def config(tmp_path: Path) -> StarshadeConfig:
    """A state folder, two free ports, and a model file that starts like one."""
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF....")
    flags = {
        "state_dir": tmp_path / "s",
        "cache_dir": tmp_path / "c",
        "gateway.port": free_port(),
        "observatory.port": free_port(),
        "worker.model": str(model),
    }
    config = load_config(flags=flags, environ={}, default_policy="development")
    assert preflight.prepare_state(config) is None
    return config


def altered(config: StarshadeConfig, **flags: object) -> StarshadeConfig:
    base: dict[str, object] = {
        "state_dir": config.state_dir,
        "cache_dir": config.cache_dir,
        "gateway.port": config.gateway.port,
        "observatory.port": config.observatory.port,
        "worker.model": config.worker.model,
    }
    given = {key.replace("__", "."): value for key, value in flags.items()}
    return load_config(flags=base | given, environ={}, default_policy="development")


def codes(config: StarshadeConfig) -> list[str]:
    problems = preflight.find_problems(config)
    assert all(problem.next_step for problem in problems)
    return [problem.code for problem in problems]


def test_a_sound_configuration_has_no_problems(config: StarshadeConfig) -> None:
    assert codes(config) == []


def test_one_port_for_two_services_is_refused(config: StarshadeConfig) -> None:
    assert codes(altered(config, observatory__port=config.gateway.port)) == ["address_in_use"]


def test_a_taken_port_is_named_with_a_free_one(config: StarshadeConfig) -> None:
    with closing(listen_tcp(LOOPBACK, config.gateway.port)):
        (problem,) = preflight.find_problems(config)
    assert problem.code == "address_in_use"
    assert f"port {config.gateway.port}" in problem.message
    suggested = int(problem.next_step.split("--port ")[1].rstrip("`"))
    listen_tcp(LOOPBACK, suggested).close()


def test_all_problems_are_found_together(config: StarshadeConfig) -> None:
    bad = altered(config, policy="strict", worker__model="/no/such.gguf")
    with closing(listen_tcp(LOOPBACK, config.observatory.port)):
        assert codes(bad) == ["address_in_use", "policy_not_found", "model_file_unusable"]


@pytest.mark.parametrize("key", ["policy", "gateway__deny_file"])
def test_a_policy_that_cannot_be_used_is_found(
    config: StarshadeConfig, tmp_path: Path, key: str
) -> None:
    damaged = tmp_path / "damaged.toml"
    damaged.write_bytes(b"\xff")
    assert codes(altered(config, **{key: str(damaged)})) == ["policy_invalid"]


@pytest.mark.parametrize(
    ("model", "code"), [("gpt-17", "model_unknown"), ("./tiny.txt", "model_file_unusable")]
)
def test_a_wrong_model_is_told_apart(config: StarshadeConfig, model: str, code: str) -> None:
    assert codes(altered(config, worker__model=model)) == [code]


def test_a_file_that_is_no_gguf_is_refused(config: StarshadeConfig, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"\x7fELF")
    assert codes(altered(config, worker__model=str(other))) == ["model_file_unusable"]


def test_a_file_of_authorities_that_is_none_is_found(config: StarshadeConfig) -> None:
    bad = altered(config, gateway__collateral__ca_file="/no/ca.pem")
    (problem,) = preflight.find_problems(bad)
    assert problem.code == "config_invalid"
    assert "gateway.collateral.ca_file: no CA certificates in /no/ca.pem" in str(problem)
    offline = {"gateway__collateral__offline": True, "gateway__collateral__ca_file": "/no/ca.pem"}
    assert codes(altered(config, **offline)) == []  # then nobody is asked


def test_a_full_disk_is_found_before_the_pull(
    config: StarshadeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(config.state_dir)._replace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    missing = altered(config, worker__model="smollm2-135m")
    assert codes(config) == []  # enough for the state folder alone
    assert codes(missing) == ["disk_full"]
    assert preflight.model_to_pull(missing) == KNOWN_MODELS[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_state_folder_is_found(config: StarshadeConfig) -> None:
    config.state_dir.chmod(0o500)
    assert "state_not_writable" in codes(config)


def test_a_state_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    problem = preflight.prepare_state(load_config(flags={"state_dir": tmp_path / "s"}, environ={}))
    assert problem is not None
    assert problem.code == "state_not_writable"


def test_a_socket_path_beyond_the_system_limit_is_found(config: StarshadeConfig) -> None:
    assert codes(altered(config, worker__socket="/" + "d" * 120)) == ["socket_path_too_long"]


def test_a_second_up_is_refused_and_told_who_runs(config: StarshadeConfig) -> None:
    lock = config.paths.up_lock
    with (
        preflight.only_one_up(lock),
        pytest.raises(Failure, match=f"process {os.getpid()}"),
        preflight.only_one_up(lock),
    ):
        pass
    with preflight.only_one_up(lock):  # and free again
        pass


@pytest.mark.parametrize("call", ["open", "write", "ftruncate"])
def test_a_lock_that_cannot_be_written_is_told_in_words(
    config: StarshadeConfig, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    result = CliRunner().invoke(up, ["--state-dir", str(config.state_dir)])
    monkeypatch.undo()
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "No space left on device [state_not_writable]" in result.output


def test_a_log_that_cannot_be_opened_is_told_in_words(config: StarshadeConfig) -> None:
    (config.paths.logs_dir / "worker.log").mkdir()
    children = roles(config, None)[1:2]
    with pytest.raises(Failure) as caught:
        supervise(config, children, {})
    assert caught.value.code == "state_not_writable"


def test_up_exits_with_usage_status_for_a_wrong_model(config: StarshadeConfig) -> None:
    result = CliRunner().invoke(
        up, ["--model", "gpt-17", "--state-dir", str(config.state_dir), "--port", "1"]
    )
    assert result.exit_code == ExitCode.USAGE
    assert "model_unknown" in result.output
    assert "next:" in result.output


class Script:
    """Answers in turn, the last one for ever; shows and sleeps are recorded."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.shown: list[tuple[str, float | None]] = []

    def __call__(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def show(self, stage: str, ratio: float | None = None) -> None:
        self.shown.append((stage, ratio))

    def tick(self) -> None: ...


def answer(code: int, /, **body: Any) -> Answer:
    return Answer(status=code, body=body)


READY_WORKER = answer(200, status="ready", model="tiny")
REFUSED = answer(
    503,
    code="upstream_verification_failed",
    detail="No worker passed attestation: untrusted_root.",
)


def outcome(
    config: StarshadeConfig, worker: Script, gateway: Script, nodes: Answer = NO_ANSWER
) -> Started | None:
    probes = Probes(worker=worker, gateway=gateway, nodes=lambda: nodes)
    sleeps: list[float] = []
    stop = iter([False] * 50)
    return wait_until_ready(
        config, worker, probes, worker, stop=lambda: next(stop, True), sleep=sleeps.append
    )


def test_loading_verifying_ready(config: StarshadeConfig) -> None:
    loading = answer(503, status="loading", progress=0.4)
    worker = Script(NO_ANSWER, loading, READY_WORKER)
    waiting = answer(503, code="upstream_unavailable")
    gateway = Script(waiting, waiting, waiting, answer(200, status="ready"))
    started = outcome(config, worker, gateway, answer(200, data=[{"simulated": False}]))
    assert started == Started(model="tiny", is_simulated=False)
    assert [ratio for _, ratio in worker.shown] == [None, 0.4, None]
    assert worker.shown[-1][0] == "verifying the worker"


@pytest.mark.parametrize(
    "data", [None, [], [{}], [{"simulated": None}], [{"simulated": False}, {"simulated": True}]]
)
def test_what_is_not_said_to_be_real_is_simulated(config: StarshadeConfig, data: Any) -> None:
    nodes = answer(200, data=data)
    started = outcome(config, Script(READY_WORKER), Script(answer(200)), nodes)
    assert started is not None
    assert started.is_simulated


def test_a_refusal_ends_with_its_own_code_and_status_10(config: StarshadeConfig) -> None:
    with pytest.raises(Failure) as caught:
        outcome(config, Script(READY_WORKER), Script(REFUSED))
    assert (caught.value.code, caught.value.exit_code) == ("untrusted_root", ExitCode.REJECTED)
    assert "--policy development" in caught.value.next_step


def test_a_machine_without_a_tee_is_a_refusal_too(config: StarshadeConfig) -> None:
    with pytest.raises(Failure) as caught:
        outcome(
            config, Script(answer(503, status="failed", code="tee_unavailable")), Script(REFUSED)
        )
    assert (caught.value.code, caught.value.exit_code) == ("tee_unavailable", ExitCode.REJECTED)


def test_a_model_that_cannot_be_loaded_ends_the_wait(config: StarshadeConfig) -> None:
    failed = answer(503, status="failed", code="unsupported_architecture")
    with pytest.raises(Failure) as caught:
        outcome(config, Script(failed), Script(NO_ANSWER))
    assert caught.value.code == "unsupported_architecture"


def test_being_told_to_stop_ends_the_wait(config: StarshadeConfig) -> None:
    assert outcome(config, Script(NO_ANSWER), Script(NO_ANSWER)) is None


def test_children_read_the_same_configuration(
    config: StarshadeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARSHADE_ENGINE__MAX_SEQUENCES", "3")
    monkeypatch.setenv("STARSHADE_GATEWAY__PORT", "1234")  # a flag beats it
    flags = {
        "gateway.port": config.gateway.port,
        "observatory.port": config.observatory.port,
        "worker.model": config.worker.model,
        "cache_dir": config.cache_dir,
        "policy": None,
    }
    child = load_config(environ=child_environment(config, flags))
    assert child.engine.max_sequences == 3
    assert child.policy == "development"
    expected = altered(config)
    assert (child.gateway, child.worker, child.observatory) == (
        expected.gateway,
        expected.worker,
        expected.observatory,
    )
    assert {role.name for role in roles(config, tmp_path)} == {"gateway", "worker", "observatory"}


def test_a_stale_unix_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listen_unix(path).close()  # closed without unlinking: as after a crash
    with closing(listen_unix(path)), pytest.raises(SocketTaken):
        listen_unix(path)


def test_a_file_in_the_place_of_the_socket_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("kept")
    with pytest.raises(FileExistsError):
        listen_unix(path)
    assert path.read_text() == "kept"


def loaded_by(*arguments: str) -> set[str]:
    """Top-level packages in memory after a command line has run."""
    code = (
        "import sys, json\nfrom gateway.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


OURS = {"gateway", "runtime", "attestation", "telemetry", "loadtest", "web"}
HEAVY = {
    *("torch", "numpy", "tokenizers", "locust", "gevent", "httpx", "pydantic", "rich"),
    *("fastapi", "uvicorn", "sqlalchemy", "alembic", "opentelemetry", "cryptography"),
}


@pytest.mark.parametrize(
    "command", [(), ("up",), ("serve",), ("worker",), ("observatory",), ("keys",), ("models",)]
)
def test_help_imports_nothing_heavy(command: tuple[str, ...]) -> None:
    loaded = loaded_by(*command, "--help")
    assert not loaded & HEAVY
    assert loaded & OURS == {"gateway"}


alive = Starlette(routes=[Route("/healthz", lambda _request: PlainTextResponse("alive"))])


def test_a_refusal_without_json_is_a_sign_of_life(config: StarshadeConfig) -> None:
    busy = PlainTextResponse("busy", 503)
    app = Starlette(routes=[Route("/{path:path}", lambda _request: busy)])
    with ServerThread(app, uds=config.worker.socket):
        assert worker_answers(config.worker.socket)
        assert not probe_worker(config.worker.socket).ready


def test_what_does_not_answer_is_no_sign_of_life(config: StarshadeConfig) -> None:
    assert not worker_answers(config.worker.socket)
    with closing(listen_unix(config.worker.socket)):  # as a stopped process: it never accepts
        assert not worker_answers(config.worker.socket)
    assert not gateway_answers(config)
    assert not observatory_answers(config)


def test_a_gateway_lives_without_its_authoritys_file(config: StarshadeConfig) -> None:
    ensure_certificates(config.paths, (), at=datetime.now(UTC))  # noqa: TID251 - TLS needs it
    context = server_context(config.paths)
    with ServerThread(alive, context=context) as server:
        running = altered(config, gateway__port=server.port)
        assert gateway_answers(running)
        config.paths.ca_cert.unlink()
        assert gateway_answers(running)


def test_the_observatory_is_asked_over_plain_http(config: StarshadeConfig) -> None:
    with ServerThread(alive) as server:
        assert observatory_answers(altered(config, observatory__port=server.port))
