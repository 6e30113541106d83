import pytest

from rs.study.subset import is_subset, select, share_of, subset_name
from tests.support.helpers import refuses


@pytest.mark.parametrize(
    ("subset", "indices"),
    [
        ("all", range(10000)),
        ({"first": 500}, range(500)),
        ({"stride": 20}, range(0, 10000, 20)),
        ({"range": [500, 1000]}, range(500, 1000)),
    ],
)
def test_each_form_picks_the_images_its_name_says(subset, indices):
    assert select(10000, subset).tolist() == list(indices)
    assert is_subset(indices, subset_name(subset))
    assert not is_subset([*indices[:-2], indices[-1]], subset_name(subset))


@pytest.mark.parametrize("subset", ["all", {"first": 12}, {"stride": 5}, {"range": [3, 9]}])
@pytest.mark.parametrize("share", ["1/1", "1/3", "3/3"])
def test_of_a_split_of_known_size_only_its_own_images_are_the_subset(subset, share):
    name, indices = subset_name(subset), share_of(select(12, subset), share).tolist()
    assert is_subset(indices, name, 12, share)
    assert not is_subset([*indices, 12], name, 12, share)
    assert len(indices) == 1 or not is_subset(indices[:-1], name, 12, share)
    assert not is_subset(indices, name, max(indices), share)
    assert is_subset(indices, name, 12, "2/3") is False


@pytest.mark.parametrize(
    "name",
    ["some", "first", "first-x", "first-0", "all-3", "range-3", "stride-1-2", "first-" + "9" * 50],
)
def test_what_is_no_name_of_a_subset_names_no_images(name):
    assert not is_subset([0, 1, 2], name)


@pytest.mark.parametrize(
    "subset",
    [
        {"first": 11},
        {"stride": 0},
        {"range": [5, 5]},
        {"range": [-1, 5]},
        {"last": 5},
        {"first": 5, "stride": 2},
        {},
        "first",
    ],
)
def test_a_subset_that_is_no_subset_of_ten_images_is_refused_in_one_line(subset):
    with refuses():
        select(10, subset)
