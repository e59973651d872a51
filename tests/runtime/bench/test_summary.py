"""Are the quantiles NumPy's, and is a table one of aligned columns?"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bench.report import Report, format_table, rounded, speed_row
from runtime.bench.summary import quantile, summarize


@given(
    samples=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    q=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]),
)
def test_quantiles_are_numpys(samples: list[float], q: float) -> None:
    assert quantile(samples, q) == pytest.approx(float(np.quantile(samples, q)), abs=1e-6)


def test_no_sample_and_no_ratio_are_refused() -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile([], 0.5)
    with pytest.raises(ValueError, match="quantile"):
        quantile([1.0], 1.5)


def test_a_summary_has_the_middle_and_the_spread() -> None:
    summary = summarize([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.n, summary.median) == (5, 3.0)
    assert summary.p10 == pytest.approx(1.4)
    assert summary.p90 == pytest.approx(4.6)


def test_the_object_repeats_the_first_speed_on_top() -> None:
    report = Report(
        command="decode",
        model={"name": "tiny", "sha256": "ab"},
        settings={"threads": 2},
        results=[speed_row("a", [1.0, 2.0, 4.0]), speed_row("b", [9.0])],
        started_load=0.5,
        more={"peak_pss_mib": 7},
    )
    document = json.loads(report.to_json())
    assert document["schema"] == 1
    assert (document["tokens_per_s"], document["n"]) == (2.0, 3)
    assert document["p10"] < document["tokens_per_s"] < document["p90"]
    assert document["peak_pss_mib"] == 7
    assert [row["name"] for row in document["results"]] == ["a", "b"]
    assert {"machine", "versions", "commit", "load_average", "settings"} <= document.keys()


def test_an_object_without_a_speed_has_none_on_top() -> None:
    report = Report(
        command="quality", model={}, settings={}, results=[{"perplexity": 2.0}], started_load=0.0
    )
    assert "tokens_per_s" not in report.document()


def test_rows_may_have_different_columns() -> None:
    table = format_table([{"name": "a", "n": 1}, {"name": "bcd", "x": 2.5, "n": None}])
    assert table.splitlines() == ["name  n    x", "a     1", "bcd      2.5"]


def test_numbers_keep_four_digits() -> None:
    assert rounded(123456.0) == 123500.0
    assert rounded(0.00123456) == 0.001235
