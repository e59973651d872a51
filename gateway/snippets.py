"""What does someone paste to talk to the gateway that was just started?"""

import shlex
from pathlib import Path

from gateway.config import StarshadeConfig
from gateway.probes import reachable_host

_PROMPT = "Say hello in five words."
_MAX_TOKENS = 200  # a small model may not find an end by itself


def base_url(config: StarshadeConfig) -> str:
    """Of the OpenAI-compatible API, as clients on this machine reach it."""
    return f"https://{_authority(config.gateway.host, config.gateway.port)}/v1"


def dashboard_url(config: StarshadeConfig) -> str:
    return f"http://{_authority(config.observatory.host, config.observatory.port)}/"


def environment_snippet(config: StarshadeConfig) -> str:
    """Shell lines that point any OpenAI client at this gateway; they name files, not the key."""
    ca = shlex.quote(str(config.paths.ca_cert))
    key = shlex.quote(str(config.paths.dev_api_key))
    return f'export SSL_CERT_FILE={ca}\nexport STARSHADE_API_KEY="$(cat {key})"'


def activation_snippet(prefix: Path) -> str:
    """A line that puts `starshade` on the PATH; nothing where ``prefix`` is no virtual environment.

    ``prefix`` is ``sys.prefix``.
    """
    script = prefix / "bin" / "activate"
    return f". {shlex.quote(str(script))}\n" if script.is_file() else ""


def curl_snippet(config: StarshadeConfig, model: str) -> str:
    body = (
        f'{{"model": "{model}", "stream": true, "temperature": 0, "max_tokens": {_MAX_TOKENS},\n'
        f'       "messages": [{{"role": "user", "content": "{_PROMPT}"}}]}}'
    )
    return (
        # --cacert: a CURL_CA_BUNDLE in the environment would win over SSL_CERT_FILE
        f'curl -N --cacert "$SSL_CERT_FILE" {base_url(config)}/chat/completions \\\n'
        '  -H "Authorization: Bearer $STARSHADE_API_KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d '{body}'"
    )


def openai_snippet(config: StarshadeConfig, model: str) -> str:
    """Python for the unmodified `openai` package."""
    return f"""\
import os
from openai import OpenAI

client = OpenAI(base_url="{base_url(config)}", api_key=os.environ["STARSHADE_API_KEY"])
stream = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "{_PROMPT}"}}],
    temperature=0,
    max_tokens={_MAX_TOKENS},
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()"""


def _authority(host: str, port: int) -> str:
    host = reachable_host(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
