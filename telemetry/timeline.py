"""When did each thing happen to one request, on one process's monotonic clock?"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class RequestTimeline:
    """Marks of one request, in monotonic ns of the process that made them; mutable while it runs.

    ``arrived_ns`` is where latency starts: arrival at a gateway, the *intended* send time at a
    load generator.  ``wall_anchor_ns`` is unix ns at ``arrived_ns``: durations never use it.
    """

    arrived_ns: int
    wall_anchor_ns: int
    dispatched_ns: int | None = None
    first_byte_ns: int | None = None
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """(ns, tokens) of each chunk that carried text; role, usage and comment chunks are not here."""
    ended_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    reported_output_tokens: int | None = None

    def mark_dispatched(self, now_ns: int) -> None:
        """The request left for whoever answers it; the first mark stays."""
        if self.dispatched_ns is None:
            self.dispatched_ns = now_ns

    def mark_first_byte(self, now_ns: int) -> None:
        """Anything at all came back; the first mark stays."""
        if self.first_byte_ns is None:
            self.first_byte_ns = now_ns

    def mark_chunk(self, now_ns: int, tokens: int = 1) -> None:
        """A chunk with text arrived.

        ``tokens`` is how many it carries, when the server says so.

        Raises: ValueError if ``tokens`` is below 1 or the clock ran backwards.
        """
        if tokens < 1:
            raise ValueError(f"a chunk with text carries at least one token, not {tokens}")
        last_ns = self.chunks[-1][0] if self.chunks else self.arrived_ns
        if now_ns < last_ns:
            raise ValueError("marks of one timeline come from one monotonic clock, in order")
        self.mark_first_byte(now_ns)
        self.chunks.append((now_ns, tokens))

    def mark_usage(self, *, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> None:
        """The server's own counts, which outrank counting chunks."""
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens
        self.reported_output_tokens = output_tokens

    def mark_ended(self, now_ns: int) -> None:
        """The response is complete, failed or abandoned; the first mark stays."""
        if self.ended_ns is None:
            self.ended_ns = now_ns

    @property
    def output_tokens(self) -> int:
        """Tokens answered: as reported, else counted from the chunks."""
        if self.reported_output_tokens is not None:
            return self.reported_output_tokens
        return sum(tokens for _, tokens in self.chunks)
