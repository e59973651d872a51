"""How do token ids become text, one at a time, without ever breaking a character?

Byte-level BPE: each token is a run of bytes, and a UTF-8 character may span several tokens.
"""

import codecs
from collections.abc import Iterable, Sequence


def byte_level_alphabet() -> dict[str, int]:
    """Printable character -> byte value, the alphabet of GPT-2's vocabulary.

    [openai/gpt-2 src/encoder.py, bytes_to_unicode]
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}


def decode_utf8(pieces: Iterable[bytes]) -> str:
    """The whole text; bytes that are no UTF-8 become U+FFFD."""
    return b"".join(pieces).decode("utf-8", errors="replace")


class IncrementalDetokenizer:
    """Turns token ids into text as they come.

    The concatenation of all ``push`` results and ``flush`` equals ``decode_utf8`` of all tokens:
    bytes of an unfinished character wait for the next token or for ``flush``.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """``token_bytes[token_id]`` is what the token spells; empty for what is never shown."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, perhaps none. Raises: IndexError, unknown id."""
        return self._decoder.decode(self._token_bytes[token_id])

    def flush(self) -> str:
        """U+FFFD for an unfinished character, else nothing; the sequence ends here."""
        return self._decoder.decode(b"", final=True)
