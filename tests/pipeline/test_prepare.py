import numpy as np
import pytest

from rs.data import images
from stages.prepare import main
from tests.support.helpers import exit_code, refusal

PARAMS = """
datasets:
  digits: {source: sklearn, test_share: 0.2, split_seed: 0}
  typo: {source: sklearn, test_shar: 0.2, split_seed: 0}
  mine: {source: parquet, root: nowhere}
"""


@pytest.fixture
def params(tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path / "params.yaml"


def test_digits_are_prepared_from_the_command_line(params, tmp_path, capsys):
    assert exit_code(main, "digits", "--out", tmp_path / "data" / "digits", "--params", params) == 0
    folder = tmp_path / "data" / "digits"
    assert capsys.readouterr().out.endswith(f"data set in {folder}\n")
    assert sorted(path.name for path in folder.iterdir()) == ["meta.json", "test.npz", "train.npz"]
    train, test = images.load_images(folder, "train"), images.load_images(folder, "test")
    assert len(train) + len(test) == 1797
    assert np.isclose(train.meta.mean[0], (train.images / 255).mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "datasets.nothing"),
        (["mine"], "nowhere must hold train.parquet"),
        (
            ["mine", "--source", "folder", "--root", "elsewhere"],
            "elsewhere must hold a folder train",
        ),
        (
            ["digits", "--source", "parquet"],
            "--root is missing",
        ),  # of another source the section's does not count
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_leaves_nothing(
    params, tmp_path, capfd, words, message
):
    assert message in refusal(capfd, main, *words, "--out", tmp_path / "set", "--params", params)
    assert list(tmp_path.iterdir()) == [params]
