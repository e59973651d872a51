"""How can a chat template from a model file run without harm to the process that serves?

Jinja's immutable sandbox keeps a template from reaching Python. What it does not bound is effort:
loops that never print, strings and lists that double. Here every step, and every character or item
that a template makes, is taken from one budget per rendering; what cannot be counted is left out.
The compiled template counts because its syntax tree is changed before: loop and macro bodies,
joined texts, slices and literals call back [Jinja API, Extending, the meta API's nodes].
"""

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from jinja2 import TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 1_000_000  # a loop's turn, a call
MAX_WORK_CHARS = 1 << 26  # made on the way: the longest prompt may be copied some ten times
MAX_VALUE_CHARS = 1 << 22  # of one value, with what its items weigh
ITEM_CHARS = 32  # what an item weighs, an empty text for example
MAX_INTEGER_BITS = 256
MAX_INDENT = 16
MAX_PROCESSOR_S = 1.0

_FILTERS = (
    "abs capitalize count d default dictsort e escape first float groupby int items join last "
    "length list lower map max min reject rejectattr replace reverse round safe select "
    "selectattr sort string title trim unique upper"
)
_GLOBALS = frozenset({"range", "dict", "namespace"})
_TEXT_METHODS = (
    "capitalize count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric "
    "isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind "
    "rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
)
_OTHER_METHODS = "count get index items keys values"


