"""Which small faults can be put into a module, one at a time?

Comparisons swapped and moved by one, conditions negated, ``and`` for ``or``, numbers and text
changed, arithmetic swapped, ``raise`` and other statements removed, ``return`` values lost. What
only people read (messages, docstrings), what only a type checker reads and ``zip``'s ``strict``, an
invariant of ours, are left as they are.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_MESSAGE_CALLS = {  # which argument is only for people, or for a type checker
    **dict.fromkeys(("step", "warning", "not_applicable", "problem"), 1),
    **dict.fromkeys(("text", "integer", "array", "hex_bytes", "utc_time", "sha256_hex"), 1),
    **dict.fromkeys(("require_keys", "_object", "_base64", "_fact"), 1),
    "cast": 0,
}
_MESSAGE_NAMES = frozenset(
    {"what", "_WHAT", "reason", "passed", "label", "source", "strict", "__all__"}
)
_MESSAGE_FUNCTIONS = frozenset({"passed"})
_MAX_CONTEXT_CHARS = 110
_SAY_THEIR_OPPOSITE = (ast.Compare, ast.BoolOp, ast.UnaryOp)  # each has a mutation of its own
_Put = Callable[[ast.AST], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fault: where it is and what it changes.

    ``function`` is the qualified name, "" for module level. ``lines`` are those of the statement
    that evaluates it. ``index`` numbers the module's mutations.
    """

    index: int
    function: str
    change: str
    lines: range
    is_in_body: bool


@dataclass(frozen=True, slots=True)
class _Site:
    """A node's place and what can stand in it instead; ``context`` is the text around it."""

    old: ast.AST
    new: ast.AST
    put: _Put
    scope: tuple[str, ...]
    lines: range
    is_in_body: bool
    context: str


def find_mutations(source: str) -> tuple[Mutation, ...]:
    """Every mutation of a module, in the order of its text; no two have one description."""
    found: list[Mutation] = []
    seen: dict[tuple[str, str], int] = {}
    for index, site in enumerate(_sites(ast.parse(source))):
        function, change = ".".join(site.scope), _describe(site)
        seen[function, change] = count = seen.get((function, change), 0) + 1
        found.append(
            Mutation(
                index=index,
                function=function,
                change=change if count == 1 else f"{change} (#{count})",
                lines=site.lines,
                is_in_body=site.is_in_body,
            )
        )
    return tuple(found)


def mutated_tree(source: str, index: int) -> ast.Module:
    """The module with its mutation number ``index``."""
    tree = ast.parse(source)
    site = next(site for at, site in enumerate(_sites(tree)) if at == index)
    site.put(ast.copy_location(site.new, site.old))
    return ast.fix_missing_locations(tree)


def _describe(site: _Site) -> str:
    old, new = ast.unparse(site.old), ast.unparse(site.new)
    text = f"{old} -> {new}"
    return text if site.context == old else f"{text} in {site.context[:_MAX_CONTEXT_CHARS]}"


