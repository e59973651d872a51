"""One device's claims by themselves: what NRAS may say beside its result, and how it is told."""

from typing import Any

import pytest

from attestation.errors import AttestationError, MalformedEvidence, PolicyViolation
from attestation.nras.device import (
    DeviceClaims,
    require_device_token,
    require_good_device,
    require_no_error,
)
from tests.attestation.nras.samples import AT, device_claims

_ERROR = "x-nvidia-error-details"
_WARNING = "x-nvidia-attestation-warning"


def _judge(**changes: Any) -> DeviceClaims:
    return require_good_device({**device_claims("GPU-0"), **changes}, "GPU-0", "3.0", AT)


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"code": 4006, "message": "x"}, "NRAS answered with error 4006"),
        ({"code": "4006"}, "NRAS answered with an error"),
        ({}, "NRAS answered with an error"),
        ("broken", "NRAS answered with an error"),
        ([1], "NRAS answered with an error"),
    ],
)
def test_an_error_is_told_by_its_number_alone(details: Any, told: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        require_no_error({_ERROR: details}, "GPU-0")

    assert (caught.value.code, str(caught.value)) == ("claims", f"GPU-0: {told}")
    require_no_error({_ERROR: None}, "GPU-0")


@pytest.mark.parametrize("claim", ["sub", "submods", "x-nvidia-overall-att-result"])
def test_each_claim_of_an_overall_token_gives_it_away(claim: str) -> None:
    with pytest.raises(AttestationError) as caught:
        require_device_token({**device_claims("GPU-0"), claim: None}, "GPU-0")

    assert caught.value.code == "token_type"
    require_device_token(device_claims("GPU-0"), "GPU-0")


@pytest.mark.parametrize("warning", ["", "w", "w" * 1024])
def test_a_warning_is_kept(warning: str) -> None:
    assert _judge(**{_WARNING: warning}).warning == warning


@pytest.mark.parametrize("warning", ["w" * 1025, "a\nb", "\x1b[31m", "\x7f", 7, []])
def test_another_warning_is_refused(warning: Any) -> None:
    with pytest.raises(MalformedEvidence) as caught:
        _judge(**{_WARNING: warning})

    assert caught.value.code == "format"


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("x-nvidia-new-check", "GPU-0: x-nvidia-new-check is false"),
        ("a" * 64, f"GPU-0: {'a' * 64} is false"),
        ("a" * 65, "GPU-0: a claim with a strange name is false"),
        ("a\x1b[31m", "GPU-0: a claim with a strange name is false"),
    ],
)
def test_a_claim_that_is_false_is_named_if_its_name_is_fit(claim: str, told: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        _judge(**{claim: False})

    assert (caught.value.code, str(caught.value)) == ("claims", told)
