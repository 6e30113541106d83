from pathlib import Path

import pytest

from rs import sources
from rs.errors import InputError


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cifar10", {"sourc": "torchvision"}, "datasets.cifar10.source must be one of sklearn, torchvision"),
        ("cifar10", {"source": "http"}, "got 'http'"),
        ("cifar10", {"source": ["folder"]}, "must be one of"),
        ("cifar10", [1], "must be a mapping"),
        ("cifar10", {"source": "torchvision", "rot": "x"}, "datasets.cifar10.rot"),
        ("cifar10", {"source": "torchvision", "download": "yes"}, "datasets.cifar10.download"),
        ("mine", {"source": "parquet"}, "datasets.mine.root"),
        ("mine", {"source": "torchvision"}, "one of cifar10, cifar100, svhn, got 'mine'"),
        ("mine", {"source": "sklearn", "test_share": 0.2, "split_seed": 0}, "digits alone"),
        ("digits", {"source": "sklearn", "test_share": 1.0, "split_seed": 0}, "datasets.digits.test_share"),
        ("digits", {"source": "sklearn", "test_share": 0.2, "split_seed": -1}, "datasets.digits.split_seed"),
        ("digits", {"source": "sklearn", "test_share": 0.2, "split_seed": 0, "mean": [0.5]}, "both mean and std"),
        ("mine", {"source": "parquet", "root": "nowhere"}, "nowhere must hold train.parquet"),
        ("mine", {"source": "folder", "root": "nowhere"}, "nowhere must hold a folder train"),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_key(tmp_path, name, values, message):
    with pytest.raises(InputError, match=message) as caught:
        sources.settings(values, f"datasets.{name}").prepare(name, tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_another_source_replaces_the_section_but_for_its_constants():
    section = {"source": "torchvision", "root": "a", "download": False, "mean": [0.5], "std": [0.2]}
    other = sources.settings(section, "datasets.x", source="parquet", root=Path("b"))
    assert other == sources.Parquet(source="parquet", root="b", mean=[0.5], std=[0.2])
    same = sources.settings(section, "datasets.x", source="torchvision", root=Path("b"))
    assert same == sources.Torchvision(source="torchvision", root="b", download=False, mean=[0.5], std=[0.2])
