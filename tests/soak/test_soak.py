"""Five hundred requests of the soak, and would its verdict notice a leak or a drift?"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.bench.engines import EngineChoice, LoadedForBench, load_for_bench
from runtime.kvcache.block_pool import BlockPool
from tests.soak.driver import Soak, Window
from tests.soak.verdict import MAX_GROWTH_BYTES, problems
from tests.support.tiny_model import CONTROL_TOKENS, write_tiny_gguf


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedForBench:
    path = write_tiny_gguf(tmp_path_factory.mktemp("soak") / "tiny.gguf")
    return load_for_bench(EngineChoice(model=path, threads=1))


def soak(loaded: LoadedForBench) -> Soak:
    return Soak(loaded, seed=5, first_token_id=len(CONTROL_TOKENS))


def test_five_hundred_requests_leave_the_engine_as_it_was(loaded: LoadedForBench) -> None:
    windows = list(soak(loaded).windows(500, num_windows=2))
    assert problems(windows) == []
    ended = sum((window.ended for window in windows), Counter[str]())
    assert sum(ended.values()) == 500
    assert min(ended[reason] for reason in ("stop", "length", "abort")) > 0
    assert (ended["error"] > 0) == (sum(window.num_faults for window in windows) > 0)


def test_a_block_that_is_never_given_back_is_noticed(
    loaded: LoadedForBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    release: Callable[[BlockPool, int], None] = BlockPool.release
    kept: list[int] = []

    def forgetful(pool: BlockPool, block_id: int) -> None:
        if kept or pool.ref_count(block_id) > 1:
            release(pool, block_id)
        else:
            kept.append(block_id)

    monkeypatch.setattr(BlockPool, "release", forgetful)
    with pytest.raises(AssertionError):
        list(soak(loaded).windows(50, num_windows=1))


def window(**changes: object) -> Window:
    usual = Window(
        num_requests=10,
        ended=Counter(length=10),
        num_faults=0,
        pss_bytes=100 << 20,
        num_objects=0,
        probe_cpu_s=0.1,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_a_steady_run_has_no_problem() -> None:
    rising_at_first = [window(pss_bytes=50 << 20, probe_cpu_s=0.5), *[window()] * 11]
    assert problems(rising_at_first) == []


def test_growth_drift_and_survivors_are_problems() -> None:
    grown = window(pss_bytes=(100 << 20) + MAX_GROWTH_BYTES + 1)
    assert problems([*[window()] * 8, *[grown] * 4]) == ["memory grew by 32 MiB"]
    (drift,) = problems([*[window()] * 8, *[window(probe_cpu_s=0.2)] * 4])
    assert "2.00 times" in drift
    (left,) = problems([window(num_objects=3)])
    assert "3 sequences" in left
