"""How do messages become one prompt, and how is a user kept from forging a turn?

The template comes with the model file and runs in Jinja's immutable sandbox. Message values come
from users: wherever one spells a control token, a marker character is put inside the spelling, so
that only the template's own control tokens are recognised afterwards. The marker is taken out of
the plain text before it is encoded; a benign message is not touched at all.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.errors import InvalidPrompt
from runtime.weights.errors import MalformedModelError, ModelLimitError

MAX_TEMPLATE_CHARS = 1 << 16  # published templates reach about 20,000
MAX_RENDERED_CHARS = 1 << 22  # four times the gateway's largest body
_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # plane 15: no assigned meaning, absent from most texts


class ChatTemplate:
    """A compiled template with the model's special strings."""

    def __init__(
        self, source: str, *, bos_text: str, eos_text: str, control_texts: Iterable[str]
    ) -> None:
        """Compile ``source``; ``control_texts`` are the spellings that users must not forge.

        Raises: ModelLimitError, MalformedModelError.
        """
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelLimitError(f"the chat template has {len(source)} characters")
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = environment.from_string(source)
        except TemplateError as err:
            raise MalformedModelError("the chat template does not compile") from err
        self._strings = {"bos_token": bos_text, "eos_token": eos_text}
        self._control_texts = sorted(control_texts, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, self._control_texts)) or r"(?!)")
        self._prefixes = {
            text[:length] for text in self._control_texts for length in range(1, len(text))
        }

    def render(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, str]:
        """(prompt, marker): the prompt with ``marker`` inside every forged control token.

        Splitting at control tokens first and removing the marker from what lies between gives the
        text that the template would give alone.

        Raises: InvalidPrompt when the template refuses the messages or the prompt is too long.
        """
        marker = _unused_character(messages)
        guarded = [
            {key: self._guard(value, marker) for key, value in message.items()}
            for message in messages
        ]
        pieces: list[str] = []
        num_chars = 0
        try:
            for piece in self._template.generate(
                messages=guarded, add_generation_prompt=True, **self._strings
            ):
                pieces.append(piece)
                num_chars += len(piece)
                if num_chars > MAX_RENDERED_CHARS:
                    raise InvalidPrompt("the rendered prompt is too long", param="messages")
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as err:
            # Only the type is told: a template's own message may quote the conversation.
            raise InvalidPrompt(
                f"the chat template refused the messages: {type(err).__name__}", param="messages"
            ) from None
        return "".join(pieces), marker

    def _guard(self, value: str, marker: str) -> str:
        """Break each spelled control token, and a beginning of one that the value ends with."""
        value = self._spelled.sub(lambda match: _broken(match.group(), marker), value)
        longest = max(map(len, self._control_texts), default=1) - 1
        for length in range(min(longest, len(value)), 0, -1):
            if value[-length:] in self._prefixes:
                return value[:-length] + _broken(value[-length:], marker)
        return value


def _broken(spelling: str, marker: str) -> str:
    return spelling[0] + marker + spelling[1:]


def _unused_character(messages: Sequence[Mapping[str, str]]) -> str:
    used = {char for message in messages for value in message.values() for char in value}
    for code_point in _PRIVATE_USE:
        if chr(code_point) not in used:
            return chr(code_point)
    raise InvalidPrompt("the messages use a whole private plane", param="messages")


def _raise_exception(message: str) -> NoReturn:
    """What published templates call to refuse a conversation."""
    raise TemplateError(message)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, where no operator can make a huge value from two small ones."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numeric = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or not numeric:
            raise SecurityError(f"operator {operator} is for plain numbers here")
        return super().call_binop(context, operator, left, right)
