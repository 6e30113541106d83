import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from rs.command_line.exchange import export_rows as export
from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, Certificate
from rs.statistics.radius import lower_bound, radius
from rs.statistics.sequential import Decider
from rs.storage import certificate_rows
from tests.support.helpers import exit_code, refusal, refuses, write_row_file

SIGMA, N, ALPHA = 0.5, 1000, 0.001


def row(idx=0, label=0, votes=900, **changes):
    """A consistent row: class 0 chosen, ``votes`` of N for it."""
    p_lower = float(lower_bound(votes, N, ALPHA))
    sure = p_lower >= 0.5
    values = {
        "idx": idx,
        "label": label,
        "predict": 0 if sure else ABSTAIN,
        "radius": float(radius(p_lower, SIGMA)),
        "correct": int(sure and label == 0),
        "p_lower": p_lower,
        "n0": 100,
        "n": N,
        "alpha": ALPHA,
        "sigma": SIGMA,
        "counts0": [90, 10],
        "counts": [votes, N - votes],
        "mode": "certify",
        "scope": "model",
    }
    return values | changes


SHORTCUT = {
    "predict": 0,
    "correct": 0,
    "radius": 0.0,
    "p_lower": 0.0,
    "n": 0,
    "counts": [],
    "mode": "shortcut",
}


def text_of(*records):
    return certificate_rows.rows_text(records)


def test_a_row_is_one_tab_separated_line_in_the_order_of_the_columns():
    header, line = text_of(row(idx=7, votes=1000, radius=0.1, p_lower=0.25)).splitlines()
    assert tuple(header.split("\t")) == certificate_rows.COLUMNS
    assert line == "7\t0\t0\t0.1\t1\t0.25\t100\t1000\t0.001\t0.5\t0:90,1:10\t0:1000\tcertify\tmodel"


def test_evaluations_of_members_are_a_further_column_where_they_are_counted(tmp_path):
    path = tmp_path / "rows.tsv"
    write_row_file([row(0, evaluations=1210), row(1, label=1, evaluations=1100)], path)
    written = path.read_text()
    header, line, _ = written.splitlines()
    plain_header, plain_line = text_of(row(0)).splitlines()
    assert (header, line) == (f"{plain_header}\tevaluations", f"{plain_line}\t1210")
    frame = certificate_rows.read_rows(path)
    assert frame["evaluations"].tolist() == [1210, 1100]
    write_row_file(frame, path)
    assert path.read_text() == written


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:2,", "a:1", "1:2,1:3", "1:0", "-1:2", "1:2:3", "1_0:2", " 1:2", "+1:2", "٠:1"],
)
def test_damaged_counts_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        certificate_rows.parse_counts(text)


