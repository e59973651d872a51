"""What can somebody do about a gateway that was asked and not believed, or that gave nothing?"""

from typing import Final

import click

from attestation.commands.render import plain
from attestation.errors import EvidenceUnavailable
from attestation.model import AttestationResult

SIMULATED: Final = "a simulated TEE passes --policy development alone, and protects nothing"
_READ: Final = "do not send it anything; docs/attestation.md explains the code"
_CA: Final = (
    "name the CA that vouches for it: --ca-file STATE/ca.pem for one of this machine, where STATE "
    "is ~/.local/state/starshade or the --state-dir it was started with"
)
_START: Final = "check that it runs, and the URL; `starshade up` starts one on this machine"
_RECEIPT: Final = "check the id, and that $STARSHADE_API_KEY is the key that made the request"
_ASK: Final = "check the URL, which ends in /v1, and the gateway's log"


def after_refusal(result: AttestationResult) -> str:
    """What to do about a gateway whose Evidence is refused."""
    is_unknown = result.code == "untrusted_root" and result.policy_name == "production"
    return SIMULATED if is_unknown else _READ


def after_silence(err: EvidenceUnavailable) -> str:
    """What to do when there is no verdict."""
    if "certificate is not trusted" in str(err):
        return _CA
    if str(err).startswith("no receipt"):
        return _RECEIPT
    return _ASK if err.was_answered else _START


def tell_next(step: str) -> None:
    """Prints it to standard error, as every command does."""
    click.echo(f"next:  {plain(step)}", err=True)


def tell_no_verdict(err: EvidenceUnavailable) -> None:
    """Nobody was judged: that is no rejection."""
    click.echo(f"NO VERDICT: {plain(str(err))}", err=True)
    tell_next(after_silence(err))
