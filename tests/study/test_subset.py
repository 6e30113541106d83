import pytest

from rs.study.subset import is_subset, select, share_of, subset_name
from tests.support.helpers import refuses


@pytest.mark.parametrize(
    ("subset", "indices"),
    [
        ("all", range(12)),
        ({"first": 12}, range(12)),
        ({"stride": 5}, range(0, 12, 5)),
        ({"range": [3, 9]}, range(3, 9)),
    ],
)
@pytest.mark.parametrize("share", ["1/1", "1/3", "3/3"])
def test_each_form_picks_the_images_its_name_says_and_no_others(subset, indices, share):
    name = subset_name(subset)
    assert select(12, subset).tolist() == list(indices)
    assert is_subset(indices, name)
    assert not is_subset([*indices[:-2], indices[-1]], name)
    images = share_of(indices, share)
    assert is_subset(images, name, 12, share)
    assert not is_subset([*images, 12], name, 12, share)
    assert len(images) == 1 or not is_subset(images[:-1], name, 12, share)
    assert not is_subset(images, name, max(images), share)
    assert not is_subset(images, name, 12, "2/3")


@pytest.mark.parametrize(
    "name",
    [
        "some",
        "first",
        "first-x",
        "first-0",
        "all-3",
        "range-3",
        "stride-1-2",
        "first-" + "9" * 19,
        "first-" + "9" * 50,
    ],
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
        "first",
    ],
)
def test_a_subset_that_is_no_subset_of_ten_images_is_refused_in_one_line(subset):
    with refuses():
        select(10, subset)
