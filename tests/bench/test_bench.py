"""Is what peers print understood, and are the tables' ratios the right way up?"""

import json
import os
import sys
from pathlib import Path

import pytest

from runtime.bench.engines import EngineChoice, load_for_bench
from runtime.bench.load import Job
from runtime.bench.report import Row
from tests.bench.__main__ import main
from tests.bench.llama_cpp import LlamaCpp, find_program, requantized, speeds
from tests.bench.servers import ServerKind, llama_server, running
from tests.bench.serving import merged
from tests.bench.subjects import PeerFailed, run_command
from tests.bench.table import Samples
from tests.support.servers import free_port
from tests.support.tiny_model import write_tiny_gguf

LLAMA_BENCH = """\
import json, sys
depths = sys.argv[sys.argv.index("-d") + 1].split(",") if "-d" in sys.argv else ["0"]
lengths = [int(n) for n in sys.argv[sys.argv.index("-p") + 1].split(",")]
tokens = int(sys.argv[sys.argv.index("-n") + 1])
print(json.dumps([
    {"n_prompt": n, "n_gen": tokens, "n_depth": int(d), "avg_ts": 10.0 * (n or int(d)),
     "build_number": 7, "build_commit": "abc"}
    for n in lengths for d in depths]))
"""


def program(path: Path, source: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(0o755)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def test_llama_bench_is_understood(tmp_path: Path) -> None:
    bench = program(tmp_path / "llama-bench", LLAMA_BENCH)
    subject = LlamaCpp(bench, tmp_path / "m.gguf", threads=2, kind="as shipped")
    assert dict(subject.single()) == {
        "prefill 128": 1280.0,
        "prefill 512": 5120.0,
        "prefill 2048": 20480.0,
        "decode 128": 1280.0,
        "decode 1024": 10240.0,
    }
    assert subject.version == "b7 abc"


def test_a_peer_that_fails_or_prints_otherwise_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="no-such"):
        run_command([tmp_path / "no-such"])
    failing = program(tmp_path / "fails", "import sys; sys.exit('broken')")
    with pytest.raises(PeerFailed, match="broken"):
        run_command([failing])
    with pytest.raises(PeerFailed, match="other rows"):
        speeds([{"n_prompt": 1}])
    chatty = program(tmp_path / "chatty", "print('hello')")
    with pytest.raises(PeerFailed, match="no JSON"):
        LlamaCpp(chatty, tmp_path, threads=1, kind="x").single()


def test_programs_are_found_in_their_folder(tmp_path: Path) -> None:
    bench = program(tmp_path / "llama-bench", "")
    assert find_program("llama-bench", str(tmp_path)) == bench
    assert find_program("llama-server", str(tmp_path)) is None


def test_a_model_is_requantized_once(tmp_path: Path) -> None:
    source = "import shutil, sys; shutil.copy(sys.argv[2], sys.argv[3])"
    quantize = program(tmp_path / "llama-quantize", source)
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    made = requantized(quantize, model, "Q8_0", tmp_path / "out")
    assert (made.name, made.read_bytes()) == ("m.Q8_0.gguf", b"weights")
    quantize.unlink()
    assert requantized(quantize, model, "Q8_0", tmp_path / "out") == made


def test_the_first_subject_is_told_in_times_of_the_others() -> None:
    samples = Samples()
    for ours, theirs in ((30.0, 10.0), (20.0, 10.0), (20.0, 8.0)):
        samples.add("ours", {"decode 128": ours})
        samples.add("theirs", {"decode 128": theirs})
    ours_row, theirs_row = samples.rows()
    assert (ours_row["tokens_per_s"], ours_row["n"], ours_row["ratio"]) == (20.0, 3, 1.0)
    assert (theirs_row["tokens_per_s"], theirs_row["ratio"]) == (10.0, 2.0)
    head, _, line = samples.markdown().splitlines()
    assert head == "| tokens/s | ours | theirs |"
    assert line == "| decode 128 | 20 (20 to 28) | 10 (8.4 to 10), 2.00 x |"


def test_rounds_become_one_row() -> None:
    rows: list[Row] = [
        {"name": "c", "target": "a", "tokens_per_s": speed, "p10": 0.0, "p90": 0.0, "x_ms": x}
        for speed, x in ((10.0, 1), (30.0, 2), (20.0, 3))
    ]
    (row,) = merged(rows, "target")
    assert (row["tokens_per_s"], row["x_ms"], row["n"]) == (20.0, 2.0, 3)
    assert (row["p10"], row["p90"]) == (12.0, 28.0)


def test_a_server_is_started_asked_and_ended(model: Path, tmp_path: Path) -> None:
    tokenizer = load_for_bench(EngineChoice(model=model, threads=1)).tokenizer
    port = free_port()
    source = Path(__file__).with_name("fake_server.py")
    kind = ServerKind(
        name="fake",
        command=[sys.executable, source, str(port)],
        url=f"http://127.0.0.1:{port}/v1",
        as_chat=False,
        model="m",
        environment={},
    )
    with running(kind, tokenizer, tmp_path / "log") as server:
        run = server.target.run([Job(prompt_token_ids=(5, 6), max_tokens=3)], concurrency=1)
        run.require_complete()
        assert run.records[0].output_tokens == 3
        assert server.start_s > 0
        os.kill(server.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_a_server_that_ends_is_told(model: Path, tmp_path: Path) -> None:
    tokenizer = load_for_bench(EngineChoice(model=model, threads=1)).tokenizer
    failing = program(tmp_path / "server", "raise SystemExit(3)")
    kind = llama_server(failing, model, threads=1, streams=2)
    with (
        pytest.raises(PeerFailed, match="ended with 3"),
        running(kind, tokenizer, tmp_path / "log"),
    ):
        pass


@pytest.mark.bench
def test_the_whole_command_on_stand_ins(model: Path, tmp_path: Path) -> None:
    program(tmp_path / "llama-bench", LLAMA_BENCH)
    out = tmp_path / "out"
    arguments = ["--model", str(model), "--threads", "1", "--repeat", "1", "--part", "single"]
    code = main([*arguments, "--llama-bin", str(tmp_path), "--out", str(out)])
    document = json.loads((out / "bench.json").read_text())
    assert (code, document["schema"]) == (1, 1)  # prompts of 2,048 tokens exceed the tiny model
    assert "exceed the model's context" in document["failures"][0]
    assert {row["subject"] for row in document["single"]} == {"llama.cpp as shipped"}
    assert "llama.cpp" in (out / "bench.md").read_text()
