"""How shall text be chosen, and where does it end?  What all endpoints that write text share."""

from typing import Annotated, Final

from pydantic import Field

from gateway.schemas.wire import ModelName, Text, Wire
from runtime.sampling import MAX_REPETITION_PENALTY, MIN_REPETITION_PENALTY

MAX_STOP_STRINGS: Final = 4  # OpenAI's bound
MAX_STOP_CHARS: Final = 256
MAX_OUTPUT_TOKENS: Final = 1 << 20
MAX_TOP_LOGPROBS: Final = 20  # OpenAI's bound
MAX_LOGIT_BIASES: Final = 1024
MAX_GRAMMAR_CHARS: Final = 32_768
MAX_CHOICES: Final = 512  # of a grammar
MAX_ANSWERS: Final = 16  # to one prompt; each is a sequence of the engine's

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Choice = Annotated[Text, Field(min_length=1, max_length=MAX_GRAMMAR_CHARS)]


class StreamOptions(Wire):
    """``include_obfuscation``: deltas are filled up, so that their sizes tell less of the text."""

    include_usage: bool = False
    include_obfuscation: bool = True


class SamplingFields(Wire):
    """The parameters that chat and completions have in common."""

    model: ModelName
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)] | None
    ) = None
    logit_bias: (
        Annotated[
            dict[TokenId, Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MAX_LOGIT_BIASES),
        ]
        | None
    ) = Field(default=None, repr=False)
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = (
        Field(default=None, repr=False)
    )
    ignore_eos: bool | None = None
    guided_regex: Annotated[Text, Field(min_length=1, max_length=MAX_GRAMMAR_CHARS)] | None = Field(
        default=None, repr=False
    )
    guided_choice: Annotated[list[Choice], Field(min_length=1, max_length=MAX_CHOICES)] | None = (
        Field(default=None, repr=False)
    )
    stream: bool | None = None

    @property
    def is_streamed(self) -> bool:
        return bool(self.stream)

    @property
    def num_answers(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def guided_parameter(self) -> str | None:
        return next((n for n in ("guided_regex", "guided_choice") if getattr(self, n)), None)

    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
