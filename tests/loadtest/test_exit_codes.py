"""Does `starshade load` end with the status that every command gives to such a failure?"""

import pytest

from attestation.errors import PolicyError
from loadtest import errors
from loadtest.cli import _exit_code


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.GatewayNotAttested("x"), 10),
        (errors.GatewayUnreachable("x"), 40),
        (errors.GeneratorFailed("x"), 70),
        (errors.ProfileError("x"), 2),
        (errors.CredentialMissing("x"), 2),
        (PolicyError("x"), 2),
    ],
)
def test_exit_code(error: Exception, status: int) -> None:
    assert _exit_code(error) == status
