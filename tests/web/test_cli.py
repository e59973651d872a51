"""Does the observatory's own log say when something failed, and why, without quoting it?"""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.support.patience import PATIENCE_S
from tests.support.servers import free_port
from tests.web.test_ingest import CANARY, PROTOBUF, export


def test_a_batch_that_is_not_written_is_logged_with_time_and_cause(tmp_path: Path) -> None:
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "web.cli", "--port", str(port), "--state-dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            base_url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=base_url, trust_env=False, timeout=PATIENCE_S) as client:
                _wait_until_alive(client)
                _drop_table(tmp_path)
                body = export(canary=True, at_ns=time.time_ns())
                client.post("/v1/traces", content=body, headers=PROTOBUF)
        finally:
            process.send_signal(signal.SIGTERM)  # it writes what is queued, then ends
            _, log = process.communicate(timeout=PATIENCE_S)
    (line, *_) = [line for line in log.splitlines() if "span batch not written" in line]
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z WARNING telemetry\.db\.writer ", line)
    assert line.endswith("attempt=1 error=OperationalError")
    assert CANARY not in log


def _wait_until_alive(client: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.get("/healthz").raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "the observatory did not start"
            time.sleep(0.05)
        else:
            return


def _drop_table(folder: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(folder / "telemetry.db")
    connection.execute("DROP TABLE span")
    connection.commit()
    connection.close()