class Budget:
    """What one rendering may still do. Raises: SecurityError once it is used up."""

    def __init__(self) -> None:
        self._steps, self._chars = MAX_STEPS, MAX_WORK_CHARS
        self._end_s = time.thread_time() + MAX_PROCESSOR_S

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise SecurityError("the template takes too many steps")
        if time.thread_time() > self._end_s:
            raise SecurityError("the template takes too long")

    def charge(self, num_chars: int) -> None:
        self._chars -= num_chars
        if self._chars < 0:
            raise SecurityError("the template makes too much text")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja as published chat templates use it, within a budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is computed while compiling, outside of any budget
            finalize=self.printed,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self._local = threading.local()
        self.filters = {
            name: self._counted(function)
            for name, function in self.filters.items()
            if name in _FILTERS.split()
        }
        self.filters |= {"tojson": self._tojson, "indent": self._indent, "sum": _sum}
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals["raise_exception"] = _raise_exception

    @contextmanager
    def budget(self) -> Iterator[None]:
        """Whatever this thread renders inside shares one fresh budget."""
        self._local.budget = Budget()
        try:
            yield
        finally:
            del self._local.budget

    def step(self) -> None:
        self._local.budget.step()

    def charge(self, num_chars: int) -> None:
        self._local.budget.charge(num_chars)

    def made(self, value: Any) -> Any:
        """``value``, counted as made just now with all that it holds."""
        self.charge(_count(value))
        return value

    def joined(self, *values: Any) -> str:
        """What the operator ``~`` gives."""
        texts = [str(self.printed(value)) for value in values]
        return "".join(texts)

    def printed(self, value: Any) -> Any:
        """``value`` as it may be turned into text."""
        if isinstance(value, str | int | float | list | tuple | dict):
            self.charge(_count(value))
        elif value is not None and not isinstance(value, Undefined):
            raise SecurityError(f"a {type(value).__name__} is not printed here")
        return value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "**" or _num_bits(left) + _num_bits(right) > MAX_INTEGER_BITS:
                raise SecurityError("numbers may not grow like this here")
        elif operator != "+":
            raise SecurityError(f"operator {operator} is for plain numbers here")
        elif _count(left) + _count(right) > MAX_VALUE_CHARS:
            raise SecurityError("a value grows too large")
        return self.made(super().call_binop(context, operator, left, right))

    def call(*args: Any, **kwargs: Any) -> Any:
        """Jinja's signature: environment, context, function, then the template's arguments."""
        self, context, function, *rest = args
        self.step()
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(owner, str):
            if name == "replace":
                self.charge(_replaced_chars(owner, *rest))
            elif name == "join":
                rest = [self._joinable(owner, *rest)]
            return self.made(super(TemplateSandbox, self).call(context, function, *rest, **kwargs))
        value = super(TemplateSandbox, self).call(context, function, *rest, **kwargs)
        return self.made(value) if function in (dict, Namespace) else value

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in _TEXT_METHODS.split()
        if isinstance(obj, list | tuple | dict | int | float):
            return attr in _OTHER_METHODS.split()
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No ``str.format``, whose widths make texts of any length: it is an unsafe attribute."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        counted: nodes.Template = _Counting().visit(tree)
        return counted

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose result is counted; ``wraps`` keeps what Jinja marks it with."""
        name = function.__name__

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            if name == "do_replace":
                self.charge(_replaced_chars(*map(str, args[1:4])))
            elif name == "do_join":
                args = (args[0], self._joinable("", args[1]), *args[2:])
                if len(args) > 2:
                    self.charge(len(str(args[2])) * len(args[1]))
            elif name == "do_round" and (kwargs or any(abs(n) > MAX_INDENT for n in args[1:2])):
                raise SecurityError("numbers are not rounded like this here")
            return self.made(function(*args, **kwargs))

        return counted

    def _joinable(self, separator: str, values: Iterable[Any]) -> list[Any]:
        """``values`` as a list whose text, with separators, has been counted."""
        found = []
        for value in values:
            self.step()
            self.charge(_count(value) + len(separator))
            found.append(value)
        return found

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As [transformers utils/chat_template_utils.py]: no HTML escapes."""
        self.made(value)
        self._small(indent, *(separators or ()))
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        return str(self.made(text))

    def _indent(
        self, text: str, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        self._small(width)
        space = width if isinstance(width, str) else " " * width
        self.charge(len(text) + len(space) * (text.count("\n") + 1))
        lines = (text + "\n").splitlines()
        body = [lines[0], *((space + line) if line or blank else line for line in lines[1:])]
        return (space if first else "") + "\n".join(body)

    def _small(self, *widths: int | str | None) -> None:
        for width in widths:
            if (len(width) if isinstance(width, str) else width or 0) > MAX_INDENT:
                raise SecurityError("an indent is too wide")


class _Counting(NodeTransformer):
    """Puts calls that count into a syntax tree."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's dispatch
        return self._with_step(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._with_step(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._with_step(node)

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node]:  # noqa: N802
        self.generic_visit(node)
        data = sum(len(item.data) for item in node.nodes if isinstance(item, nodes.TemplateData))
        return [_statement("charge", nodes.Const(data), line=node.lineno), node]

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", *node.nodes, line=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._made(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return node if node.ctx == "store" else self._made(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            return self._made(node)
        return self.generic_visit(node)

    def _made(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", node, line=node.lineno)

    def _with_step(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _statement("step", line=node.lineno))
        return node


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant wrote; for a prompt it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - the base class has a set

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _call(name: str, *args: nodes.Expr, line: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)
    call.set_lineno(line)
    return call


def _statement(name: str, *args: nodes.Expr, line: int) -> nodes.Node:
    return nodes.ExprStmt(_call(name, *args, line=line)).set_lineno(line)


def _count(value: Any) -> int:
    """Characters of a value and the weight of its items, as often as they occur."""
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        total += ITEM_CHARS
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, Mapping):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
        if total + ITEM_CHARS * len(stack) > MAX_VALUE_CHARS:
            raise SecurityError("a value is too large")
    return total


def _num_bits(number: int | float) -> int:
    return number.bit_length() if isinstance(number, int) else 0


def _replaced_chars(text: str, old: str, new: str, *_: Any) -> int:
    """How long ``text`` can become. Raises: SecurityError."""
    num_chars = len(text) + text.count(old) * len(new)
    if num_chars > MAX_VALUE_CHARS:
        raise SecurityError("a text grows too long")
    return num_chars


def _sum(values: Iterable[float], attribute: str | None = None) -> float:
    """Of numbers only: lists would grow."""
    items = [value[attribute] for value in values] if attribute else list(values)  # type: ignore[index]
    return sum(item for item in items if isinstance(item, int | float))


def _raise_exception(message: str) -> NoReturn:
    """What published templates call to refuse a conversation."""
    raise TemplateError(message)
