"""A server that answers completions with the number of tokens asked for; its port is argument 1."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """One chunk for each token."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = asked["max_tokens"]
        events = [{"choices": [{"text": "x"}]}] * number
        usage = {"prompt_tokens": 1, "completion_tokens": number}
        body = b"".join(
            b"data: " + json.dumps(event).encode() + b"\n\n"
            for event in (*events, {"choices": [], "usage": usage})
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
