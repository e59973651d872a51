"""In which form may a client ask for its answer?  OpenAI's ``response_format``, parsed strictly.

https://platform.openai.com/docs/guides/structured-outputs
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gateway.schemas.wire import JsonObject, Wire

MAX_SCHEMA_NAME_CHARS: Final = 64  # OpenAI's bound
MAX_DESCRIPTION_CHARS: Final = 4096
TAGS: Final = frozenset({"text", "json_object", "json_schema"})


class TextFormat(Wire):
    type: Literal["text"]


class JsonObjectFormat(Wire):
    type: Literal["json_object"]


class JsonSchema(Wire):
    """``name``, ``description`` and ``strict`` change nothing: the schema is always followed."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_SCHEMA_NAME_CHARS)]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    # `schema` is the name of a method of pydantic's, so it is an alias here.
    schema_object: Annotated[JsonObject, Field(alias="schema", repr=False)]
    strict: bool | None = None


class JsonSchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat: TypeAlias = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]
