"""What may a tenant use that `starshade keys limits` says nothing else of?"""

from dataclasses import dataclass
from typing import Annotated

from gateway import config_rules as rules
from gateway.config_sources import Key

_MAX_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """Limits of each tenant, all its keys together."""

    requests_per_minute: Annotated[
        int, Key("Requests a tenant may send; 0 is no limit.", rules.between(0, _MAX_LIMIT))
    ] = 0
    tokens_per_minute: Annotated[
        int,
        Key("Tokens of its prompts and answers; 0 is no limit.", rules.between(0, _MAX_LIMIT)),
    ] = 0
    open_requests: Annotated[
        int | None,
        Key(
            "Requests it may have open at one time, so that others find room; 0 is no limit.",
            rules.between(0, 65_536),
        ),
    ] = None  # a share of gateway.max_concurrent_streams
