import re
from dataclasses import replace

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

from rs.reporting.tables import formatting
from rs.reporting.tables.formatting import with_verdict
from rs.statistics.comparison import Estimate

PRINTED = re.compile(
    r"([+-]?\d+\.\d+) ± (\d+\.\d+)(?: \[(\d+\.\d+)\])?"
    rf"((?: tie)?,?(?: {formatting.SEEDS_NOT_COVERED})?)$"
)

errors = st.floats(1e-7, 0.5)
estimates = st.builds(
    Estimate,
    value=st.floats(-1, 1),
    error_images=errors,
    error=st.none() | errors,
    p_value=st.just(0.5),
    images=st.integers(2, 10_000),
    seeds=st.just(4),
)


@given(estimates)
@example(Estimate(0.00195, 0.00095, None, 0.05, 359, 1))  # 2.05 errors, but 0.0020 / 0.0009 = 2.2
@example(Estimate(0.00004, 0.00001, 0.00001, 0.0, 359, 4))  # 0.0000 ± 0.0000
@example(Estimate(0.0, 0.0, 0.0, 1.0, 4, 4))
def test_a_printed_difference_of_four_decimals_or_more_is_a_tie_where_it_says_so(one):
    value, images, error, words = PRINTED.fullmatch(with_verdict(one)).groups()
    numbers = {"value": float(value), "error_images": float(images)}
    read = replace(one, **numbers, error=error and float(error))
    assert read.tie == one.tie == ("tie" in words)
    assert (one.error is None) == (formatting.SEEDS_NOT_COVERED in words)
    assert all(len(places) >= 4 for places in re.findall(r"\.(\d+)", with_verdict(one)))


UGLY = formatting.Table(
    "50% of a_b", ["#", "σ"], [["**m_1^2**", "1 ± 2 & {~\\} † –"]], pd.DataFrame(), ["A note."]
)


def test_latex_escapes_what_it_must_and_prints_the_best_in_bold():
    text = formatting.latex(UGLY)
    assert r"\textbf{m\_1\^{}2}" in text
    assert r"1 $\pm$ 2 \& \{\textasciitilde{}\textbackslash{}\} $^\dagger$ --" in text
    assert text.isascii()
