"""Are bias, penalties and masks applied as they say, and to nothing else?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import InvalidSampling
from runtime.logits import TokenHistory, adjusted, masked
from runtime.sampler import LogprobsWanted, Sampler, SampleRow, row_logprobs, sample_row
from runtime.sampling import MAX_LOGIT_BIASES, SamplingParams

VOCABULARY = 97  # not a multiple of 32


def logits_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, VOCABULARY).astype(np.float32)


def history_of(prompt: list[int], output: list[int]) -> TokenHistory:
    history = TokenHistory(prompt)
    for token_id in output:
        history.push(token_id)
    return history


def mask_of(allowed: set[int]) -> np.ndarray:
    mask = np.zeros(-(-VOCABULARY // 32), np.uint32)
    for token_id in allowed:
        mask[token_id // 32] |= np.uint32(1 << token_id % 32)
    return mask


def test_bias_moves_the_named_tokens_only() -> None:
    logits = logits_of()
    before = logits.copy()
    got = adjusted(logits, SamplingParams(max_tokens=1, logit_bias={3: -100, 96: 2.5}), None)
    want = before.copy()
    want[[3, 96]] += [-100, 2.5]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(logits, before)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=30),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=4),
    st.sampled_from([-0.5, 0.0, 1.0]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([0.5, 1.0, 1.3]),
)
def test_penalties_are_those_of_the_formula(
    prompt: list[int],
    output: list[int],
    drafts: list[int],
    frequency: float,
    presence: float,
    repetition: float,
) -> None:
    params = SamplingParams(
        max_tokens=1,
        frequency_penalty=frequency,
        presence_penalty=presence,
        repetition_penalty=repetition,
    )
    logits = logits_of(1)
    want = logits.astype(np.float64)
    for token_id in {*prompt, *output, *drafts}:
        want[token_id] *= repetition if want[token_id] <= 0 else 1 / repetition
    for token_id in {*output, *drafts}:
        want[token_id] -= frequency * (output + drafts).count(token_id) + presence
    history = history_of(prompt, output)
    np.testing.assert_allclose(adjusted(logits, params, history, drafts), want, atol=1e-5)
    assert history.counts() == {token_id: output.count(token_id) for token_id in output}


def test_nothing_to_do_copies_nothing() -> None:
    logits = logits_of()
    assert adjusted(logits, SamplingParams(max_tokens=1), None) is logits


@settings(deadline=None)
@given(st.sets(st.integers(0, VOCABULARY - 1), min_size=1))
def test_a_mask_keeps_what_it_names(allowed: set[int]) -> None:
    logits = logits_of(2)
    got = masked(logits, mask_of(allowed))
    assert set(np.flatnonzero(np.isfinite(got)).tolist()) == allowed
    np.testing.assert_array_equal(got[sorted(allowed)], logits[sorted(allowed)])


@settings(deadline=None)
@given(
    st.sets(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.7, 2.0]),
    st.sampled_from([0, 40]),
    st.sampled_from([1.0, 0.9]),
    st.sampled_from([0.0, 0.2]),
    st.integers(0, 1000),
)
def test_no_draw_leaves_the_mask(
    allowed: set[int], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    params = SamplingParams(
        max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    for step in range(20):
        row = SampleRow(params=params, rng_seed=seed, step=step, allowed=mask_of(allowed))
        assert sample_row(logits_of(seed), row) in allowed


def test_a_draw_that_rounds_up_to_the_total_is_not_of_weight_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.sampler.uniform", lambda seed, step: 1.0)
    row = SampleRow(
        params=SamplingParams(max_tokens=1, top_k=40), rng_seed=0, step=0, allowed=mask_of({5, 7})
    )
    assert sample_row(logits_of(), row) in {5, 7}


@pytest.mark.parametrize("min_p", [0.01, 0.3, 1.0])
def test_min_p_keeps_tokens_near_the_best(min_p: float) -> None:
    logits = logits_of(3)
    weights = np.exp(logits - logits.max())
    params = SamplingParams(max_tokens=1, min_p=min_p)
    drawn = {
        sample_row(logits, SampleRow(params=params, rng_seed=4, step=step)) for step in range(800)
    }
    kept = set(np.flatnonzero(weights >= min_p).tolist())
    assert drawn <= kept
    assert len(drawn) >= min(len(kept), 10)


def test_a_penalty_ends_a_loop() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[8, 9]] = [1.0, 0.9]
    params = SamplingParams(max_tokens=1, temperature=0, frequency_penalty=0.2)
    history = TokenHistory([8])
    chosen = []
    for step in range(4):
        row = SampleRow(params=params, rng_seed=0, step=step, history=history)
        chosen.append(sample_row(logits, row))
        history.push(chosen[-1])
    assert chosen == [8, 9, 8, 9]


def test_logprobs_are_the_raw_distribution() -> None:
    logits = logits_of(5)
    want = logits - np.log(np.exp(logits.astype(np.float64)).sum())
    got = row_logprobs(logits, LogprobsWanted(row_idx=0, token_id=7, num_top=3))
    order = np.argsort(-logits, kind="stable")[:3].tolist()
    assert got.logprob == pytest.approx(want[7], abs=1e-9)
    assert [token_id for token_id, _ in got.top] == order
    assert [value for _, value in got.top] == pytest.approx(want[order].tolist(), abs=1e-9)
    (same,) = Sampler().logprobs(logits[None], [LogprobsWanted(row_idx=0, token_id=7, num_top=3)])
    assert same == got


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_p", -0.1),
        ("min_p", float("nan")),
        ("presence_penalty", 2.1),
        ("frequency_penalty", float("inf")),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-37),
        ("repetition_penalty", float("nan")),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {1: 101.0}),
        ("logit_bias", {1: float("nan")}),
        ("logit_bias", dict.fromkeys(range(MAX_LOGIT_BIASES + 1), 0.0)),
        ("logprobs", -1),
        ("logprobs", 21),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidSampling) as caught:
        SamplingParams(max_tokens=1, **{field: value})  # type: ignore[arg-type]
    assert caught.value.param == field
