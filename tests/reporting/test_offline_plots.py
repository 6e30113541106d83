import re
import subprocess
import sys
from pathlib import Path

import pytest

from rs.reporting import page as study_pages
from tests.support.small_project import environment, run

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)\s*=\s*["']?(?:https?:)?//""", re.IGNORECASE)


def test_the_page_holds_its_scripts_and_their_licences():
    page = study_pages.plots_page()
    assert not FOREIGN.search(page)
    assert "{scripts}" not in page
    assert page.count("</script>") == page.count("<script") == 2
    assert "University of Washington Interactive Data Lab" in page
    assert "window.vegaEmbed=" in page


def test_dvc_on_its_own_names_scripts_of_another_machine():
    """So the test above would fail on DVC's page."""
    from dvc_render.vega import VegaRenderer

    assert FOREIGN.search(VegaRenderer.SCRIPTS)


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
    assert "vegaEmbed('#" in page
    assert '"macer"' in page
