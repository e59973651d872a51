"""The unmodified `openai` SDK over somebody else's transport; run in the clients' own environment.

`openai_sdk.py {ehbp|tng} BASE_URL CA_FILE API_KEY MODEL SECONDS` asks for SECONDS, through key
rotations, and prints what it got as one JSON object. Any failure ends it with a traceback.
"""

import json
import ssl
import sys
import time
from collections.abc import Callable

import cohere_tng
import ehbp
import httpx
import openai

Ask = Callable[[], openai.OpenAI]  # the client to use now


def ehbp_clients(base: str, ca_file: str, api_key: str) -> Ask:
    """As the library's documentation does it; the key is fetched anew when its list has aged."""
    tls = ssl.create_default_context(cafile=ca_file)
    plain = httpx.Client(verify=tls)
    held: list[tuple[float, openai.OpenAI]] = []

    def current() -> openai.OpenAI:
        if not held or time.monotonic() >= held[-1][0]:
            caching = plain.get(f"{base}/.well-known/hpke-keys").headers["cache-control"]
            stale_at = time.monotonic() + int(caching.removeprefix("max-age="))
            identity = ehbp.Client.discover(base, http_client=plain).server_identity
            transport = ehbp.EHBPTransport(identity, inner=httpx.HTTPTransport(verify=tls))
            held.append((stale_at, openai_over(transport, base, api_key)))
        return held[-1][1]

    return current


def tng_clients(base: str, ca_file: str, api_key: str) -> Ask:
    """One transport for all the time: it looks after the key itself."""
    transport = cohere_tng.Transport(verify=None, ohttp={"tls_ca_certs": [ca_file]})
    client = openai_over(transport, base, api_key)
    return lambda: client


def openai_over(transport: httpx.BaseTransport, base: str, api_key: str) -> openai.OpenAI:
    http_client = httpx.Client(transport=transport, timeout=30)
    return openai.OpenAI(
        api_key=api_key,
        base_url=f"{base}/v1",
        http_client=http_client,  # type: ignore[arg-type]
        max_retries=0,
    )


def whole(client: openai.OpenAI, model: str) -> str:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=8,
        temperature=0,
    )
    return answer.choices[0].message.content or ""


def streamed(client: openai.OpenAI, model: str) -> str:
    chunks = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=8,
        temperature=0,
        stream=True,
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def refused(client: openai.OpenAI) -> str | None:
    try:
        whole(client, "no-such-model")
    except openai.NotFoundError as err:
        return err.code
    raise AssertionError("a model that does not exist was served")


def main(kind: str, base: str, ca_file: str, api_key: str, model: str, seconds: str) -> None:
    make = {"ehbp": ehbp_clients, "tng": tng_clients}[kind]
    current = make(base, ca_file, api_key)
    texts: set[str] = set()
    num_requests, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        texts.add(whole(current(), model))
        texts.add(streamed(current(), model))
        num_requests += 2
    report = {
        "texts": sorted(texts),
        "num_requests": num_requests,
        "refused": refused(current()),
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
