"""Does the JSON API answer exactly what its schemas say, with the numbers of the rows?"""

from pathlib import Path
from typing import Any

import pytest

from telemetry.db.engine import open_engine
from telemetry.db.runs import RunRecord, RunRequest, write_run
from telemetry.histogram import ExpHistogram
from tests.telemetry.spans import MS, SECOND, attest_span, chat_span
from tests.web.conftest import NOW_NS
from tests.web.observatory import Observatory, serve
from web import schemas
from web.app import create_app


@pytest.fixture
def filled(observatory: Observatory, database_url: str) -> Observatory:
    """Three requests, one of them failed; one worker; one run."""
    observatory.writer.submit_spans(
        [
            chat_span(1, started_ns=NOW_NS - 25 * SECOND, ttft_s=0.1, gaps_ns=[100 * MS] * 4),
            chat_span(2, started_ns=NOW_NS - 25 * SECOND, ttft_s=0.3, gaps_ns=[50 * MS] * 4),
            chat_span(
                3,
                started_ns=NOW_NS - 5 * SECOND,
                ttft_s=None,
                GEN_AI_REQUEST_MODEL="other",
                ERROR_TYPE="overloaded",
                HTTP_RESPONSE_STATUS_CODE=503,
            ),
            attest_span(
                4,
                at_ns=NOW_NS - 60 * SECOND,
                tier="warning",
                ATTESTATION_SIMULATED=True,
                ATTESTATION_TEE="fake-tdx",
                ATTESTATION_VERDICT_ID="v-1",
                ATTESTATION_WEIGHTS_SHA256="ab" * 32,
            ),
        ]
    )
    assert observatory.writer.flush()
    engine = open_engine(database_url)
    write_run(
        engine,
        RunRecord(
            id="run-1",
            label="first",
            profile="smoke",
            config_json="{}",
            started_ns=NOW_NS - 40 * SECOND,
            ended_ns=NOW_NS - 20 * SECOND,
            valid=True,
        ),
        [
            RunRequest(
                seq=1,
                phase="measure",
                intended_ns=0,
                first_token_ns=200 * MS,
                last_token_ns=500 * MS,
                output_tokens=4,
                gap_sketch=ExpHistogram.from_ns([100 * MS] * 3),
            )
        ],
    )
    engine.dispose()
    return observatory


def get(observatory: Observatory, path: str) -> Any:
    answer = observatory.client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_overview(filled: Observatory) -> None:
    body = get(filled, "/api/overview?window_s=60")
    schemas.OverviewOut.model_validate(body)
    assert body["now_s"] == NOW_NS / SECOND
    assert (body["to_s"] - body["from_s"], body["step_s"]) == (60.0, 1.0)
    assert body["models"] == ["other", "smollm2-135m"]
    series = body["series"]
    assert len(series["t_s"]) == 60
    for name in ("requests", "errors", "prompt_tokens", "cached_tokens", "output_tokens"):
        assert len(series[name]) == 60
    for name in ("ttft_s", "itl_s", "e2e_s"):
        assert {len(values) for values in series[name].values()} == {60}
    assert series["requests"][35] == 2
    assert series["errors"][55] == 1
    assert (series["ttft_s"]["p50"][35], series["ttft_s"]["p99"][35]) == (0.1, 0.3)
    assert series["ttft_s"]["p50"][55] is None
    totals = body["totals"]
    assert (totals["requests"], totals["errors"]) == (3, 1)
    assert (totals["prompt_tokens"], totals["cached_tokens"]) == (120, 48)
    assert totals["e2e_s"] == {"count": 2, "p50": 0.5, "p90": 0.5, "p99": 0.5}
    assert totals["tpot_s"] == {"count": 2, "p50": 0.05, "p90": 0.1, "p99": 0.1}
    assert totals["itl_s"]["count"] == 8
    assert totals["itl_s"]["p99"] == pytest.approx(0.1, rel=0.011)
    assert body["ingest"] == {"received": 4, "dropped": 0, "lag_s": 0.0}


