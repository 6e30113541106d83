import pytest

from stages.prepare import main
from tests.support.helpers import refusal

PARAMS = """
datasets:
  mine: {source: parquet, root: nowhere}
"""


@pytest.fixture
def params(tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path / "params.yaml"


def test_a_mistake_is_one_line_and_exit_code_2_and_leaves_nothing(params, tmp_path, capfd):
    options = ("--source", "folder", "--root", "elsewhere")
    places = ("--out", tmp_path / "set", "--params", params)
    assert "elsewhere must hold a folder" in refusal(capfd, main, "mine", *options, *places)
    assert list(tmp_path.iterdir()) == [params]
