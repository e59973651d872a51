"""Which chunks of a stream are tokens?  Dialects of several servers, split and broken streams."""

import json

from loadtest.sse import TimedLine, parse_stream


def _lines(*payloads: object) -> list[TimedLine]:
    encoded = [p if isinstance(p, bytes) else b"data: " + json.dumps(p).encode() for p in payloads]
    return [TimedLine(at_ns=10 * (k + 1), data=data) for k, data in enumerate(encoded)]


def _delta(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_only_chunks_with_text_are_tokens() -> None:
    facts = parse_stream(
        _lines(
            b": ping",
            _delta(role="assistant", content=""),
            _delta(content="a"),
            _delta(content=""),
            b"event: noise",
            _delta(reasoning_content="b"),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            b"data: [DONE]",
        )
    )
    assert facts.text_chunks_ns == [30, 60]
    assert facts.finish_reason == "stop"
    assert (facts.prompt_tokens, facts.output_tokens, facts.cached_tokens) == (3, 2, None)
    assert facts.error_code is None


def test_an_error_event_keeps_its_code() -> None:
    facts = parse_stream(_lines(_delta(content="a"), {"error": {"code": "upstream_truncated"}}))
    assert facts.error_code == "upstream_truncated"


def test_a_stream_without_done_is_truncated() -> None:
    assert parse_stream(_lines(_delta(content="a"))).error_code == "stream_truncated"


def test_hostile_events_become_codes() -> None:
    facts = parse_stream(
        _lines(b"data: {", [1], {"choices": 5}, {"usage": {"prompt_tokens": -1}}, b"data: [DONE]")
    )
    assert facts.error_code == "malformed_event"
    assert facts.prompt_tokens is None
