import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_project import environment, run

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)\s*=\s*["']?(?:https?:)?//""", re.IGNORECASE)


@pytest.mark.slow
def test_dvc_plots_show_makes_a_page_that_needs_no_network(tmp_path):
    run(tmp_path, "git", "init", "-q")
    run(tmp_path, "dvc", "init", "-q")
    (tmp_path / "curves.csv").write_text("sigma,method,members,radius,accuracy\n0.5,macer,1,0,0.9\n0.5,macer,1,1,0.1\n")
    template = (ROOT / ".dvc/plots/certified.json").read_text()
    (tmp_path / ".dvc/plots").mkdir(exist_ok=True)
    (tmp_path / ".dvc/plots/certified.json").write_text(template)
    plot = "{template: certified, x: {curves.csv: radius}, y: {curves.csv: accuracy}}"
    (tmp_path / "dvc.yaml").write_text(f"plots:\n  - certified-accuracy: {plot}\n")
    command = [sys.executable, "-m", "rs.reporting.page"]
    subprocess.run(command, cwd=tmp_path, env=environment() | {"PYTHONPATH": str(ROOT)}, check=True)
    run(tmp_path, "dvc", "plots", "show")
    page = (tmp_path / "dvc_plots/index.html").read_text()
    assert not FOREIGN.search(page)
    assert "University of Washington Interactive Data Lab" in page  # the scripts bring their licences
    assert "vegaEmbed('#" in page
    assert '"macer"' in page
