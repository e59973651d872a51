"""What can somebody do about a gateway that was asked and not believed, or that gave nothing?"""

from collections.abc import Mapping
from typing import Final

import click

from attestation.commands.render import plain
from attestation.errors import EvidenceUnavailable, Silence

SIMULATED: Final = "a simulated TEE passes --policy development alone, and protects nothing"
INCOMPLETE: Final = (
    "give what is missing by --collateral, or fetch it where the vendors' services can be reached: "
    "`starshade attest fetch EVIDENCE`; docs/collateral.md"
)
_READ: Final = "do not send it anything; docs/attestation.md explains the code"
_CLOCK: Final = "compare this machine's clock with another; docs/attestation.md explains the code"
_CLOCK_CODES: Final = frozenset(
    {"certificate_time", "collateral_not_yet_valid", "collateral_expired"}
)
_SILENCE: Final[Mapping[Silence, str]] = {
    "no_answer": "check that it runs, and the URL and the network; `starshade up` starts one on "
    "this machine",
    "not_trusted": "name the CA that vouches for it: --ca-file STATE/ca.pem for one of this "
    "machine, where STATE is ~/.local/state/starshade or the --state-dir it was started with",
    "no_evidence": "check the URL, which ends in /v1, and the gateway's log",
    "no_receipt": "check the id, and that $STARSHADE_API_KEY is the key that made the request",
    "no_collateral": "check that the vendors' services can be reached; docs/collateral.md lists "
    "them, and how to fetch before",
}


def after_refusal(code: str | None, *, policy: str) -> str:
    """What to do about a gateway whose Evidence is refused; ``policy`` is the policy's name."""
    if code == "untrusted_root" and policy == "production":
        return SIMULATED
    return _CLOCK if code in _CLOCK_CODES else _READ


def after_silence(reason: Silence) -> str:
    """What to do when there is no verdict."""
    return _SILENCE[reason]


def tell_next(step: str) -> None:
    """Prints it to standard error, as every command does."""
    click.echo(f"next:  {plain(step)}", err=True)


def tell_no_verdict(err: EvidenceUnavailable) -> None:
    """Nobody was judged: that is no rejection."""
    click.echo(f"NO VERDICT: {plain(str(err))}", err=True)
    tell_next(after_silence(err.reason))
