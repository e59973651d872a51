"""Do running streams flow on while prompts arrive, and do prompts arrive soon all the same?"""

import numpy as np
import pytest

from tests.runtime.simulation import TRUE_COST, Simulation


def p99(values: list[float]) -> float:
    return float(np.percentile(values, 99))


@pytest.mark.parametrize("num_streams", [2, 4, 8, 16, 32])
def test_a_long_prompt_stretches_gaps_by_a_bounded_factor(num_streams: int) -> None:
    """Some 3 times the plain gap at p99 [issue #4], with steps that differ by a tenth."""
    sim = Simulation(noise=0.1)
    streams = [sim.arrive(0, 128, max_tokens=600) for _ in range(num_streams)]
    late = sim.arrive(num_streams * 0.05 + 1.0, 2048, max_tokens=4)
    sim.run()
    plain_s = [
        step_s
        for step_s, step in sim.steps
        if step.stats.num_decode_tokens == num_streams and not step.stats.num_prefill_tokens
    ]
    shared_s = [
        gap_s
        for stream in streams
        for token_s, gap_s in zip(stream.token_s[1:], stream.gaps_s, strict=True)
        if late.arrival_s < token_s <= late.token_s[0]
    ]
    assert len(shared_s) > 20
    assert p99(shared_s) <= 3.2 * np.median(plain_s)
    alone_s = TRUE_COST[0] * 4 + TRUE_COST[1] * 2048 + TRUE_COST[2] * 2048 * 1024
    assert late.ttft_s <= 2.5 * alone_s


def test_32_streams_in_a_closed_loop_keep_their_itl_and_their_throughput() -> None:
    sim = Simulation(noise=0.1)
    num_left = 64

    def replace_it(_: object) -> None:
        nonlocal num_left
        if num_left:
            num_left -= 1
            sim.arrive(sim.now_s, 256, max_tokens=64)

    sim.on_finish = replace_it
    for _ in range(32):
        sim.arrive(0, 256, max_tokens=64)
    sim.run()
    gaps_s = [gap_s for client in sim.clients for gap_s in client.gaps_s]
    assert len(sim.clients) == 96
    assert p99(gaps_s) <= 0.15
    # The time the tokens alone take, were each step free of its fixed part and of attention.
    tokens_s = TRUE_COST[1] * 96 * (256 + 64)
    assert sim.now_s <= 1.35 * tokens_s


def test_a_target_already_missed_leaves_the_floor() -> None:
    sim = Simulation(itl_target_s=0.001, min_prefill_tokens=24)
    sim.arrive(0, 64, max_tokens=200)
    late = sim.arrive(0.1, 480, max_tokens=1)
    sim.run()
    shares = [
        step.stats.num_prefill_tokens
        for _, step in sim.steps
        if step.stats.num_decode_tokens and step.stats.num_prefill_tokens
    ]
    assert shares == [24] * 20
    assert late.token_s


def test_nobody_decoding_gives_prompts_the_whole_step() -> None:
    sim = Simulation(itl_target_s=0.001, max_batch_tokens=512)
    sim.arrive(0, 1300, max_tokens=1)
    stats = sim.run()
    assert [step.num_prefill_tokens for step in stats] == [512, 512, 276]


def test_of_many_prompts_some_end_before_others_begin() -> None:
    """All in one step would end together: half of them twice as late as they need."""
    sim = Simulation(max_batch_tokens=512)
    clients = [sim.arrive(0, 64, max_tokens=8) for _ in range(8)]
    stats = sim.run()
    assert 128 < stats[0].num_prefill_tokens <= 256
    waits_s = sorted(client.ttft_s for client in clients)
    assert waits_s[3] <= 0.7 * waits_s[-1]
    at_once_s = TRUE_COST[0] + TRUE_COST[1] * 512 + TRUE_COST[2] * 8 * 64 * 65 / 2
    assert waits_s[-1] <= 1.4 * at_once_s


def test_the_budget_and_the_prediction_are_facts() -> None:
    sim = Simulation()
    sim.arrive(0, 600, max_tokens=3)
    stats = sim.run()
    assert [step.max_prefill_tokens for step in stats[:2]] == [512, 512]
    assert stats[-1].predicted_s == pytest.approx(sim.steps[-1][0], rel=0.5)
