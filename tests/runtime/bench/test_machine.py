"""Is the commit found in every shape a repository has, and the memory of a tree counted?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.bench.machine import (
    describe_machine,
    describe_versions,
    find_commit,
    peak_rss_bytes,
    process_tree,
    pss_bytes,
)

HASH = "0123456789abcdef0123456789abcdef01234567"


def test_a_branch_of_a_plain_repository(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(HASH + "\n")
    assert find_commit(tmp_path) == HASH[:12]


def test_a_packed_branch_and_a_detached_head(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{'f' * 40} refs/heads/other/refs/heads\n")
    assert find_commit(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{HASH} refs/heads/main\n")
    assert find_commit(tmp_path) == HASH[:12]
    (git / "HEAD").write_text(HASH + "\n")
    assert find_commit(tmp_path) == HASH[:12]


def test_a_linked_worktree(tmp_path: Path) -> None:
    git, linked = tmp_path / "main" / ".git", tmp_path / "linked"
    (git / "worktrees" / "linked").mkdir(parents=True)
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "topic").write_text(HASH)
    (git / "worktrees" / "linked" / "HEAD").write_text("ref: refs/heads/topic\n")
    (git / "worktrees" / "linked" / "commondir").write_text("../..\n")
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {git / 'worktrees' / 'linked'}\n")
    assert find_commit(linked) == HASH[:12]


def test_no_repository_has_no_commit(tmp_path: Path) -> None:
    assert find_commit(tmp_path) is None


def test_the_machine_and_installed_versions_are_named() -> None:
    assert "Python" in describe_machine()
    assert list(describe_versions(["numpy", "no-such-distribution"])) == ["numpy"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_memory_counts_a_child() -> None:
    code = "data = bytearray(64 << 20); input()"
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True);" + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        tree = process_tree(os.getpid())
        assert child.pid in tree
        for _ in range(1000):
            if (pss_bytes([child.pid]) or 0) >= 64 << 20:
                break
        assert (pss_bytes([child.pid]) or 0) >= 64 << 20
        assert (pss_bytes(tree) or 0) > (pss_bytes([child.pid]) or 0)
        child.communicate("\n")
    assert pss_bytes([child.pid]) is None
    assert (peak_rss_bytes() or 0) > 1 << 20
