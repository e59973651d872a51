"""What are our spans and attributes called?  Pinned names; docs/metrics.md defines each.

``gen_ai.*`` follows the OpenTelemetry GenAI conventions as of v1.42 (status: development), where
they have a name; ``starshade.*`` is ours.  Durations are in seconds, counts in tokens.
"""

from typing import Final

# Resource: which process speaks.
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
SERVICE_VERSION: Final = "service.version"
SERVICE_GATEWAY: Final = "starshade-gateway"
SERVICE_WORKER: Final = "starshade-worker"

# Span names.  A request's is its operation and model, "chat {model}"; "attest {worker}" is alike.
SPAN_ATTEST: Final = "attest"
SPAN_SEAL: Final = "seal"
SPAN_STREAM: Final = "stream"
SPAN_ENGINE: Final = "engine"
SPAN_QUEUE: Final = "queue"
SPAN_PREFILL: Final = "prefill"
SPAN_DECODE: Final = "decode"

# The request, in the GenAI convention's words.
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"

OPERATION_CHAT: Final = "chat"
OPERATION_TEXT_COMPLETION: Final = "text_completion"
OPERATION_EMBEDDINGS: Final = "embeddings"
OPERATION_SEALED: Final = "sealed"  # which one it is, nobody here can read
PROVIDER_STARSHADE: Final = "starshade"

# HTTP and errors.
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"

# Ours: who served whom.
REQUEST_ID: Final = "starshade.request.id"
TENANT_ID: Final = "starshade.tenant.id"
WORKER_ID: Final = "starshade.worker.id"
LEASE_ID: Final = "starshade.lease.id"

# Ours: the gaps between chunks, as an exponential histogram (telemetry/histogram.py).
OUTPUT_CHUNKS: Final = "starshade.output.chunks"
ITL_SCALE: Final = "starshade.itl.scale"
ITL_OFFSET: Final = "starshade.itl.offset"
ITL_COUNTS: Final = "starshade.itl.counts"
ITL_ZERO_COUNT: Final = "starshade.itl.zero_count"
ITL_COUNT: Final = "starshade.itl.count"
ITL_SUM_S: Final = "starshade.itl.sum_s"
ITL_MAX_S: Final = "starshade.itl.max_s"

# Ours: one appraisal of one worker.
ATTESTATION_TIER: Final = "starshade.attestation.tier"
ATTESTATION_CODE: Final = "starshade.attestation.code"
ATTESTATION_TEE: Final = "starshade.attestation.tee"
ATTESTATION_SIMULATED: Final = "starshade.attestation.simulated"
ATTESTATION_TRUST_ANCHOR: Final = "starshade.attestation.trust_anchor"
ATTESTATION_POLICY: Final = "starshade.attestation.policy"
ATTESTATION_POLICY_SHA256: Final = "starshade.attestation.policy_sha256"
ATTESTATION_VERDICT_ID: Final = "starshade.attestation.verdict_id"
ATTESTATION_NOT_AFTER_S: Final = "starshade.attestation.not_after_s"
ATTESTATION_WEIGHTS_SHA256: Final = "starshade.attestation.weights_sha256"

# Spellings that older instrumentation still sends -> the name we store.
DEPRECATED: Final = {
    "gen_ai.system": GEN_AI_PROVIDER_NAME,
    "gen_ai.usage.prompt_tokens": GEN_AI_USAGE_INPUT_TOKENS,
    "gen_ai.usage.completion_tokens": GEN_AI_USAGE_OUTPUT_TOKENS,
    "gen_ai.latency.time_to_first_token": GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK,
    "http.method": HTTP_REQUEST_METHOD,
    "http.status_code": HTTP_RESPONSE_STATUS_CODE,
}
