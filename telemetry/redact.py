"""What may leave a process in a span?  A closed list of attributes, and of shapes of their values.

Applied twice: by every exporter, and again at ingest, where the sender is not trusted.  What is
not on the list is dropped and counted, so that no prompt, answer or key can travel by accident.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from telemetry import semconv

AttributeValue = str | bool | int | float | tuple[int, ...] | tuple[str, ...]
Shape = Callable[[object], AttributeValue | None]

MAX_SEQUENCE: Final = 2048  # as many as a histogram has buckets
MAX_INT: Final = 2**53
REDACTED_SPAN_NAME: Final = "redacted"


def _matches(pattern: str) -> Shape:
    compiled = re.compile(pattern)

    def shape(value: object) -> AttributeValue | None:
        return value if isinstance(value, str) and compiled.fullmatch(value) else None

    return shape


def _boolean(value: object) -> AttributeValue | None:
    return value if isinstance(value, bool) else None


def _integer(value: object) -> AttributeValue | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) <= MAX_INT else None


def _number(value: object) -> AttributeValue | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= MAX_INT else None  # NaN compares false


def _sequence_of(shape: Shape) -> Shape:
    def sequence(value: object) -> AttributeValue | None:
        if not isinstance(value, (list, tuple)) or len(value) > MAX_SEQUENCE:
            return None
        items = tuple(shape(item) for item in value)
        return None if any(item is None for item in items) else items  # type: ignore[return-value]

    return sequence


# No shape admits a space or a line break: a sentence cannot pass for an identifier.
_CODE = _matches(r"[a-z0-9_]{1,64}")
_ID = _matches(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_MODEL = _matches(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
_ROUTE = _matches(r"/[A-Za-z0-9._/{}-]{0,127}")
_METHOD = _matches(r"[A-Z]{3,8}|_OTHER")
_SHA256 = _matches(r"[0-9a-f]{64}")

_SHAPES: Final[dict[str, Shape]] = {
    semconv.GEN_AI_OPERATION_NAME: _CODE,
    semconv.GEN_AI_PROVIDER_NAME: _ID,
    semconv.GEN_AI_REQUEST_MODEL: _MODEL,
    semconv.GEN_AI_REQUEST_MAX_TOKENS: _integer,
    semconv.GEN_AI_REQUEST_STREAM: _boolean,
    semconv.GEN_AI_RESPONSE_MODEL: _MODEL,
    semconv.GEN_AI_RESPONSE_FINISH_REASONS: _sequence_of(_CODE),
    semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: _number,
    semconv.GEN_AI_USAGE_INPUT_TOKENS: _integer,
    semconv.GEN_AI_USAGE_OUTPUT_TOKENS: _integer,
    semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: _integer,
    semconv.HTTP_REQUEST_METHOD: _METHOD,
    semconv.HTTP_ROUTE: _ROUTE,
    semconv.HTTP_RESPONSE_STATUS_CODE: _integer,
    semconv.ERROR_TYPE: _CODE,
    semconv.REQUEST_ID: _ID,
    semconv.TENANT_ID: _ID,
    semconv.WORKER_ID: _ID,
    semconv.LEASE_ID: _ID,
    semconv.OUTPUT_CHUNKS: _integer,
    semconv.ITL_SCALE: _integer,
    semconv.ITL_OFFSET: _integer,
    semconv.ITL_COUNTS: _sequence_of(_integer),
    semconv.ITL_ZERO_COUNT: _integer,
    semconv.ITL_COUNT: _integer,
    semconv.ITL_SUM_S: _number,
    semconv.ITL_MAX_S: _number,
    semconv.ATTESTATION_TIER: _matches("affirming|warning|contraindicated|none"),
    semconv.ATTESTATION_CODE: _CODE,
    semconv.ATTESTATION_TEE: _ID,
    semconv.ATTESTATION_SIMULATED: _boolean,
    semconv.ATTESTATION_TRUST_ANCHOR: _ID,
    semconv.ATTESTATION_POLICY: _ID,
    semconv.ATTESTATION_POLICY_SHA256: _SHA256,
    semconv.ATTESTATION_VERDICT_ID: _ID,
    semconv.ATTESTATION_NOT_AFTER_S: _number,
    semconv.ATTESTATION_WEIGHTS_SHA256: _SHA256,
}
ALLOWED_ATTRIBUTES: Final[Mapping[str, Shape]] = MappingProxyType(_SHAPES)
"""Span attribute -> what its value must look like; the shape answers None to anything else."""

ALLOWED_RESOURCE: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        semconv.SERVICE_NAME: _ID,
        semconv.SERVICE_INSTANCE_ID: _ID,
        semconv.SERVICE_VERSION: _ID,
    }
)

_SPAN_NAME: Final = re.compile(
    rf"{semconv.SPAN_SEAL}|{semconv.SPAN_STREAM}|{semconv.SPAN_ENGINE}|{semconv.SPAN_QUEUE}"
    rf"|{semconv.SPAN_PREFILL}|{semconv.SPAN_DECODE}"
    rf"|(?:{semconv.OPERATION_CHAT}|{semconv.OPERATION_TEXT_COMPLETION}"
    rf"|{semconv.OPERATION_EMBEDDINGS}|{semconv.OPERATION_SEALED}|{semconv.SPAN_ATTEST})"
    r"(?: [A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127})?"
)


def allowed_attributes(
    attributes: Mapping[str, object], shapes: Mapping[str, Shape] = ALLOWED_ATTRIBUTES
) -> tuple[dict[str, AttributeValue], int]:
    """What may stay, and how many attributes may not.

    Deprecated spellings are renamed; where both spellings come, the current one wins.
    """
    kept: dict[str, AttributeValue] = {}
    num_dropped = 0
    for key, value in attributes.items():
        name = semconv.DEPRECATED.get(key, key)
        shape = shapes.get(name)
        allowed = shape(value) if shape is not None else None
        if allowed is None:
            num_dropped += 1
        elif name == key or name not in attributes:
            kept[name] = allowed
    return kept, num_dropped


def allowed_span_name(name: str) -> str:
    """The name if it is one of ours, else ``redacted``."""
    return name if _SPAN_NAME.fullmatch(name) else REDACTED_SPAN_NAME
