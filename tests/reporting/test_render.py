import re
import shutil
import subprocess

import pandas as pd
import pytest

from rs.reporting import render

UGLY = render.Table(
    "tab:x", "50% of a_b & c", ["#", "σ"], [[render.Cell("m_1^2", True), render.Cell("a|b {~\\}")]], pd.DataFrame()
)


def test_latex_escapes_what_it_must_and_closes_what_it_opens():
    text = render.latex(UGLY)
    assert r"\caption{50\% of a\_b \& c}" in text
    assert r"\textbf{m\_1\textasciicircum{}2} & a$|$b \{\textasciitilde{}\textbackslash{}\} \\" in text
    opened = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if verb == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")


def test_what_latex_would_print_as_a_dash_stays_what_it_is():
    """In LaTeX's own encoding of fonts a bar prints as a long dash, and two hyphens do as a short one."""
    assert render.escape("a|b --out a-b a---b –") == "a$|$b -{}-out a-b a-{}-{}-b --"


def test_markdown_keeps_the_columns_and_marks_the_best():
    lines = render.markdown(UGLY).splitlines()
    assert lines[0] == "50% of a_b & c"
    assert re.fullmatch(r"\| \*\*m_1\^2\*\* +\| +a\\\|b \{~\\\} \|", lines[4])


def long_table(lines, columns):
    """As many lines and columns of a difference as asked."""
    body = [
        [render.Cell(f"advmacer x{k}"), *[render.Cell("+0.0001 ± 0.0002 [0.0003] tie")] * columns] for k in range(lines)
    ]
    notes = ["σ ≥ 0.5 × α: † a note of p₀ < 1 − α."]
    return render.Table("tab:long", "100 % of it", ["Method", *["to gaussian"] * columns], body, pd.DataFrame(), notes)


@pytest.mark.parametrize(("lines", "parts"), [(0, 1), (1, 1), (40, 1), (41, 2), (106, 3)])
def test_a_long_table_is_split_and_keeps_every_line_once(lines, parts):
    text = render.latex(long_table(lines, 2))
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == parts
    assert re.findall(r"advmacer x(\d+)", text) == [str(k) for k in range(lines)]
    assert text.count(r"\label{tab:long}") == text.count(r"100 \% of it") == 1
    assert text.count("(continued)") == text.count(r"\addtocounter{table}{-1}") == parts - 1
    assert text.count("a note of") == 1
    assert text.count(r"\toprule") == parts


def test_the_packages_that_a_table_needs_are_named_at_its_top():
    first = render.latex(UGLY).splitlines()[0]
    assert first.startswith("%")
    assert r"\usepackage{booktabs}" in first
    assert r"\usepackage{graphicx}" in first


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="no pdflatex here: apt-get install texlive-latex-recommended"
)
def test_latex_compiles_and_fits_its_page(tmp_path):
    tables = [render.latex(one) for one in (UGLY, long_table(3, 1), long_table(106, 6))]
    packages = re.findall(r"\\usepackage\{\w+\}", tables[0].splitlines()[0])
    head = [r"\documentclass[10pt,a4paper]{article}", *packages, r"\begin{document}"]
    (tmp_path / "all.tex").write_text("\n".join([*head, *tables, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "too large" not in done.stdout
