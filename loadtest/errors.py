"""What can go wrong before, during and after a load run?

LoadTestError               load_failed
├── ProfileError            profile_invalid
├── GatewayUnreachable      gateway_unreachable
├── GatewayNotAttested      gateway_not_attested
├── CredentialMissing       api_key_missing
├── TargetRefused           target_refused
└── GeneratorFailed         generator_failed
"""


class LoadTestError(Exception):
    """A run that could not be made; the message says what to do next."""

    code = "load_failed"


class ProfileError(LoadTestError):
    """The profile is unknown, malformed or has values out of range."""

    code = "profile_invalid"


class GatewayUnreachable(LoadTestError):
    """No HTTPS answer from the gateway."""

    code = "gateway_unreachable"


class GatewayNotAttested(LoadTestError):
    """The gateway's evidence was refused, or it does not cover the TLS key in use."""

    code = "gateway_not_attested"


class CredentialMissing(LoadTestError):
    """No API key in the environment or the state folder."""

    code = "api_key_missing"


class TargetRefused(LoadTestError):
    """The gateway knows neither this API key nor this model: every request would fail."""

    code = "target_refused"


class GeneratorFailed(LoadTestError):
    """The load generator process ended without results."""

    code = "generator_failed"
