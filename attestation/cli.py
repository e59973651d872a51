"""`starshade attest`: which commands are there?  Each one is a file of ``commands``."""

import click

from attestation.commands.collect import collect
from attestation.commands.fetch import fetch
from attestation.commands.measure import measure_command
from attestation.commands.policy import policy
from attestation.commands.show import show
from attestation.commands.vectors import vectors
from attestation.commands.verify import verify


@click.group()
def attest() -> None:
    """Judge attestation Evidence."""


for command in (verify, show, collect, fetch, measure_command, vectors, policy):
    attest.add_command(command)
