"""`starshade bench`: which measurements are there, and where does each one live?"""

from gateway.cli_support import LazyGroup

bench = LazyGroup(
    "bench",
    help="Measure how long things take on this machine.",
    lazy={
        "decode": ("runtime.bench.decode:decode", "Tokens per second of one stream."),
        "prefill": ("runtime.bench.prefill:prefill", "How fast a prompt is read."),
        "serve": ("gateway.bench.serve:serve", "Many streams: the engine, or a server by its URL."),
        "gateway": ("gateway.bench.gateway:gateway", "What the way through the gateway adds."),
        "kernels": ("runtime.bench.kernels:kernels", "Kernels beside this machine's limits."),
        "quality": ("runtime.bench.quality:quality", "Perplexity and agreement with a reference."),
        "start": ("runtime.bench.start:start", "From a new process to the first token."),
        "attest": ("attestation.bench:attest", "Verdicts on Evidence, beside their signatures."),
    },
)
