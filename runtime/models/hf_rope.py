"""Which rotary tables does a config.json describe?  Either age of its spelling, every scaling."""

from dataclasses import dataclass

from runtime.models import rope_tables
from runtime.models.config import MAX_CONTEXT_TOKENS, RopeTable
from runtime.models.fields import Fields
from runtime.weights.errors import MalformedModelError, UnsupportedModelError

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    num_layers: int
    head_dim: int
    max_context_tokens: int


def scaled_table(
    fields: Fields, parameters: Fields, sizes: Sizes, *, default_theta: float = 10_000.0
) -> RopeTable:
    """Of ``parameters``, or of the document itself when these are ``fields``."""
    if parameters is fields:
        parameters = _rope_parameters(fields)
    if parameters.positive("partial_rotary_factor", default=1.0) != 1:
        raise UnsupportedModelError("partial_rotary_factor is not 1")
    theta = _theta(fields, parameters, default_theta)
    table = rope_tables.plain(theta, sizes.head_dim)
    kind = _rope_type(parameters)
    if kind == "default":
        return table
    factor = parameters.positive("factor")
    if kind == "linear":
        return rope_tables.divided(table, factor)
    original = _original_context(fields, parameters, default=sizes.max_context_tokens)
    if kind == "llama3":
        return rope_tables.Llama3Scaling(
            factor=factor,
            low_freq_factor=parameters.positive("low_freq_factor"),
            high_freq_factor=parameters.positive("high_freq_factor"),
            original_context=original,
        ).apply(table)
    if kind == "yarn":
        parameters.require_unset("mscale", "mscale_all_dim")
        given = parameters.positive_or_zero("attention_factor")
        return rope_tables.YarnScaling(
            factor=factor,
            original_context=original,
            beta_fast=parameters.positive("beta_fast", default=32.0),
            beta_slow=parameters.positive("beta_slow", default=1.0),
            attention_factor=given or None,
            truncate=parameters.flag("truncate", default=True),
        ).apply(table, theta)
    raise UnsupportedModelError("the rotary scaling is not one of linear, llama3, yarn")


def local_global_tables(fields: Fields, sizes: Sizes) -> tuple[RopeTable, RopeTable]:
    """Of global layers, which may be scaled, and of local ones."""
    parameters = fields.table("rope_parameters")
    if parameters.get(FULL) is None:
        local = fields.positive("rope_local_base_freq", default=10_000.0)
        table = scaled_table(fields, fields, sizes, default_theta=1_000_000.0)
        return (table, rope_tables.plain(local, sizes.head_dim))
    return (
        scaled_table(fields, parameters.table(FULL), sizes, default_theta=1_000_000.0),
        scaled_table(fields, parameters.table(SLIDING), sizes),
    )


def longrope_table(fields: Fields, sizes: Sizes) -> tuple[RopeTable, int]:
    """With the short factors, and the context in which these hold: Phi-3's.

    Raises: MalformedModelError, UnsupportedModelError.
    """
    parameters = _rope_parameters(fields)
    share = fields.positive("partial_rotary_factor", default=1.0)
    rotary_dim = int(sizes.head_dim * parameters.positive("partial_rotary_factor", default=share))
    if not 2 <= rotary_dim <= sizes.head_dim:
        raise UnsupportedModelError("partial_rotary_factor rotates nothing, or more than a head")
    table = rope_tables.plain(_theta(fields, parameters, 10_000.0), rotary_dim)
    if (kind := _rope_type(parameters)) == "default":
        return table, sizes.max_context_tokens
    if kind not in ("longrope", "su", "yarn"):  # the latter two are its names in early files
        raise UnsupportedModelError("the rotary scaling of a phi3 model is not longrope")
    short = parameters.numbers("short_factor", rotary_dim // 2)
    if short is None:
        raise MalformedModelError("short_factor is missing")
    original = _original_context(fields, parameters, default=4096)
    attention = rope_tables.longrope_attention_factor(sizes.max_context_tokens, original)
    scaled = RopeTable(
        inverse_frequencies=rope_tables.divided(table, short).inverse_frequencies,
        attention_factor=parameters.positive("attention_factor", default=attention),
    )
    return scaled, min(original, sizes.max_context_tokens)


def _rope_parameters(fields: Fields) -> Fields:
    """transformers 5 writes rope_parameters, earlier ones rope_scaling."""
    parameters = fields.table("rope_parameters")
    return parameters if parameters.values else fields.table("rope_scaling")


def _theta(fields: Fields, parameters: Fields, default: float) -> float:
    return parameters.positive("rope_theta", default=fields.positive("rope_theta", default=default))


def _rope_type(parameters: Fields) -> str:
    return parameters.text("rope_type", default=parameters.text("type", default="default"))


def _original_context(fields: Fields, parameters: Fields, *, default: int) -> int:
    name = "original_max_position_embeddings"
    outer = fields.count(name, MAX_CONTEXT_TOKENS, default=default)
    return parameters.count(name, MAX_CONTEXT_TOKENS, default=outer)
