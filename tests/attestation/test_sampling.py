"""Are numbers written as ECMAScript writes them, and does the digest cover what it should?"""

import hashlib
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation.errors import MalformedEvidence
from attestation.sampling import _number, sampling_digest

# RFC 8785 appendix B, and the borders between its notations
NUMBERS = {
    0.0: "0",
    5e-324: "5e-324",
    -5e-324: "-5e-324",
    1.7976931348623157e308: "1.7976931348623157e+308",
    9007199254740992: "9007199254740992",
    -9007199254740992: "-9007199254740992",
    295147905179352830000: "295147905179352830000",
    9.999999999999997e22: "9.999999999999997e+22",
    1e23: "1e+23",
    1.0000000000000001e23: "1.0000000000000001e+23",
    999999999999999700000: "999999999999999700000",
    1e21: "1e+21",
    9.999999999999997e-7: "9.999999999999997e-7",
    0.000001: "0.000001",
    333333333.3333332: "333333333.3333332",
    -0.0000033333333333333333: "-0.0000033333333333333333",
    1424953923781206.2: "1424953923781206.2",
    100.0: "100",
    0.7: "0.7",
}


@pytest.mark.parametrize(("number", "written"), NUMBERS.items())
def test_the_numbers_of_rfc_8785(number: float, written: str) -> None:
    assert _number(number) == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_reads_back(number: float) -> None:
    assert float(_number(number)) == number


@pytest.mark.skipif(shutil.which("node") is None, reason="no ECMAScript here")
def test_a_thousand_numbers_as_node_writes_them() -> None:
    numbers = [(i * 7919 % 1000 - 500) / 7 * 10.0 ** (i % 60 - 30) for i in range(1, 1001)]
    script = f"for (const x of [{','.join(map(repr, numbers))}]) console.log(String(x))"
    node = shutil.which("node") or ""
    answer = subprocess.run([node, "-e", script], capture_output=True, check=True, text=True)
    assert answer.stdout.split() == [_number(number) for number in numbers]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_a_number_that_json_cannot_say(number: float) -> None:
    with pytest.raises(MalformedEvidence):
        sampling_digest({"seed": number})


def test_the_digest_is_over_the_parameters_alone() -> None:
    request = {"model": "m", "messages": ["secret"], "temperature": 1.0, "stop": ["é"], "n": 1}
    canonical = '{"n":1,"stop":["é"],"temperature":1}'.encode()
    assert sampling_digest(request) == hashlib.sha256(canonical).hexdigest()
    assert sampling_digest({**request, "messages": []}) == sampling_digest(request)
    assert sampling_digest({**request, "temperature": 1}) == sampling_digest(request)
    assert sampling_digest({**request, "temperature": 0.9}) != sampling_digest(request)
