"""Is the gateway to be believed, before anything is served?  The verdict is shown, good or bad."""

from collections.abc import Callable

import click

from attestation.commands.common import code_exit
from attestation.commands.next_steps import after_refusal, after_silence
from attestation.commands.render import plain, show_verdict
from attestation.errors import PolicyError
from attestation.transport import (
    EvidenceRefused,
    GatewayUnavailable,
    Session,
    SessionKeeper,
    gateway_keeper,
)
from gateway.cli_support import ExitCode, Failure
from gateway.connect.target import Target
from gateway.preflight import policy_failure


def keeper_of(target: Target, *, on_refused: Callable[[EvidenceRefused], None]) -> SessionKeeper:
    """Raises: BadParameter; Failure: no policy."""
    try:
        return gateway_keeper(
            target.url,
            policy=target.policy,
            ca_file=target.ca_file,
            mode=target.mode,
            weights_sha256=target.weights,
            proxy=target.proxy,
            client_certificate=target.client_certificate,
            collateral_folder=target.collateral_folder,
            on_refused=on_refused,
        )
    except ValueError as err:
        raise click.BadParameter(str(err), param_hint="URL") from err
    except PolicyError as err:
        raise policy_failure(err) from err


def verify(keeper: SessionKeeper, target: Target) -> Session:
    """Shows the verdict, good or bad. Raises: Failure for anything but a good one."""
    try:
        session = keeper.require()
    except EvidenceRefused as err:
        if err.result is not None:
            show_verdict(err.result)
        raise _refused(err, target) from err
    except GatewayUnavailable as err:
        raise _unavailable(err) from err
    if session.is_blind:
        show_verdict(session.gateway_result)
        sealed_to = plain(session.sealed_to.replica)
        click.echo(f"\nit opens nothing; requests are sealed to {sealed_to}:")
    show_verdict(session.result)
    return session


def _refused(err: EvidenceRefused, target: Target) -> Failure:
    return Failure(
        f"{plain(str(err))}; nothing was sent to it",
        exit_code=ExitCode(code_exit(err.code)),
        code=err.code,
        next_step=after_refusal(err.code, policy=target.policy),
    )


def _unavailable(err: GatewayUnavailable) -> Failure:
    return Failure(
        str(err),
        exit_code=ExitCode.UNAVAILABLE,
        code=err.code,
        next_step=after_silence(err.reason),
    )
