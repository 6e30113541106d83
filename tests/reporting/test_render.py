import re

import pandas as pd

from rs.reporting import render

UGLY = render.Table(
    "tab:x", "50% of a_b & c", ["#", "σ"], [[render.Cell("m_1^2", True), render.Cell("a|b {~\\}")]], pd.DataFrame()
)


def test_latex_escapes_what_it_must_and_closes_what_it_opens():
    text = render.latex(UGLY)
    assert r"\caption{50\% of a\_b \& c}" in text
    assert r"\textbf{m\_1\textasciicircum{}2} & a|b \{\textasciitilde{}\textbackslash{}\} \\" in text
    opened = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if verb == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")


def test_markdown_keeps_the_columns_and_marks_the_best():
    lines = render.markdown(UGLY).splitlines()
    assert lines[0] == "50% of a_b & c"
    assert re.fullmatch(r"\| \*\*m_1\^2\*\* +\| +a\\\|b \{~\\\} \|", lines[4])
