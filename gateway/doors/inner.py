"""How does an opened request reach the app that also answers in plain?  As one more ASGI request.

The request passes the same limits, authentication and routes; only its body and headers come out of
the seal, and what it is answered goes back in.
"""

from typing import Final
from urllib.parse import unquote

from starlette.types import Message, Receive, Scope

from attestation.channel import bhttp
from gateway.direct import DIRECT

_DOOR: Final = "starshade.door"
_HAS_PRINCIPAL: Final = "starshade.has_principal"  # in an ASGI scope
_HOP_FIELDS: Final = frozenset({"host", "content-length"})  # said anew from what was opened


def door_of(scope: Scope) -> str | None:
    """Through which door the request came; None when it came in plain."""
    door: str | None = (scope.get("extensions") or {}).get(_DOOR)
    return door


def marked(scope: Scope, door: str) -> Scope:
    """The same scope, known to have come through `door`, where every answer is sealed."""
    inner = {**scope, "extensions": {**(scope.get("extensions") or {}), _DOOR: door}}
    inner.pop(DIRECT, None)
    return inner


def note_principal(scope: Scope) -> None:
    """Its credential was found to be good."""
    scope[_HAS_PRINCIPAL] = True


def has_principal(scope: Scope) -> bool:
    """Whether it is known who sent the request; one of nobody's ran nothing that counts."""
    return _HAS_PRINCIPAL in scope


def inner_scope(outer: Scope, message: bhttp.Request, *, door: str) -> Scope:
    """The scope of an opened request; of the outer one it keeps who sent it, and to where."""
    raw_path, _, query = message.path.partition("?")
    fields = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in message.fields
        if name not in _HOP_FIELDS
    ]
    length = str(len(message.content)).encode()
    scope: Scope = {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": "1.1",
        "method": message.method,
        "scheme": "https",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [
            (b"host", message.authority.encode("ascii")),
            (b"content-length", length),
            *fields,
        ],
        "client": outer.get("client"),
        "server": outer.get("server"),
        "extensions": outer.get("extensions"),
    }
    if "state" in outer:
        scope["state"] = outer["state"]
    return marked(scope, door)


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives `body` whole and then what is left outside: the disconnect."""
    is_given = False

    async def receive_inner() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_inner
