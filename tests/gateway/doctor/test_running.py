"""What does the doctor make of what the processes say?"""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import StarshadeConfig
from gateway.doctor import running
from gateway.doctor.running import Asked
from gateway.probes import NO_ANSWER, Answer
from gateway.sockets import listen_tcp
from tests.gateway.support import make_config
from tests.support.servers import free_port

READY = Answer(status=200, body={"status": "ready", "model": "hash"})


def asked(**answers: Any) -> Asked:
    silent: dict[str, Any] = {
        "worker": NO_ANSWER,
        "gateway": NO_ANSWER,
        "nodes": NO_ANSWER,
        "key": None,
    }
    silent |= {"dashboard_is_alive": False, "is_dashboard_ours": False}
    return Asked(**{**silent, **answers})


@pytest.fixture
def config(tmp_path: Path) -> StarshadeConfig:
    ports = {"gateway__port": free_port(), "observatory__port": free_port()}
    return make_config(tmp_path, **ports)


def test_nothing_running_is_well_while_the_ports_are_free(config: StarshadeConfig) -> None:
    assert running.gateway_process(config, asked()).outcome == "ok"
    assert running.dashboard_process(config, asked()).outcome == "ok"
    assert running.worker_process(config, asked()).found == "not running"


def test_a_port_that_another_process_holds_is_wrong(config: StarshadeConfig) -> None:
    with listen_tcp("127.0.0.1", config.gateway.port):
        assert running.gateway_process(config, asked()).code == "address_in_use"
    with listen_tcp("127.0.0.1", config.observatory.port):
        assert running.dashboard_process(config, asked()).code == "address_in_use"


def test_another_installation_s_dashboard_is_not_ours(config: StarshadeConfig) -> None:
    with listen_tcp("127.0.0.1", config.observatory.port):
        found = running.dashboard_process(config, asked(dashboard_is_alive=True))
        assert (found.outcome, found.code) == ("wrong", "address_in_use")
        assert "another installation" in found.found
        assert "--state-dir" in found.next_step
        ours = asked(dashboard_is_alive=True, is_dashboard_ours=True)
        assert running.dashboard_process(config, ours).outcome == "ok"


def test_our_own_gateway_on_its_port_is_well(config: StarshadeConfig) -> None:
    with listen_tcp("127.0.0.1", config.gateway.port):
        assert running.gateway_process(config, asked(gateway=READY)).outcome == "ok"


def test_a_gateway_without_a_verified_worker_says_why(config: StarshadeConfig) -> None:
    body = {"code": "upstream_verification_failed", "detail": "No worker passed: untrusted_root."}
    finding = running.gateway_process(config, asked(gateway=Answer(status=503, body=body)))
    assert (finding.outcome, finding.code) == ("wrong", "upstream_verification_failed")
    assert "untrusted_root" in finding.found
    assert "--policy development" in finding.next_step


def test_a_worker_that_loads_is_well_and_one_that_failed_is_not(config: StarshadeConfig) -> None:
    loading = Answer(status=503, body={"status": "loading", "progress": 0.25})
    assert "(25%)" in running.worker_process(config, asked(worker=loading)).found
    failed = Answer(status=503, body={"status": "failed", "code": "not_gguf"})
    assert running.worker_process(config, asked(worker=failed)).code == "not_gguf"


def node(**members: Any) -> dict[str, Any]:
    entry = {"id": "worker-0", "state": "verified", "tier": "affirming", "simulated": False}
    return {**entry, "code": None, "not_after": "2026-06-01T12:05:00Z", **members}


@pytest.mark.parametrize(
    ("entry", "outcome", "code"),
    [
        (node(), "ok", ""),
        (node(simulated=True, tier="warning"), "warning", "tee_simulated"),
        (node(simulated=None), "warning", "tee_simulated"),  # not said is not real
        (node(state="quarantined", code="debug_enabled"), "wrong", "debug_enabled"),
        (node(state="expired"), "wrong", "upstream_unavailable"),
    ],
)
def test_each_verdict_has_its_words(entry: dict[str, Any], outcome: str, code: str) -> None:
    nodes = Answer(status=200, body={"data": [entry]})
    (finding,) = running.verdicts(asked(nodes=nodes))
    assert (finding.outcome, finding.code) == (outcome, code)


def test_a_list_of_nodes_that_is_none_gives_no_verdict() -> None:
    no_lists: list[Any] = [None, {}, ["worker-0"]]
    for data in no_lists:
        assert running.verdicts(asked(nodes=Answer(status=200, body={"data": data}))) == []


def test_a_key_that_the_gateway_refuses_is_wrong(config: StarshadeConfig) -> None:
    refused = asked(key=Answer(status=401, body={}))
    assert running.api_key(config, refused).code == "invalid_api_key"
    assert running.api_key(config, asked(key=READY)).found == "accepted"
