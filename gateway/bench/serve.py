"""`starshade bench serve`: what do many streams get, from the engine alone or through a server?

With a URL the server takes turns with the engine in this process, on the same prompts; each begins
when the machine is quiet.
"""

import secrets
from pathlib import Path

import click

from gateway.bench.http_connection import open_server
from gateway.bench.http_target import HttpTarget, first_model
from runtime.bench.engine_target import EngineTarget, memory_watched
from runtime.bench.engines import EngineChoice, load_for_bench
from runtime.bench.machine import load_average, peak_rss_bytes
from runtime.bench.options import engine_options, read_text, repeat_option, text_option, tokens_type
from runtime.bench.prompts import Prompts
from runtime.bench.report import NotMeasurable, Report, Row
from runtime.bench.serving import CASES, Sizes, Target
from runtime.bench.turns import AfterOthers

_DEFAULT_KV_TOKENS = 16_384
_MAX_SEED = (1 << 31) - 1


@click.command()
@engine_options
@click.option(
    "--case",
    "cases",
    type=click.Choice(list(CASES)),
    multiple=True,
    default=tuple(CASES),
    help="Which to measure; all by default.",
)
@click.option("--streams", type=click.IntRange(1, 512), default=32, show_default=True)
@click.option("--requests", type=click.IntRange(1, 1 << 16), default=64, show_default=True)
@click.option("--context", "prompt", type=tokens_type, default=256, show_default=True)
@click.option("--tokens", type=tokens_type, default=64, show_default=True)
@click.option("--prefix", type=tokens_type, default=1024, show_default=True)
@click.option("--arriving", type=tokens_type, default=2048, show_default=True)
@click.option("--kv-tokens", type=tokens_type, default=_DEFAULT_KV_TOKENS, show_default=True)
@repeat_option(5)
@click.option("--url", help="An OpenAI-compatible server to measure too, such as https://.../v1.")
@click.option("--only-url", is_flag=True, help="Measure the server alone.")
@click.option("--completions", is_flag=True, help="Ask it by /completions instead of as a chat.")
@click.option("--served-model", help="Its name of the model; the first it lists if not given.")
@click.option(
    "--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar="SSL_CERT_FILE"
)
@click.option("--api-key", envvar="STARSHADE_API_KEY", help="Better from the environment.")
@click.option(
    "--seed",
    type=click.IntRange(0, _MAX_SEED),
    help="Of the made-up prompts; another one in every run if not given, since a server would know "
    "them from the run before.",
)
@text_option
def serve(
    choice: EngineChoice,
    cases: tuple[str, ...],
    streams: int,
    requests: int,
    prompt: int,
    tokens: int,
    prefix: int,
    arriving: int,
    kv_tokens: int,
    repeat: int,
    url: str | None,
    only_url: bool,
    completions: bool,
    served_model: str | None,
    ca: Path | None,
    api_key: str | None,
    seed: int | None,
    text_file: Path | None,
    as_json: bool,
) -> None:
    """Time many streams at once, against the engine and, with --url, a server."""
    if only_url and url is None:
        raise click.UsageError("--only-url needs --url")
    sizes = Sizes(
        streams=streams,
        requests=requests,
        prompt=prompt,
        output=tokens,
        prefix=prefix,
        arriving=arriving,
    )
    started_load = load_average()
    loaded = load_for_bench(choice)
    loaded.require_context(sizes.longest)
    if kv_tokens < sizes.longest:
        raise NotMeasurable(f"--kv-tokens must be at least {sizes.longest}")
    targets: list[Target] = []
    if not only_url:
        as_chat = url is not None and not completions
        targets.append(EngineTarget(loaded, choice, kv_tokens=kv_tokens, as_chat=as_chat))
    if url is not None:
        server = open_server(url, ca=ca, api_key=api_key)
        targets.append(
            HttpTarget(
                server,
                model=served_model or first_model(server),
                decode=loaded.tokenizer.decode,
                as_chat=not completions,
            )
        )
    seed = secrets.randbelow(_MAX_SEED + 1) if seed is None else seed
    if len(targets) > 1:
        targets = [AfterOthers(target) for target in targets]
    prompts = Prompts(loaded.tokenizer, seed=seed, text=read_text(text_file))
    results: list[Row] = []
    with memory_watched() as memory:
        for name in dict.fromkeys(cases):
            results += CASES[name](targets, prompts, sizes, repeat)
    settings = {**choice.settings(), "kv_tokens": kv_tokens, "cases": list(cases), "seed": seed}
    Report(
        command="serve",
        model=loaded.facts(),
        settings=settings,
        results=results,
        started_load=started_load,
        more={"peak_pss_mib": _mib(memory.pss_bytes), "peak_rss_mib": _mib(peak_rss_bytes())},
    ).show(as_json=as_json)


def _mib(num_bytes: int | None) -> int | None:
    return None if num_bytes is None else num_bytes >> 20
