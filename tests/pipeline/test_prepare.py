import pytest

from stages.prepare import main
from tests.support.helpers import refusal

PARAMS = """
datasets:
  digits: {source: sklearn, test_share: 0.2, split_seed: 0}
  mine: {source: parquet, root: nowhere}
"""


@pytest.fixture
def params(tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path / "params.yaml"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mine", "nowhere must hold train.parquet"),
        ("mine --source folder --root elsewhere", "elsewhere must hold a folder"),
        # of another source the section's does not count
        ("digits --source parquet", "--root is missing"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_leaves_nothing(
    params, tmp_path, capfd, words, message
):
    places = ("--out", tmp_path / "set", "--params", params)
    assert message in refusal(capfd, main, *words.split(), *places)
    assert list(tmp_path.iterdir()) == [params]
