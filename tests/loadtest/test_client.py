"""Are the client's clocks honest against a server whose schedule is known?"""

import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest

from loadtest.client import PinMismatch, StreamOutcome, stream_chat
from tests.loadtest.conftest import target_for
from tests.support.schedule_server import Schedule, schedule_server

BODY: dict[str, object] = {"model": "m", "messages": [], "stream": True}


def _ask(
    certificate: tuple[Path, Path], schedule: Schedule, *, times: int = 1
) -> list[tuple[int, StreamOutcome]]:
    with schedule_server(*certificate, schedule) as port:
        client = target_for(port, certificate[0]).client(concurrency=1)
        results = []
        for _ in range(times):
            sent_ns = time.monotonic_ns()
            outcome = stream_chat(
                client, "/v1/chat/completions", BODY, headers={}, clock_ns=time.monotonic_ns
            )
            results.append((sent_ns, outcome))
        client.close()
    return results


def test_first_token_and_gaps_follow_the_servers_schedule(certificate: tuple[Path, Path]) -> None:
    results = _ask(certificate, Schedule(ttft_s=0.05, gap_s=0.02, num_tokens=16), times=6)
    warm = results[1:]  # the first opens the connection
    # A client that reads blocks reports 0.35 s and gaps of zero, of each; a busy machine of some.
    assert any(_is_on_schedule(sent_ns, outcome) for sent_ns, outcome in warm)


def _is_on_schedule(sent_ns: int, outcome: StreamOutcome) -> bool:
    chunks_ns = outcome.facts.text_chunks_ns
    gaps_s = [(b - a) / 1e9 for a, b in pairwise(chunks_ns)]
    return (
        0.049 <= (chunks_ns[0] - sent_ns) / 1e9 < 0.075
        and statistics.median(gaps_s) == pytest.approx(0.02, abs=0.004)
        and sum(gap_s < 0.001 for gap_s in gaps_s) <= len(gaps_s) * 0.05
    )


def test_usage_and_finish_are_read(certificate: tuple[Path, Path]) -> None:
    [(_, outcome)] = _ask(certificate, Schedule(ttft_s=0, gap_s=0, num_tokens=3))
    facts = outcome.facts
    assert (outcome.status, facts.error_code, facts.finish_reason) == (200, None, "length")
    assert (facts.prompt_tokens, facts.output_tokens, facts.cached_tokens) == (40, 3, 16)


def test_a_refusal_keeps_its_code(certificate: tuple[Path, Path]) -> None:
    [(_, outcome)] = _ask(certificate, Schedule(status=503))
    assert (outcome.status, outcome.facts.error_code) == (503, "overloaded")


def test_a_cut_stream_is_never_a_short_answer(certificate: tuple[Path, Path]) -> None:
    [(_, outcome)] = _ask(certificate, Schedule(gap_s=0, is_truncated=True))
    assert outcome.status == 200
    assert outcome.facts.error_code == "stream_truncated"
    assert len(outcome.facts.text_chunks_ns) == 3


def test_another_tls_key_is_refused(certificate: tuple[Path, Path]) -> None:
    with schedule_server(*certificate, Schedule()) as port:
        client = target_for(port, certificate[0], pin="00" * 32).client(concurrency=1)
        with pytest.raises(PinMismatch):
            stream_chat(client, "/v1/x", BODY, headers={}, clock_ns=time.monotonic_ns)
