"""What can go wrong before, during and after a load run?

LoadTestError               load_failed
├── ProfileError            profile_invalid
├── GatewayUnreachable      gateway_unreachable
├── GatewayNotAttested      gateway_not_attested
├── CredentialMissing       api_key_missing
├── TargetRefused           target_refused
├── DatabaseUnusable        database_unavailable
└── GeneratorFailed         generator_failed
"""


class LoadTestError(Exception):
    """A run that could not be made; ``next_step`` says what to do about it."""

    code = "load_failed"
    next_step = "give the gateway's API as --base-url, like https://127.0.0.1:8443/v1"


class ProfileError(LoadTestError):
    """The profile is unknown, malformed or has values out of range."""

    code = "profile_invalid"
    next_step = "`starshade load profiles` lists the shipped ones; mend the file where it says"


class GatewayUnreachable(LoadTestError):
    """No HTTPS answer from the gateway."""

    code = "gateway_unreachable"
    next_step = "`starshade up` starts one; else check --base-url, and --state-dir for its ca.pem"


class GatewayNotAttested(LoadTestError):
    """The gateway's evidence was refused, or it does not cover the TLS key in use."""

    code = "gateway_not_attested"
    next_step = (
        "`starshade attest verify URL` shows every check; a simulated TEE passes --policy "
        "development alone, and protects nothing"
    )


class CredentialMissing(LoadTestError):
    """No API key in the environment or the state folder."""

    code = "api_key_missing"
    next_step = "run `starshade up` first, name its --state-dir, or set STARSHADE_API_KEY"


class TargetRefused(LoadTestError):
    """The gateway knows neither this API key nor this model: every request would fail."""

    code = "target_refused"
    next_step = "check STARSHADE_API_KEY, else the key in --state-dir, and --model"


class DatabaseUnusable(LoadTestError):
    """The run cannot be stored."""

    code = "database_unavailable"
    next_step = "check --database-url or --state-dir, the disk, and `starshade doctor`"


class GeneratorFailed(LoadTestError):
    """The load generator process ended without results."""

    code = "generator_failed"
    next_step = "the lines above say why; a profile with a lower rate needs less of this machine"