@pytest.mark.parametrize(
    ("pattern", "new", "message"),
    [
        ("idx", "index", "line 1: the columns must be"),
        ("el\n$", "", "line 3: must end with a newline"),
        (r"\Z", "\n", "line 4: there must be 14 fields, got 1"),
        ("\n1\t", "\nx\t", "line 3: idx cannot be 'x'"),
        ("0:900", "900", "line 2: counts cannot be"),
        # what Python alone would read as a number
        ("\n1\t0", "\n1_2\t0", "line 3: idx cannot be"),
        ("\t0.5\t", "\t0.2_5\t", "line 2: sigma cannot be"),
        ("\n(.|\n)*", "\n", "at least one row"),
        ("(.|\n)*", "", "the file is empty"),
        ("\n1\t", "\n0\t", "line 3: idx must be unique"),
        ("\n1\t", "\n-1\t", "line 3: idx must be at least 0"),
        ("\n1\t", f"\n{10**30}\t", "line 3: idx cannot be '1000000.*must fit into 64 bits"),
        ("\n1\t", f"\n{'9' * 5000}\t", r"line 3: idx cannot be '9{99}\.\.\.: Exceeds"),
        ("0.001\t0.5", "nan\t0.5", "line 2: alpha cannot be 'nan'"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_line(tmp_path, pattern, new, message):
    path = tmp_path / "rows.tsv"
    path.write_text(re.sub(pattern, new, text_of(row(0), row(1))))
    with refuses(message) as caught:
        certificate_rows.read_rows(path)
    assert str(path) in str(caught.value)


AT_RADII = {"mode": f"at-radius:0.0,0.25:{N}", "radius": 0.25, "p_lower": float(ndtr(0.25 / SIGMA))}
HALF = {
    "n": 18_000,
    "counts": [9_000, 9_000],
    "mode": "at-radius:1.0:20000",
    "radius": 1.0,
    "p_lower": float(ndtr(1.0 / SIGMA)),
}
NOTHING = {"predict": -1, "correct": 0, "radius": 0.0}
SLIGHTLY = float(lower_bound(900, N, ALPHA)) * (1 + 1e-8)
"""More than rounding, and less than what often counts as equal."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": 0}, "correct must be 1 iff"),
        ({"label": -2, "correct": 0}, "label must be known of all or none"),
        ({"radius": -0.1}, "radius must not be negative"),
        ({"predict": -1, "correct": 0}, "radius must be 0 where"),
        ({"mode": "at-radius:0.1,:5"}, "mode must be one of"),
        ({"mode": f"at-radius:0.1:{'9' * 19}"}, "mode must be one of"),  # more than 64 bits
        ({"scope": "local"}, "scope must be one of"),
        ({"alpha": 1.0}, "alpha must lie"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"counts": [N, 1]}, "counts must be n votes"),
        ({"counts0": [101]}, "counts0 must be n0 votes"),
        (
            {"counts0": [50, 50], "predict": 1, "label": 1, "correct": 1},
            "predict must be the class with the most votes of counts0",
        ),
        ({"counts": [899, 101]}, "p_lower must be the lower bound of the votes"),
        (
            {"p_lower": SLIGHTLY, "radius": float(radius(SLIGHTLY, SIGMA))},
            "p_lower must be the lower bound of the votes",
        ),
        (
            NOTHING | {"counts": [1, N - 1], "p_lower": 1.001e-6},
            "p_lower must be the lower bound of the votes",  # 1 - (1 - alpha)^(1/n) is 1.0005e-6
        ),
        (NOTHING, "predict must be the class iff p_lower is at least 1/2"),
        ({"sigma": SIGMA * (1 + 1e-6)}, "radius must be that of p_lower and sigma"),
        (SHORTCUT | {"label": 1, "radius": 0.1}, "a shortcut must have the radius 0"),
        (SHORTCUT | {"label": 1, "p_lower": 0.9}, "a shortcut must have the radius 0"),
        ({"n": 0, "counts": []}, "n must be 0 for a shortcut"),
        (SHORTCUT | {"correct": 1}, "a shortcut is for"),
        # stopped early
        (HALF, "p_lower must be .* probable by all n votes"),
        (
            AT_RADII | {"mode": f"at-radius:0.25:{N - 1}"},
            "n must be at most the number that ends the mode",
        ),
        (AT_RADII | NOTHING | {"n": 0, "counts": [], "p_lower": 0.0}, "n must be at least 1"),
        (AT_RADII | {"radius": 0.3}, "radius must be one of those of the mode"),
        (
            AT_RADII | {"p_lower": AT_RADII["p_lower"] * (1 + 1e-8)},
            r"p_lower must be Phi\(radius / sigma\)",
        ),
        (AT_RADII | {"counts": [0, N]}, r"p_lower must be at most alpha\^"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_by_line(tmp_path, change, message):
    path = tmp_path / "rows.tsv"
    path.write_text(text_of(row(0), row(1, **change)))
    with refuses(f"line 3: {message}"):
        certificate_rows.read_rows(path)


def early_row(run, sigma, p, seed):
    """The row of a run whose draws are for class 1 with probability ``p``, as ``certify_until``
    makes it.
    """
    rng, counts = np.random.default_rng(seed), np.zeros(2, dtype=np.int64)
    while draws := run.next_draws():
        successes = int(rng.binomial(draws, p))
        counts += (draws - successes, successes)
        run.update(successes, draws)
    p_lower, certified = run.certified()
    predict = ABSTAIN if certified is None else 1
    n, counts0 = int(counts.sum()), np.array([10, 90])
    made = Certificate(
        predict, certified or 0.0, p_lower, 100, n, run.alpha, sigma, counts0, counts, mode=run.mode
    )
    return made.row(0, 1)


@settings(deadline=None)
@given(
    st.floats(0.01, 1.5),
    st.sampled_from([0.12, 0.25, 1.0, 3.7]),
    st.floats(1e-9, 0.4),
    st.integers(1, 3000),
    st.sampled_from([1, 7, 100]),
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])),
    st.integers(0, 2**32 - 1),
)
def test_rows_of_every_run_that_stops_early_are_read(
    tmp_path_factory, at, sigma, alpha, budget, step, p, seed
):
    try:
        run = Decider([0.0, at, 2 * at], sigma, alpha, budget, step=step)
    except InputError:  # a question that so few draws cannot answer
        reject()
    made = early_row(run, sigma, p, seed)
    path = tmp_path_factory.getbasetemp() / "early.tsv"
    write_row_file([made], path)
    back = certificate_rows.read_rows(path)
    assert all(back[name][0] == made[name] for name in ("radius", "p_lower", "n", "mode"))


def test_each_row_that_stopped_early_is_checked_at_its_own_alpha_and_mode(tmp_path):
    """One vote establishes p = 1/2 at alpha = 1/2, but ten are needed at alpha = 2^-10: of ten that
    all agree, alpha^(1/10) = 1/2, which only certifies the radius 0.
    """
    path = tmp_path / "rows.tsv"
    certified = {"radius": 0.0, "p_lower": 0.5}
    some = row(0, n=1, counts=[1], alpha=0.5, mode="at-radius:0.0:1", **certified)
    more = row(1, n=10, counts=[10], alpha=2.0**-10, mode="at-radius:0.0,0.25:10", **certified)
    for rows in ([some, more], [more, some]):
        write_row_file(rows, path)
        back = certificate_rows.read_rows(path)
        assert back["mode"].tolist() == [one["mode"] for one in rows]
    write_row_file([some, more | {"radius": 0.25, "p_lower": AT_RADII["p_lower"]}], path)
    with refuses(r"line 3: p_lower must be at most alpha\^\(1 / k\)"):
        certificate_rows.read_rows(path)


@pytest.mark.parametrize("label", [-1, -3])
def test_a_label_below_0_that_does_not_say_unknown_is_refused(tmp_path, label):
    """An image of label -1 would be right where the classifier abstains."""
    made = row(votes=500, label=label, correct=int(label == ABSTAIN))
    path = tmp_path / "rows.tsv"
    write_row_file([made], path)
    with refuses(r"line 2: label must be a class, or -2 \(not known\)"):
        certificate_rows.read_rows(path)
    path.write_text(FIELD + f"0\t{label}\t-1\t0.0\t{made['correct']}\t1.0\n")
    with refuses(r"line 2: label must be a class, or -2 \(not known\)"):
        certificate_rows.read_field_log(path)


def test_an_alpha_below_which_bounds_cannot_be_computed_is_refused(tmp_path):
    write_row_file([row(alpha=1e-300)], tmp_path / "rows.tsv")
    with refuses(r"line 2: alpha must lie .*, at least 1e-200"):
        certificate_rows.read_rows(tmp_path / "rows.tsv")
    (tmp_path / "log.tsv").write_text(FIELD + "0\t3\t-1\t0.0\t0\t1.0\n")
    with refuses(r"log\.tsv must be .*: alpha: .* equal to 1e-200, got 1e-300"):
        certificate_rows.read_field_log(tmp_path / "log.tsv", sigma=0.5, n=100, alpha=1e-300)


FIELD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


LINE = "\t3\t3\t0.377\t1\t1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{FIELD}0\t3\t-1\t0.377\t0\t1.0\n", "line 2: radius must be 0"),
        (f"{FIELD}0{LINE}\n1{LINE}", "line 3: there must be 6 fields, got 1"),
        (f"{FIELD}\n", "at least one row"),
        (f"{FIELD}0{LINE}{FIELD}1{LINE}", "line 3: must be a row, got the header again"),
    ],
)
def test_a_damaged_field_log_is_refused_by_line(tmp_path, text, message):
    (tmp_path / "log.tsv").write_text(text)
    with refuses(message):
        certificate_rows.read_field_log(tmp_path / "log.tsv")


@pytest.mark.parametrize(
    ("encoding", "pattern", "new", "remedy"),
    [
        ("utf-16", "x^", "", "save it in UTF-8"),
        ("utf-8", "0\\.5", "0,5", "make the file again"),
        ("utf-8", "\tcertify", "", "make the file again"),
    ],
)
def test_a_table_in_another_form_is_refused_with_a_remedy(tmp_path, encoding, pattern, new, remedy):
    path = tmp_path / "rows.tsv"
    path.write_text(re.sub(pattern, new, text_of(row(0))), encoding=encoding)
    with refuses(f"rows.tsv.*; {remedy}$"):
        certificate_rows.read_any(path)


def test_exported_rows_hold_the_six_columns_and_every_digit(tmp_path):
    rows = pd.DataFrame([row(0, radius=1 / 3), row(1, label=1)])
    path = tmp_path / "log.tsv"
    certificate_rows.write_field_log(rows, path)
    lines = path.read_text().splitlines()
    assert lines[:2] == [FIELD.strip(), "0\t0\t0\t0.3333333333333333\t1\t0:00:00"]
    assert certificate_rows.read_any(path)["radius"].tolist() == rows["radius"].tolist()


@pytest.mark.parametrize("scope", ["noisy-input", "per-image"])
def test_an_export_warns_of_weights_chosen_per_image_which_a_log_cannot_state(
    tmp_path, capsys, scope
):
    write_row_file([row(scope=scope)], tmp_path / "rows.tsv")
    assert exit_code(export, tmp_path / "rows.tsv", "--out", tmp_path / "log.tsv") == 0
    warns = "the six-column format cannot record this" in capsys.readouterr().err
    assert warns == (scope == "per-image")


def test_rows_of_given_radii_have_no_export(tmp_path, capfd):
    write_row_file([row(**AT_RADII)], tmp_path / "rows.tsv")
    line = refusal(capfd, export, tmp_path / "rows.tsv", "--out", tmp_path / "log.tsv")
    assert "rows.tsv must hold radii" in line
    assert not (tmp_path / "log.tsv").exists()
