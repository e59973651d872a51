"""Does docs/clients.md name what a client may say, and what it may be told?"""

import inspect
import re
from pathlib import Path

import pytest

from attestation.transport import attested_async_client, attested_client, errors

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text("utf-8")


@pytest.mark.parametrize("function", [attested_client, attested_async_client])
def test_every_argument_is_in_the_table(function: object) -> None:
    named = [name for name in inspect.signature(function).parameters if name != "url"]  # type: ignore[arg-type]
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == named


def test_every_error_is_named() -> None:
    leaves = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.AttestedTransportError)
    ]
    assert len(leaves) == 4
    assert all(f"`{name}`" in PAGE for name in leaves if name != "AttestedTransportError")
