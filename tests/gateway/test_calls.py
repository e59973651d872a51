"""Is what a worker says in its refusals told on only where it can be written?"""

import json
from collections.abc import AsyncIterator

import pytest

from gateway.passthrough import _refusal as outside_the_seal
from gateway.relay import _inner_error as inside_the_seal

HALF = "half \ud800"


class Said:
    """A response, sealed or not, as far as its refusal is read."""

    def __init__(self, **members: object) -> None:
        self.body = json.dumps({"code": "overloaded", **members}).encode()

    async def content(self) -> AsyncIterator[bytes]:
        yield b'{"error": ' + self.body + b"}"

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.body


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (Said(message="later", detail="later", param="a"), "overloaded"),
        (Said(message=HALF, detail=HALF, param=None), "upstream_error"),
    ],
)
async def test_a_refusal_that_cannot_be_written_is_malformed(said: Said, code: str) -> None:
    for error in (
        await inside_the_seal(said),  # type: ignore[arg-type]
        await outside_the_seal(said),  # type: ignore[arg-type]
    ):
        assert error.code == code
        error.message.encode()