def _sites(tree: ast.Module) -> Iterator[_Site]:
    yield from _Finder(scope=(), is_in_body=False).block(tree.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finder:
    """Walks statements and their expressions inside one scope."""

    scope: tuple[str, ...]
    is_in_body: bool

    def block(self, body: list[ast.stmt]) -> Iterator[_Site]:
        for at, statement in enumerate(body):
            if _is_text(statement):
                continue

            def put(new: ast.AST, at: int = at) -> None:
                assert isinstance(new, ast.stmt)
                body[at] = new

            yield from self._statement(statement, put)

    def _statement(self, node: ast.stmt, put: _Put) -> Iterator[_Site]:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass):
            return
        if isinstance(node, ast.FunctionDef):
            scope = (*self.scope, node.name)
            if node.name not in _MESSAGE_FUNCTIONS:
                yield from self._expressions(node.args, _lines(node), node.name)
                yield from _Finder(scope=scope, is_in_body=True).block(node.body)
            return
        if isinstance(node, ast.ClassDef):
            scope = (*self.scope, node.name)
            yield from _Finder(scope=scope, is_in_body=self.is_in_body).block(node.body)
            return
        lines, text = _lines(node), ast.unparse(node).splitlines()[0]
        new = _instead_of(node)
        if new is not None:
            yield _Site(node, new, put, self.scope, lines, self.is_in_body, text)
        if not _is_for_people(node):
            yield from self._expressions(node, lines, text)
        for name in ("body", "orelse", "finalbody"):
            yield from self.block(getattr(node, name, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from self.block(part.body)

    def _expressions(self, node: ast.AST, lines: range, context: str) -> Iterator[_Site]:
        """Sites in the expressions below ``node``, not in the statements below it."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment", "ctx"):
                continue
            items = value if isinstance(value, list) else [value]
            for at, item in enumerate(items):
                if not isinstance(item, ast.AST) or isinstance(item, ast.stmt):
                    continue
                if isinstance(item, ast.ExceptHandler | ast.match_case):
                    continue
                if _is_message(node, name, at):
                    continue
                put = _putter(node, name, at, value)
                if name in ("test", "ifs") and not isinstance(item, _SAY_THEIR_OPPOSITE):
                    assert isinstance(item, ast.expr)
                    new = ast.UnaryOp(op=ast.Not(), operand=item)
                    yield _Site(item, new, put, self.scope, lines, self.is_in_body, context)
                yield from self._expression(item, put, lines, context)

    def _expression(self, node: ast.AST, put: _Put, lines: range, context: str) -> Iterator[_Site]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name):
            text = " ".join(ast.unparse(node).split())
            context = text if len(text) > 16 else context
        for new in _alternatives(node):
            yield _Site(node, new, put, self.scope, lines, self.is_in_body, context)
        yield from self._expressions(node, lines, context)


def _putter(parent: ast.AST, name: str, at: int, value: object) -> _Put:
    def put(new: ast.AST) -> None:
        if isinstance(value, list):
            value[at] = new
        else:
            setattr(parent, name, new)

    return put


def _lines(node: ast.stmt) -> range:
    """Of the statement itself, without those of the statements below it."""
    end = node.end_lineno or node.lineno
    body: list[ast.stmt] = getattr(node, "body", [])
    if body:
        end = max(node.lineno, body[0].lineno - 1)
    return range(node.lineno, end + 1)


def _instead_of(node: ast.stmt) -> ast.stmt | None:
    if isinstance(node, ast.Raise | ast.AugAssign):
        return ast.Pass()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.Pass()
    if isinstance(node, ast.Return) and node.value is not None:
        is_as_good = isinstance(node.value, ast.Constant) and node.value.value in (None, False)
        return None if is_as_good else ast.Return(value=ast.Constant(value=None))
    if isinstance(node, ast.Continue):
        return ast.Break()
    if isinstance(node, ast.Break):
        return ast.Continue()
    return None


def _alternatives(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for kind in _COMPARISONS[type(operator)]:
                new = copy.deepcopy(node)
                new.ops[at] = kind()
                yield new
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(
            op=ast.And() if isinstance(node.op, ast.Or) else ast.Or(), values=node.values
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if not (isinstance(node.op, ast.Add | ast.Mult) and _is_text_value(node)):
            yield ast.BinOp(left=node.left, op=_ARITHMETIC[type(node.op)](), right=node.right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield ast.Call(
            func=ast.Name(id=_CALLS[node.func.id], ctx=ast.Load()),
            args=node.args,
            keywords=node.keywords,
        )
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)


def _constants(value: object) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(value=not value)
    elif isinstance(value, int):
        yield ast.Constant(value=value + 1)
        if value > 0:
            yield ast.Constant(value=value - 1)
    elif isinstance(value, str):
        yield ast.Constant(value=value + "X")
    elif isinstance(value, bytes):
        yield ast.Constant(value=value + b"X")


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_text_value(node: ast.BinOp) -> bool:
    """Text and bytes have no minus: the mutation would only be a TypeError."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _is_for_people(node: ast.stmt) -> bool:
    """A name for messages, or an alias of types: CamelCase by convention."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    if not isinstance(target, ast.Name) or isinstance(node, ast.AugAssign | ast.For):
        return False
    name = target.id
    return name in _MESSAGE_NAMES or (name[:1].isupper() and name != name.upper())


def _is_message(node: ast.AST, field: str, at: int) -> bool:
    """Is this the part of ``raise Error(code, message)``, ``log.step(name, passed)``... to read?"""
    if isinstance(node, ast.keyword):
        return node.arg in _MESSAGE_NAMES
    if not isinstance(node, ast.Call) or field != "args":
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in _MESSAGE_CALLS:
        return at == _MESSAGE_CALLS[name]
    return at == 1 and name[:1].isupper() and isinstance(node.args[1], ast.Constant | ast.JoinedStr)
