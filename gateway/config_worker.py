"""What does a worker serve, and how does it compute?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway import config_rules as rules
from gateway.config_sources import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The process inside the TEE."""

    id: Annotated[
        str, Key("Name of this worker, unlike that of any other worker.", rules.identifier)
    ] = "worker-0"
    socket: Annotated[
        Path,
        Key("Unix socket to listen on; others must not be able to enter its folder (mode 0700)."),
    ]
    model: Annotated[
        str,
        Key(
            "A name that `starshade models list` shows, or the path of a GGUF file or of a "
            "safetensors folder.",
            rules.not_empty,
        ),
    ] = "smollm2-135m"
    upstream: Annotated[
        str | None,
        Key(
            "A vLLM or SGLang server in this same machine that computes instead of the own engine: "
            "`http://127.0.0.1:PORT` or `unix:/absolute/path`.",
            rules.upstream_address,
            secret=True,
        ),
    ] = None
    upstream_kind: Annotated[
        str, Key("Which of the two it is: `vllm` or `sglang`.", rules.one_of("vllm", "sglang"))
    ] = "vllm"
    upstream_weights_sha256: Annotated[
        str | None,
        Key("SHA-256 of the weights that server has, for the attested keyset.", rules.sha256),
    ] = None
    threads: Annotated[
        int, Key("CPU threads of the engine; 0 uses every core.", rules.between(0, 1024))
    ] = 0
    quantize: Annotated[
        str,
        Key(
            "What float matrices of a model are packed to when it is loaded: `none`, `int8` or "
            "`int4`.",
            rules.one_of("none", "int8", "int4"),
        ),
    ] = "none"
    precision: Annotated[
        str,
        Key(
            "`int8` multiplies packed weights by activations rounded to 8 bits, or to bf16 for "
            "prompts where the CPU has AMX tiles, and computes the logits near the best again from "
            "floats; `f32` keeps activations as they are, at a third of the speed.",
            rules.one_of("int8", "f32"),
        ),
    ] = "int8"
    kv_dtype: Annotated[
        str,
        Key(
            "How keys and values are kept: `bf16`, `int8` at half the memory and less precision, "
            "or `f32`.",
            rules.one_of("bf16", "int8", "f32"),
        ),
    ] = "bf16"
    key_rotation_s: Annotated[
        int,
        Key(
            "How long a channel key is the one to seal to; it opens for as long again. A gateway "
            "in pass-through mode needs the value of its workers.",
            rules.between(2, 86_400),
        ),
    ] = 300
    tee: Annotated[
        str,
        Key(
            "`fake` is simulated and never passes the production policy; `auto` takes the "
            "machine's own TEE, else the simulated one where the policy allows it.",
            rules.one_of("auto", "fake"),
        ),
    ] = "auto"
