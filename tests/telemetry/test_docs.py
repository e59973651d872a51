"""Does docs/metrics.md name everything that can be in a span, and every limit as it is?"""

from pathlib import Path

import pytest

from telemetry import semconv, tracing
from telemetry.db import retention, writer
from telemetry.queries import window
from telemetry.redact import ALLOWED_ATTRIBUTES, ALLOWED_RESOURCE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
NAMES = {
    name: value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str)
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_on_the_page(name: str) -> None:
    value = NAMES[name]
    forms = [f"`{value}`"]
    if name == "SPAN_ATTEST":
        forms = [f"`{value} {{"]
    assert any(form in PAGE for form in forms)


def test_every_allowed_and_deprecated_name_is_on_the_page() -> None:
    for name in (*ALLOWED_ATTRIBUTES, *ALLOWED_RESOURCE, *semconv.DEPRECATED):
        assert f"`{name}`" in PAGE, name


def test_every_attribute_constant_is_allowed() -> None:
    """A name that is pinned but filtered out would vanish without a word."""
    values = ("SERVICE_", "SPAN_", "OPERATION_", "PROVIDER_")
    attributes = {value for name, value in NAMES.items() if not name.startswith(values)}
    assert attributes == set(ALLOWED_ATTRIBUTES)


def test_limits_are_as_the_page_says() -> None:
    assert f"{writer.QUEUE_SPANS:,} spans wait" in PAGE.replace("\n", " ")
    assert f"{tracing.QUEUE_SPANS:,} spans" in PAGE
    assert retention.SPAN_RETENTION_S == 7 * 86_400
    assert f"at most {window.MAX_BINS} bins" in PAGE
