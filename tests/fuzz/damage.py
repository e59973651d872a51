"""How is good input damaged so that a parser gets far into it before it must refuse?

Each mutator keeps the outer shape of its format most of the time: lengths of DER are written anew,
JSON stays JSON, PEM stays base64. Blind damage to bytes is mixed in.
"""

import base64
import binascii
import json
import random
from collections.abc import Callable, Sequence

Mutator = Callable[[bytes, Sequence[bytes], random.Random], bytes]

_BYTES = (0x00, 0x01, 0x7F, 0x80, 0x9F, 0xBF, 0xFF, 0x22, 0x2E, 0x5B, 0x7B)
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_SPANS = (1, 2, 4, 8, 16, 64, 256)
_MAX_GROWN_BYTES = 1 << 22
_MAX_REPEATED_CHARS = 1 << 19  # what the mutator itself needs counts as the parser's memory
_MAX_DER_DEPTH = 12
_TEXTS = (
    "",
    "\0",
    "\ud800",
    "é",
    "a" * 300,
    "\U0001f600",
    "2020-13-45T99:99:99Z",
    "../..",
    "=" * 9,
)
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 255, 256, 65536, 2**53 - 1, 2**53, 2**63, 10**30, 0.5, 1e400),
    *([], {}, [[]], {"": None}, "0" * 64, "ff" * 48),
)


def raw(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Bits, bytes, numbers, spans: changed, left out, doubled, moved, or of another seed."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _damage(changed, seeds, rng)
        if len(changed) > _MAX_GROWN_BYTES:
            break
    return bytes(changed)


def _damage(data: bytearray, seeds: Sequence[bytes], rng: random.Random) -> None:
    if not data:
        data.extend(rng.randbytes(4))
        return
    at, span = rng.randrange(len(data)), rng.choice(_SPANS)
    kind = rng.randrange(10)
    if kind <= 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at] = rng.choice(_BYTES)
    elif kind == 3:
        width = rng.choice((2, 3, 4, 8))
        number = rng.choice(_NUMBERS) % (1 << 8 * width)
        data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        del data[at : at + span]
    elif kind == 6:
        data[at:at] = data[at : at + span]
    elif kind == 7:
        data[at:at] = rng.randbytes(span)
    elif kind == 8:
        data[at : at + span] = rng.choice((b"\0", b"\xff", b"A")) * span
    else:
        other = rng.choice(seeds)
        start = rng.randrange(len(other) + 1)
        data[at : at + span] = other[start : start + span]


