"""How does the stream of a response tell that it failed?"""

from gateway import sse
from gateway.problems import GatewayError, openai_body


def error_event(error: GatewayError, *, sequence_number: int) -> bytes:
    """OpenAI's, and with the member `error` by which its clients know to raise."""
    body = openai_body(error)
    value = {
        "type": "error",
        "sequence_number": sequence_number,
        "code": error.code,
        "message": error.message,
        "param": error.param,
        **body,
    }
    return sse.encode_named("error", value)
