"""Does every command measure a tiny model and print what its page promises?  Not how fast."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gateway.bench.serve import serve
from runtime.bench.decode import decode
from runtime.bench.kernels import kernels
from runtime.bench.prefill import prefill
from runtime.bench.quality import quality
from runtime.bench.start import start
from tests.support.resources import native_module
from tests.support.tiny_model import write_tiny_gguf

SERVE = "--streams 4 --requests 6 --context 20 --tokens 4 --prefix 60 --arriving 100".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("bench") / "tiny.gguf")


def run(command: click.Command, model: Path, *arguments: str) -> dict[str, Any]:
    common = ["--model", str(model), "--threads", "1", "--json"]
    result = CliRunner().invoke(command, [*common, *arguments])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.output)
    assert document["schema"] == 1
    assert document["model"]["name"] == "tiny"
    return document


def test_decode(model: Path) -> None:
    arguments = "--context 8 --context 40 --tokens 3 --repeat 2".split()  # noqa: SIM905
    document = run(decode, model, *arguments)
    assert [row["name"] for row in document["results"]] == ["context 8", "context 40"]
    assert document["tokens_per_s"] > 0
    assert document["n"] == 2


def test_prefill(model: Path) -> None:
    document = run(prefill, model, "--context", "30", "--repeat", "1")
    (row,) = document["results"]
    assert row["tokens_per_s"] == pytest.approx(30e3 / row["ttft_p50_ms"], rel=0.01)


def test_serve(model: Path) -> None:
    cases = ["--case", "streams", "--case", "shared", "--repeat", "1", "--kv-tokens", "2048"]
    document = run(serve, model, *SERVE, *cases)
    names = [row["name"] for row in document["results"]]
    assert names == ["4 streams", "shared prefix, cold", "shared prefix, warm"]
    cold, warm = document["results"][1:]
    assert warm["cached_tokens"] > cold["cached_tokens"]
    assert document["peak_pss_mib"] is None or document["peak_pss_mib"] > 1


def test_serve_asks_something_new_in_every_run_unless_told(model: Path) -> None:
    """A server that was measured before would know the prompts of the same seed."""
    arguments = [*SERVE, "--case", "streams", "--repeat", "1", "--kv-tokens", "2048"]
    seeds = {run(serve, model, *arguments)["settings"]["seed"] for _ in range(2)}
    assert len(seeds) == 2
    assert run(serve, model, *arguments, "--seed", "7")["settings"]["seed"] == 7


def test_quality(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STARSHADE_VECTORS", raising=False)  # its texts are another model's
    text = tmp_path / "text.txt"
    text.write_text("The old sailor reads a letter. " * 40)
    document = run(quality, model, "--text", str(text), "--window", "64", "--max-windows", "2")
    alone, in_bulk = document["results"]
    assert (alone["generated"], in_bulk["generated"]) == ("alone", "in bulk")
    for row in (alone, in_bulk):
        assert row["windows"] == 2
        assert row["perplexity"] > 1
    goes_otherwise = native_module().Cpu(1).takes_bf16
    assert (alone["perplexity"] != in_bulk["perplexity"]) == goes_otherwise


def test_kernels(model: Path) -> None:
    native = native_module()
    arguments = "--rows 1 --rows 5 --context 40 --repeat 3".split()  # noqa: SIM905
    rows = {row["name"]: row for row in run(kernels, model, *arguments)["results"]}
    assert list(rows)[:3] == ["limit, read of 64 MiB", "limit, int8", "limit, f32"]
    assert rows["attention, 1 row at 40, bf16"]["n"] == 3
    shares = [row["share_of_limit"] for row in rows.values() if "share_of_limit" in row]
    assert len(shares) == (7 if native.Cpu(1).takes_bf16 else 5)
    assert min(shares) > 0


def test_the_limit_is_the_slower_of_memory_and_arithmetic() -> None:
    limits_module = pytest.importorskip("runtime.bench.limits", exc_type=ImportError)
    limits = limits_module.Limits(
        read_bytes=1 << 20, bytes_per_s=10.0, int8_per_s=100.0, f32_per_s=50.0
    )
    assert limits.share(2.0, num_bytes=10, num_operations=20, mode="int8") == 0.5
    assert limits.share(2.0, num_bytes=10, num_operations=100, mode="rotated") == 0.5
    assert limits.share(2.0, num_bytes=10, num_operations=100, mode="bf16") == 1.0
    assert limits.share(2.0, num_bytes=10, num_operations=100, mode="f32") == 1.0


def test_start(model: Path) -> None:
    document = run(start, model, "--repeat", "1")
    (row,) = document["results"]
    assert row["median_s"] > row["load_s"] > 0


def test_a_prompt_beyond_the_context_is_refused_in_words(model: Path) -> None:
    result = CliRunner().invoke(decode, ["--model", str(model), "--context", "600"])
    assert result.exit_code == 1
    assert "exceed the model's context of 512" in result.output


def test_a_file_that_is_no_model_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"nothing")
    result = CliRunner().invoke(prefill, ["--model", str(path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output


def test_a_table_for_people(model: Path) -> None:
    arguments = ["--model", str(model), "--context", "8", "--tokens", "2", "--repeat", "1"]
    result = CliRunner().invoke(decode, arguments)
    assert result.exit_code == 0, result.output
    assert "tokens_per_s" in result.output
    assert "context 8" in result.output
