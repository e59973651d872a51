"""One exchange of chunked OHTTP to test with: the same chunks sealed both ways."""

from attestation.channel import (
    ClientRequest,
    ServerKey,
    ServerRequest,
    Suite,
)
from tests.attestation.channel.keys import SERVER_KEYS, fixed_rng

CHUNKS = [b"first", b"second " * 20, b"x"]


def sealed_exchange(
    suite: Suite | None = None,
    keys: dict[int, ServerKey] | None = None,
) -> tuple[bytes, bytes, ClientRequest]:
    """(request body, response body, client) of the same chunks both ways."""
    served = keys if keys is not None else dict(SERVER_KEYS)
    client = ClientRequest(served[7].config, suite, rng=fixed_rng("client"))
    body = client.header + b"".join(map(client.seal_chunk, CHUNKS)) + client.seal_final()
    server = ServerRequest(served)
    server.open_message(body)
    sealer = server.response_sealer(rng=fixed_rng("nonce"))
    answer = sealer.start() + b"".join(map(sealer.seal_chunk, CHUNKS)) + sealer.seal_final()
    return body, answer, client


REQUEST, RESPONSE, CLIENT = sealed_exchange()
