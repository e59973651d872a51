"""Which tokens does this detached EAT bundle hold?  [RFC 9711 sec. 5, NVIDIA NRAS]

[["JWT", overall token], {submodule name: device token, ...}], nothing verified.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from attestation import strict_json
from attestation.errors import MalformedEvidence
from attestation.nras.device import parse_device_name
from attestation.nras.jws import Jws, parse_claims, parse_jws
from attestation.strict_json import JsonValue

MAX_EAT_BYTES = 256 * 1024  # 8 GPUs of version 2.0 have 17 KB
MAX_DEVICES = 32
_MAX_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedEat:
    """A parsed bundle, nothing verified. ``texts`` are the device tokens as received."""

    overall: Jws
    devices: Mapping[str, Jws]
    texts: Mapping[str, str]

    def fields(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of everything the tokens say, for people: NOT verified.

        Raises: MalformedEvidence("format"): a payload is not strict JSON.
        """
        shown: list[tuple[str, str]] = []
        for name, token in (("overall", self.overall), *self.devices.items()):
            shown.append((f"{name}.kid", token.kid))
            shown += [(f"{name}.{c}", _shown(v)) for c, v in sorted(parse_claims(token).items())]
        return tuple(shown)


def parse_eat(data: bytes) -> DetachedEat:
    """[["JWT", overall], {submodule: token, ...}].

    Raises: MalformedEvidence("format"); BadSignature("algorithm");
    UntrustedEndorsement("unknown_kid"): a token that names no key.
    """
    what = "detached EAT"
    pair = strict_json.parse_array(
        data, what=what, max_bytes=MAX_EAT_BYTES, max_depth=_MAX_DEPTH, max_items=2
    )
    if len(pair) != 2:
        raise MalformedEvidence("format", f"{what}: not a pair")
    labelled, tokens = strict_json.array(pair[0], what, max_items=2), pair[1]
    if len(labelled) != 2 or labelled[0] != "JWT" or not isinstance(tokens, Mapping):
        raise MalformedEvidence("format", f"{what}: not a JWT and its submodules")
    if len(tokens) > MAX_DEVICES:
        raise MalformedEvidence("format", f"{what}: {len(tokens)} devices, at most {MAX_DEVICES}")
    for name in tokens:
        parse_device_name(name)
    texts = {name: strict_json.text(token, name) for name, token in tokens.items()}
    return DetachedEat(
        overall=parse_jws(strict_json.text(labelled[1], "overall token"), what="overall token"),
        devices={name: parse_jws(token, what=f"token of {name}") for name, token in texts.items()},
        texts=texts,
    )


def _shown(value: JsonValue) -> str:
    return value if isinstance(value, str) else repr(value)