def test_overview_of_one_model_and_of_another_time(filled: Observatory) -> None:
    one = get(filled, "/api/overview?window_s=60&model=other")
    assert one["totals"]["requests"] == 1
    assert one["models"] == ["other", "smollm2-135m"]
    before = get(filled, f"/api/overview?window_s=60&until_s={NOW_NS / SECOND - 10}")
    assert before["totals"]["requests"] == 2
    assert before["to_s"] == NOW_NS / SECOND - 10
    assert get(filled, "/api/overview?model=none")["totals"]["requests"] == 0


def test_runs(filled: Observatory) -> None:
    body = get(filled, "/api/runs?limit=5")
    schemas.RunsOut.model_validate(body)
    (run,) = body["runs"]
    assert run["itl_s"].pop("p50") == pytest.approx(0.1, rel=0.011)
    one = {"count": 1}
    assert run == {
        "id": "run-1",
        "label": "first",
        "profile": "smoke",
        "started_s": NOW_NS / SECOND - 40,
        "ended_s": NOW_NS / SECOND - 20,
        "valid": True,
        "invalid_reasons": [],
        "requests": 1,
        "failed": 0,
        "output_tokens": 4,
        "ttft_s": one | {"p50": 0.2, "p90": 0.2, "p99": 0.2},
        "e2e_s": one | {"p50": 0.5, "p90": 0.5, "p99": 0.5},
        "tpot_s": one | {"p50": 0.1, "p90": 0.1, "p99": 0.1},
        "itl_s": run["itl_s"],
        "achieved_rate": 2.0,
    }


def test_workers(filled: Observatory) -> None:
    body = get(filled, "/api/workers")
    schemas.WorkersOut.model_validate(body)
    assert body["workers"] == [
        {
            "id": "worker-0",
            "tier": "warning",
            "code": None,
            "tee": "fake-tdx",
            "simulated": True,
            "trust_anchor": None,
            "policy": "production",
            "verdict_id": "v-1",
            "weights_sha256": "ab" * 32,
            "appraised_s": NOW_NS / SECOND - 60,
            "not_after_s": NOW_NS / SECOND + 540,
            "reason": "The evidence is simulated: it proves the protocol, not the hardware.",
        }
    ]


def test_requests(filled: Observatory) -> None:
    body = get(filled, "/api/requests?limit=2")
    schemas.RequestsOut.model_validate(body)
    failed, _ = body["requests"]
    assert failed == {
        "trace_id": "0" * 31 + "3",
        "started_s": NOW_NS / SECOND - 5,
        "model": "other",
        "worker": "worker-0",
        "status": 503,
        "error_type": "overloaded",
        "ttft_s": None,
        "e2e_s": 0.5,
        "tpot_s": None,
        "prompt_tokens": 40,
        "cached_tokens": 16,
        "output_tokens": 5,
    }


def test_nothing_yet(observatory: Observatory) -> None:
    body = get(observatory, "/api/overview")
    assert len(body["series"]["t_s"]) == 120
    assert body["totals"]["ttft_s"] == {"count": 0, "p50": None, "p90": None, "p99": None}
    assert body["ingest"] == {"received": 0, "dropped": 0, "lag_s": None}
    assert get(observatory, "/api/runs") == {"runs": []}
    assert get(observatory, "/api/workers") == {"workers": []}
    assert get(observatory, "/api/requests") == {"requests": []}
    assert get(observatory, "/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/overview?window_s=9",
        "/api/overview?window_s=many",
        "/api/overview?until_s=1e99",
        "/api/overview?until_s=nan",
        "/api/overview?model=" + "x" * 200,
        "/api/runs?limit=0",
        "/api/requests?limit=100000",
    ],
)
def test_bad_queries_are_problems_that_quote_nothing(observatory: Observatory, path: str) -> None:
    answer = observatory.client.get(path)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "invalid_value"
    assert path.partition("=")[2] not in answer.json()["detail"]


def test_a_restart_finds_everything_again(filled: Observatory, database_url: str) -> None:
    with serve(create_app(database_url, static_dir=Path("none"), clock_ns=lambda: NOW_NS)) as again:
        assert get(again, "/api/overview?window_s=60")["totals"]["requests"] == 3
