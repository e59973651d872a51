"""Which parameters decided an answer, apart from what it was asked?  One digest over them.

    sampling_sha256 = SHA-256(JCS({every member of SAMPLING_MEMBERS that the request gave}))

JCS here is RFC 8785 with its numbers: those of a request have fractions, other documents of ours
have none.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from attestation.binding import canonical
from attestation.errors import MalformedEvidence

SAMPLING_MEMBERS = frozenset(
    {
        "dimensions",
        "encoding_format",
        "frequency_penalty",
        "guided_choice",
        "guided_regex",
        "ignore_eos",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "min_p",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "repetition_penalty",
        "response_format",
        "seed",
        "stop",
        "temperature",
        "text",
        "tool_choice",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)


def sampling_digest(request: Mapping[str, Any]) -> str:
    """Of the members of ``request``, a JSON object, that say how tokens are chosen.

    Raises: MalformedEvidence("format"): a number that JSON cannot say.
    """
    chosen = {name: request[name] for name in SAMPLING_MEMBERS & request.keys()}
    written = canonical(chosen, number=_number)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def _number(value: float) -> str:
    """As ECMAScript writes it.  [ECMA-262 sec. 6.1.6.1.20, RFC 8785 sec. 3.2.2.3]

    Python finds the same shortest digits and writes them otherwise.
    """
    try:
        number = float(value)
    except OverflowError as err:
        raise MalformedEvidence("format", "JCS: a number beyond double precision") from err
    if not math.isfinite(number):
        raise MalformedEvidence("format", "JCS: a number that is not finite")
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, exponent = f"{abs(number)!r}e0".split("e")[:2]
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0")
    point = len(whole) + int(exponent)  # of the decimal point, counted in the unstripped digits
    point -= len(whole + fraction) - len((whole + fraction).lstrip("0"))
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """``0.digits * 10**point`` in ECMAScript's choice of notation."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    power = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return (digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}") + power
