"""Does a gateway start on a state folder whose files are damaged?"""

from pathlib import Path

import pytest

from tests.gateway.support import running_stack


@pytest.mark.parametrize("damage", [b"", b"short", bytes(100)])
def test_a_damaged_salt_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    salt = tmp_path / "tls" / "salt.key"
    salt.parent.mkdir()
    salt.write_bytes(damage)
    with running_stack(tmp_path) as stack:
        assert stack.chat().status_code == 200
        assert stack.config.paths.salt_key.stat().st_size == 32