def der(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One element somewhere inside changed, and every length around it written anew."""
    if rng.random() < 0.3:
        return raw(data, seeds, rng)
    for _ in range(rng.choice((1, 1, 2))):
        data = _change_der(data, seeds, rng, rng.randrange(1, _MAX_DER_DEPTH))
    return data


def _change_der(data: bytes, seeds: Sequence[bytes], rng: random.Random, depth: int) -> bytes:
    elements = _elements(data)
    if not elements or depth == 0:
        return raw(data, seeds, rng)
    at = rng.randrange(len(elements))
    tag, value = elements[at]
    if depth > 1 and _elements(value) and rng.random() < 0.85:
        elements[at] = (tag, _change_der(value, seeds, rng, depth - 1))
    else:
        _change_element(elements, at, seeds, rng)
    return b"".join(_tlv(tag, value) for tag, value in elements)


def _change_element(
    elements: list[tuple[int, bytes]], at: int, seeds: Sequence[bytes], rng: random.Random
) -> None:
    tag, value = elements[at]
    kind = rng.randrange(8)
    if kind == 0:
        del elements[at]
    elif kind == 1:
        elements.insert(at, (tag, value))
    elif kind == 2:
        elements[at] = (rng.choice((1, 2, 3, 4, 5, 6, 12, 22, 23, 24, 48, 49, 160, 255)), value)
    elif kind == 3:
        elements[at] = (tag, b"")
    elif kind == 4:
        other = rng.randrange(len(elements))
        elements[at], elements[other] = elements[other], elements[at]
    elif kind == 5:
        elements[at] = (tag, rng.randbytes(rng.choice((1, 2, 8, 20, 40, 300))))
    elif kind == 6:
        elements[at] = (tag, b"\0" + value)
    else:
        elements[at] = (tag, raw(value, seeds, rng))


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """The elements that ``data`` consists of; none when it is no DER."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            return []
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            width = size & 0x7F
            if not 1 <= width <= 3 or start + width > len(data):
                return []
            size = int.from_bytes(data[start : start + width], "big")
            start += width
        if start + size > len(data):
            return []
        found.append((tag, data[start : start + size]))
        at = start + size
    return found


def _tlv(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes([tag, size]) + value
    width = (size.bit_length() + 7) // 8
    return bytes([tag, 0x80 | width]) + size.to_bytes(width, "big") + value


def pem(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A block left out, doubled or moved, its text damaged, or the DER inside changed."""
    if rng.random() < 0.25:
        return raw(data, seeds, rng)
    blocks = [block for block in data.split(b"-----BEGIN ") if block.strip()]
    if not blocks:
        return raw(data, seeds, rng)
    at = rng.randrange(len(blocks))
    kind = rng.randrange(8)
    if kind == 0:
        del blocks[at]
    elif kind == 1:
        blocks.insert(at, blocks[at])
    elif kind == 2:
        rng.shuffle(blocks)
    else:
        blocks[at] = _change_block(blocks[at], rng)
    return b"".join(b"-----BEGIN " + block for block in blocks)


def _change_block(block: bytes, rng: random.Random) -> bytes:
    label, _, rest = block.partition(b"-----")
    body, dashes, tail = rest.partition(b"-----END")
    try:
        content = base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        return raw(block, (block,), rng)
    lines = base64.encodebytes(der(content, (content,), rng))
    return label + b"-----\n" + lines + dashes + tail


def json_text(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A member somewhere inside left out, doubled, renamed, or given another value."""
    if rng.random() < 0.25:
        return raw(data, seeds, rng)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):  # text within text may be damaged already
        return raw(data, seeds, rng)
    for _ in range(rng.choice((1, 1, 2))):
        document = _change_json(document, rng)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, separators=(",", ":"))
    if rng.random() < 0.05:
        text = "[" * rng.choice((20, 2000, 50_000)) + text
    if rng.random() < 0.05:
        text = text.replace('":', '":' + " " * rng.choice((1, 300)), 1)
    if rng.random() < 0.05:
        text = text.replace("{", '{"a":1,"a":2,', 1)
    return text.encode("utf-8", "surrogatepass")


def _change_json(value: object, rng: random.Random) -> object:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        kind = rng.randrange(8)
        if kind == 0:
            return {key: member for key, member in value.items() if key != name}
        if kind == 1:
            return value | {rng.choice((name + "x", name.upper(), "", "\u00e9")): value[name]}
        return value | {name: _change_json(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.randrange(8)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            times = min(rng.choice((2, 3, 40, 300)), _MAX_REPEATED_CHARS // len(repr(value[at])))
            return value[:at] + [value[at]] * times + value[at + 1 :]
        return [*value[:at], _change_json(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.7:
        return _change_text(value, rng)
    return rng.choice(_VALUES)


def _change_text(text: str, rng: random.Random) -> str:
    """Text that is itself JSON, base64 or PEM is changed as such."""
    encoded = text.encode("utf-8", "surrogatepass")
    if text.startswith(("{", "[")):
        return json_text(encoded, (encoded,), rng).decode("utf-8", "replace")
    if text.startswith("-----BEGIN"):
        return pem(encoded, (encoded,), rng).decode("utf-8", "replace")
    if text.count(".") == 2 and rng.random() < 0.5:
        return compact_jws(encoded, (encoded,), rng).decode("utf-8", "replace")
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(_TEXTS)
    if kind == 1 and len(encoded) % 4 == 0:
        try:
            content = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            return text + rng.choice(_TEXTS)
        return base64.b64encode(der(content, (content,), rng)).decode()
    return raw(encoded, (encoded,), rng).decode("utf-8", "replace")


def compact_jws(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A part left out, doubled or moved, or the JSON inside header or payload changed."""
    parts = data.split(b".")
    if rng.random() < 0.3 or len(parts) != 3:
        return raw(data, seeds, rng)
    at, kind = rng.randrange(3), rng.randrange(8)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(at, parts[at])
    elif kind == 2:
        rng.shuffle(parts)
    else:
        try:
            content = base64.urlsafe_b64decode(parts[at] + b"=" * (-len(parts[at]) % 4))
        except binascii.Error:
            return raw(data, seeds, rng)
        content = json_text(content, (content,), rng)
        parts[at] = base64.urlsafe_b64encode(content).rstrip(b"=")
    return b".".join(parts)


def pieces(*fragments: bytes) -> Mutator:
    """A mutator of text: fragments of the language put in, and spans between marks moved."""

    def mutate(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(changed) + 1)
            kind = rng.randrange(5)
            end = min(len(changed), at + rng.choice((1, 8, 40, 400, 4000)))
            if kind <= 1:
                changed[at:at] = rng.choice(fragments)
            elif kind == 2:
                piece = changed[at:end]
                to = rng.randrange(len(changed) + 1)
                changed[to:to] = piece
            elif kind == 3:
                del changed[at:end]
            else:
                _damage(changed, seeds, rng)
        return bytes(changed)

    return mutate


XML = pieces(
    *(b"<!-- -->", b"<![CDATA[", b"]]>", b"<?p?>", b"&amp;", b"&#0;", b"&x;", b"<a>", b"</a>"),
    *(b"<!DOCTYPE a [<!ENTITY x 'y'>]>", b"<ds:Signature/>", b"xmlns=''", b' xml:space="preserve"'),
    *(b"\0", b"\xff\xfe", b"\xf0\x9f\x98\x80", b"<" * 500, b"<a " * 200, b"<a>" * 300),
)
TOML = pieces(
    *(b"\n[x]\n", b"\n[[x]]\n", b'"""', b"'''", b" = 1\n", b" = []\n", b" = {}\n", b"\n# c\n"),
    *(b"1e999", b"nan", b"0x7f", b"1979-05-27T07:32:00Z", b"[" * 2000, b"a." * 300, b"\0", b"\xff"),
    *(b"-1", b"99999999999999999999", b'""', b"true", b'["", ""]', b"{ a = 1, a = 2 }"),
)
CBOR = pieces(
    *(b"\x9f", b"\xbf", b"\xff", b"\xa0", b"\x80", b"\x60", b"\x40", b"\xf6", b"\xf7", b"\xf5"),
    *(b"\xfb" + bytes(8), b"\x1b" + b"\xff" * 8, b"\x5b" + b"\xff" * 8, b"\x9b" + b"\x7f" * 8),
    *(b"\x81" * 200, b"\xc0", b"\x5f\x41a\xff", b"\x7f\x61a\xff", b"\x18\x01", b"\xd2\x84"),
)
