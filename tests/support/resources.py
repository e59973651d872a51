"""Which outside resources does this machine have?  A test asks here, and skips or fails cleanly.

``STARSHADE_REQUIRE=native,browser,model,shared`` turns a missing resource into a failure, so that
a gate cannot pass by skipping what it was built to check.
"""

import importlib
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

_REPO_ROOT = Path(__file__).resolve().parents[2]
_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def vectors_dir() -> Path:
    """The published vectors: ``$STARSHADE_VECTORS`` or ``../shared/vectors``."""
    path = Path(_environment("STARSHADE_VECTORS") or _REPO_ROOT.parent / "shared" / "vectors")
    return path if path.is_dir() else _missing("shared", f"no vectors at {path}")


def model_path() -> Path:
    """The default model's GGUF file in the model cache."""
    cache = _environment("STARSHADE_CACHE_DIR")
    xdg = _environment("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = (Path(cache) if cache else Path(xdg) / "starshade") / "models" / _MODEL_FILE
    return path if path.is_file() else _missing("model", "run `starshade models pull` first")


def chromium_path() -> str:
    """An installed Chromium, for browser tests."""
    for name in _CHROMIUM_NAMES:
        if found := shutil.which(name):
            return found
    return _missing("browser", "no Chromium on PATH")


def dashboard_dir() -> Path:
    """The bundled dashboard, built when the package is built."""
    path = _REPO_ROOT / "web" / "static"
    return path if (path / "index.html").is_file() else _missing("browser", "no dashboard bundle")


def interop_dir() -> Path:
    """Where `make interop` puts other people's clients: ``venv`` and ``node_modules``."""
    path = _REPO_ROOT / "build" / "interop"
    return path if (path / ".installed").is_file() else _missing("interop", "run `make interop`")


def native_module() -> ModuleType:
    """The compiled kernels, ``runtime._native``."""
    try:
        return importlib.import_module("runtime._native")
    except ImportError:
        return _missing("native", "runtime._native is not built")


def _missing(resource: str, reason: str) -> NoReturn:
    required = (_environment("STARSHADE_REQUIRE") or "").split(",")
    if resource in required:
        pytest.fail(f"required resource '{resource}' is missing: {reason}")
    pytest.skip(f"needs {resource}: {reason}")


def _environment(name: str) -> str | None:
    return os.environ.get(name)  # noqa: TID251 - tests are a process edge
