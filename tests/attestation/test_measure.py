"""`attest measure` ends with the exit code that tells a script what it found."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attestation.cli import attest
from attestation.keyset import OhttpKey, build_keyset
from attestation.policy import load_policy
from tests.attestation.eventlog.logs import (
    ccel,
    dstack,
    dstack_events,
    expected_registers,
    quote_with,
)
from tests.attestation.samples import AT, evidence, keyset


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "log").write_bytes(ccel())
    (tmp_path / "dstack").write_bytes(dstack(dstack_events()))
    (tmp_path / "equal").write_bytes(quote_with(expected_registers()[1:]))
    (tmp_path / "other").write_bytes(quote_with([bytes(48)] * 4))
    (tmp_path / "bundle").write_bytes(evidence().to_json())
    (tmp_path / "keyset").write_text(json.dumps(keyset()))
    (tmp_path / "other-keyset").write_text(json.dumps(keyset(replica="worker-9")))
    return tmp_path


def _run(folder: Path, *arguments: str) -> Result:
    named = [str(folder / a) if (folder / a).is_file() else a for a in arguments]
    return CliRunner().invoke(attest, ["measure", *named])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("log", "--evidence", "equal"), 0),
        (("log", "--evidence", "other"), 1),
        (("log",), 0),
        (("dstack", "--evidence", "other"), 1),
        (("keyset", "--evidence", "equal"), 30),  # no log
        (("log", "--evidence", "log"), 30),  # no Evidence
        (("log", "--evidence", "bundle"), 1),
        (("--keyset", "keyset", "--evidence", "bundle"), 0),
        (("--keyset", "other-keyset", "--evidence", "bundle"), 1),
        (("--keyset", "keyset"), 0),
        (("--keyset", "log"), 30),
        (("--policy", "production", "--evidence", "bundle"), 1),
        (("--policy", "nothing-like-it"), 2),
        (("--policy", "production", "--evidence", "equal"), 2),
        (("--evidence", "equal"), 2),
        (("log", "--evidence", "nowhere"), 2),
    ],
)
def test_exit_codes(files: Path, arguments: tuple[str, ...], code: int) -> None:
    result = _run(files, *arguments)

    assert result.exit_code == code, result.output


def test_a_row_is_a_line_where_no_terminal_shows_it(files: Path) -> None:
    result = _run(files, "log", "--evidence", "equal")

    digest = expected_registers()[1].hex()
    rows = [line for line in result.stdout.splitlines() if digest in line]
    assert [row.count(digest) for row in rows] == [2]


def test_the_policy_of_the_keyset_is_equal(files: Path) -> None:
    named = build_keyset(
        not_after=AT,
        replica="worker-0",
        mode="terminate",
        ohttp=[OhttpKey(key_id=1, kem=0x20, config_sha256="11" * 32)],
        policy_sha256=load_policy("production").sha256,
        weights_sha256=["55" * 32],
        build={"version": "0.1.0"},
    )
    bundle: dict[str, Any] = {**json.loads(evidence().to_json()), "keyset": named}
    (files / "mine").write_text(json.dumps(bundle))

    assert _run(files, "--policy", "production", "--evidence", "mine").exit_code == 0
    assert _run(files, "--policy", "development", "--evidence", "mine").exit_code == 1


def test_json_says_everything_once(files: Path) -> None:
    document = json.loads(_run(files, "log", "--evidence", "equal", "--json").output)

    assert document["equal"] is True
    assert document["evidence_verified"] is False
    assert [row["register"] for row in document["registers"]] == [f"rtmr{i}" for i in range(4)]
    assert [row["events"] for row in document["registers"]] == [2, 1, 1, 1]
    assert all(row["replayed"] == row["quoted"] for row in document["registers"])
    assert len(document["events"]) == 6
    assert document["events"][0]["description"] == "SecureBoot: 1 bytes"


def test_words_come_first_and_nothing_hostile_is_printed(files: Path) -> None:
    equal = _run(files, "log", "--evidence", "equal").output
    other = _run(files, "log", "--evidence", "other").output

    assert equal.startswith("EQUAL to what the Evidence says; the Evidence itself is not verified")
    assert other.startswith("DIFFERENT")
    assert "\x1b" not in equal


def test_other_evidence_has_no_registers(files: Path) -> None:
    bundle = json.loads(evidence().to_json())
    (files / "snp").write_text(json.dumps({**bundle, "tee": "snp", "collateral": None}))
    (files / "unknown").write_text(json.dumps({**bundle, "tee": "other", "collateral": None}))

    assert _run(files, "log", "--evidence", "snp").exit_code == 20
    assert _run(files, "log", "--evidence", "unknown").exit_code == 20
