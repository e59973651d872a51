"""How do messages become one prompt, and how is a user kept from forging a turn?

The template comes with the model file and runs in a bounded sandbox. Message values come from
users: wherever one spells a control token, a marker character is put inside the spelling, so that
only the template's own control tokens are recognised afterwards. The marker is taken out of the
plain text before it is encoded; a benign message is not touched at all.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError

from runtime.errors import InvalidPrompt
from runtime.tokenizer.control import TokenFinder
from runtime.tokenizer.template_sandbox import TemplateSandbox
from runtime.weights.errors import MalformedModelError, ModelLimitError

MAX_TEMPLATES = 16  # published models have up to 4
MAX_TEMPLATE_CHARS = 1 << 16  # published templates reach about 20,000
MAX_RENDERED_CHARS = 1 << 22  # four times the gateway's largest body
MAX_DEPTH = 32  # of tools and messages; JSON schemas rarely exceed 10
MAX_DATE_FORMAT_CHARS = 64
# Templates write a role into the control token before a message, so that none is free text.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # plane 15: no assigned meaning, absent from most texts
_FOREIGN_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RuntimeError,
    MemoryError,
)


class ChatTemplates:
    """The compiled templates of one model with its special strings."""

    def __init__(
        self,
        sources: Mapping[str, str],
        *,
        special_texts: Mapping[str, str],
        control_texts: Iterable[str],
    ) -> None:
        """Compile ``sources``, by name; "default" is among them.

        ``special_texts`` are variables such as ``bos_token``; ``control_texts`` the spellings that
        users must not forge.

        Raises: ModelLimitError, MalformedModelError.
        """
        if len(sources) > MAX_TEMPLATES:
            raise ModelLimitError(f"the model has {len(sources)} chat templates")
        self._sandbox = TemplateSandbox()
        self._templates = {name: self._compile(source) for name, source in sources.items()}
        self._special_texts = dict(special_texts)
        self.writes_tool_calls = _writes_tool_calls(sources.get("tool_use", sources["default"]))
        self._guard = _Guard(control_texts)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> tuple[str, str]:
        """(prompt, marker): the prompt with ``marker`` inside every forged control token.

        Splitting at control tokens first and removing the marker from what lies between gives the
        text that the template would give alone.

        Raises: InvalidPrompt when the template refuses the messages or the prompt is too long.
        """
        if any(message.get("role") not in ROLES for message in messages):
            raise InvalidPrompt("a message has an unknown role", param="messages")
        values = {"messages": list(messages), "tools": list(tools) if tools else None}
        marker = _unused_character(values)
        variables = {
            **self._special_texts,
            "documents": None,
            **self._guard.apply(dict(options or {}), marker),
            **self._guard.apply(values, marker),
            "add_generation_prompt": True,
        }
        if now is not None:
            variables["strftime_now"] = _clock(now)
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        return "".join(self._generate(self._templates[name], variables)), marker

    def _generate(self, template: Template, variables: Mapping[str, Any]) -> list[str]:
        pieces: list[str] = []
        num_chars = 0
        try:
            with self._sandbox.budget():
                for piece in template.generate(variables):
                    pieces.append(piece)
                    num_chars += len(piece)
                    if num_chars > MAX_RENDERED_CHARS:
                        raise InvalidPrompt("the rendered prompt is too long", param="messages")
        except _FOREIGN_ERRORS as err:
            # Only the type is told: a template's own message may quote the conversation.
            raise InvalidPrompt(
                f"the chat template refused the messages: {type(err).__name__}", param="messages"
            ) from None
        return pieces

    def _compile(self, source: str) -> Template:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelLimitError(f"the chat template has {len(source)} characters")
        try:
            return self._sandbox.from_string(source)
        except (*_FOREIGN_ERRORS, SyntaxError) as err:
            raise MalformedModelError("the chat template does not compile") from err


class _Guard:
    """Breaks the control tokens that users spell."""

    def __init__(self, control_texts: Iterable[str]) -> None:
        texts = [text for text in control_texts if text]
        self._finder = TokenFinder(dict.fromkeys(texts, 0))
        self._longest = max(map(len, texts), default=1) - 1
        self._prefixes = {text[:length] for text in texts for length in range(1, len(text))}

    def apply(self, values: Mapping[str, Any], marker: str) -> dict[str, Any]:
        """A copy of ``values`` in which no text spells a control token."""
        return {key: self._value(value, marker, MAX_DEPTH) for key, value in values.items()}

    def _value(self, value: Any, marker: str, depth: int) -> Any:
        if depth == 0:
            raise InvalidPrompt("messages or tools are nested too deeply", param="messages")
        if isinstance(value, str):
            return self._text(value, marker)
        if isinstance(value, Mapping):
            return {
                self._value(key, marker, depth - 1): self._value(item, marker, depth - 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(item, marker, depth - 1) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        raise InvalidPrompt(f"a value is a {type(value).__name__}", param="messages")

    def _text(self, value: str, marker: str) -> str:
        """Break each spelled control token, and a beginning of one that the value ends with."""
        done, pieces = 0, []
        for start, end, _ in self._finder.find(value):
            pieces += [value[done:start], _broken(value[start:end], marker)]
            done = end
        value = "".join((*pieces, value[done:]))
        for length in range(min(self._longest, len(value)), 0, -1):
            if value[-length:] in self._prefixes:
                return value[:-length] + _broken(value[-length:], marker)
        return value


def _writes_tool_calls(source: str) -> bool:
    """Whether a template offers tools, and has calls written as JSON between `<tool_call>` tags
    [Hermes Function Calling; Qwen2.5 and Qwen3]. Qwen3-Coder has another form between such tags.
    """
    return "tools" in source and "<tool_call>" in source and "<function=" not in source


def _broken(spelling: str, marker: str) -> str:
    return spelling[0] + marker + spelling[1:]


def _unused_character(values: Any) -> str:
    used = set(re.findall("[\U000f0000-\U000ffffd]", "".join(_texts(values, MAX_DEPTH))))
    for code_point in _PRIVATE_USE:
        if chr(code_point) not in used:
            return chr(code_point)
    raise InvalidPrompt("the messages use a whole private plane", param="messages")


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key, depth - 1)
            yield from _texts(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, depth - 1)


def _clock(now: datetime) -> Callable[[str], str]:
    """``strftime_now`` of published templates; no widths, which would make texts of any length."""

    def strftime_now(pattern: str) -> str:
        if len(pattern) > MAX_DATE_FORMAT_CHARS or re.search(r"%[^a-zA-Z%]*\d", pattern):
            raise TemplateError("the date format is not one that is known here")
        return now.strftime(pattern)

    return strftime_now
