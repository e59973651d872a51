"""How does a running process get a module with one fault in it?

Warm: the code of the functions that are already loaded is replaced, which takes no time and leaves
what ran at import as it was. Cold: a finder serves the faulty module to the first import.
"""

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


class NotPatchable(Exception):
    """The fault is in code that no loaded function runs, or that cannot be replaced alone."""


def patch_loaded(module: str, tree: ast.Module, function: str) -> None:
    """Gives the loaded ``function``, and those that it encloses, their code of ``tree``.

    Raises: NotPatchable.
    """
    path = _path(module)
    codes = {_place(code): code for code in _codes(compile(tree, path, "exec"))}
    name = function.partition(".<locals>")[0]
    num_patched = 0
    for loaded in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
        code = loaded.__code__
        is_meant = code.co_qualname == name or code.co_qualname.startswith(f"{name}.<locals>")
        if code.co_filename != path or not is_meant:
            continue
        new = codes.get(_place(code))
        if new is None or new.co_freevars != code.co_freevars:
            raise NotPatchable(name)
        loaded.__code__ = new
        num_patched += 1
    if num_patched == 0:
        raise NotPatchable(name)


def serve_instead(module: str, tree: ast.Module) -> None:
    """The next import of ``module`` runs ``tree``."""
    sys.meta_path.insert(0, _Finder(module, tree))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, tree: ast.Module) -> None:
        self._module, self._tree = module, tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        file = _path(fullname)
        loader = _Loader(fullname, file, self._tree)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, tree: ast.Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec")


def source_path(module: str) -> Path:
    """The file of a module of this project, found without importing it."""
    return Path(__file__).resolve().parents[2] / (module.replace(".", "/") + ".py")


def _path(module: str) -> str:
    return str(source_path(module))


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
