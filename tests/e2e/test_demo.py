"""`starshade demo`, as somebody runs it who has just cloned this: real processes, a small model.

An attacker on the wire flips a bit, swaps the HPKE key, serves a revoked TCB. Each time the badge
is red with the code, the same request is refused with a signed receipt, and nothing is forwarded.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli_support import environment

TIMEOUT_S = 120


def run(tmp_path: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**environment(), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path), **environ},
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, Any]:
    tmp_path = tmp_path_factory.mktemp("demo")
    # A setting of the person's own installation must not leak into the stage.
    result = run(
        tmp_path, "--model", str(tiny_model), "--json", STARSHADE_DATABASE_URL="sqlite:////none/x"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(tmp_path.iterdir()) == [], "the stage is left as it was found"
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_all_is_as_it_must_be(report: dict[str, Any]) -> None:
    assert report["ok"] is True
    assert [scene["wrong"] for scene in report["scenes"]] == [[]] * 5


@pytest.mark.parametrize(
    ("number", "code"), [(1, "quote_signature"), (2, "key_config_error"), (3, "tcb_status")]
)
def test_each_attack_is_refused_with_its_code_and_a_receipt(
    report: dict[str, Any], number: int, code: str
) -> None:
    seen = report["scenes"][number]["seen"]
    assert (seen["status"], seen["code"]) == (503, "upstream_verification_failed")
    assert code in seen["text"]
    assert (seen["badge"]["tier"], seen["badge"]["code"]) == ("contraindicated", code)
    assert (seen["receipt_outcome"], seen["receipt_code"]) == ("refused", None)
    assert seen["num_forwarded"] == 0


@pytest.mark.parametrize("number", [0, 4])
def test_without_an_attack_it_is_answered(report: dict[str, Any], number: int) -> None:
    seen = report["scenes"][number]["seen"]
    assert seen["status"] == 200
    assert (seen["receipt_outcome"], seen["receipt_code"]) == ("complete", None)
    assert (seen["badge"]["tier"], seen["badge"]["is_simulated"]) == ("warning", True)
    assert (seen["num_forwarded"], seen["is_prompt_readable"]) == (1, False)


def test_the_audit_log_has_every_refusal(report: dict[str, Any]) -> None:
    assert report["audit"].endswith("3 quarantines, 3 refused requests")


def test_a_model_that_is_none_fails_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_text("no model")
    result = run(tmp_path, "--model", str(tmp_path / "no.gguf"))
    assert result.returncode == 2
    assert "[model_file_unusable]" in result.stderr
