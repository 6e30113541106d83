import copy
import math
from functools import partial

import pytest

from rs import params, recipes
from rs.params import Count, NonNegative, Positive, validated
from tests.support.helpers import refuses


@validated
class Settings:
    draws: Count
    lam: NonNegative
    flag: bool


def message(call, *given):
    """What an InputError says, which is one line."""
    with refuses() as caught:
        call(*given)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path):
    said = message(params.read_params, tmp_path / "absent.yaml")
    assert str(tmp_path / "absent.yaml") in said
    assert "run from the project's folder" in said
    assert str(tmp_path) in message(params.read_params, tmp_path)  # a folder


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must hold a mapping of sections, got NoneType; write"),
        (b"\xff\xfe\x00", "must be text in UTF-8"),
        (b"a: 1\n" + b"#" * 2**20, "must have at most 1,048,576 bytes, got 1,048,581"),
    ],
    ids=["empty", "no text", "too large"],
)
def test_a_file_without_parameters_is_refused(tmp_path, content, said):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    assert f"{path} {said}" in message(params.read_params, path)


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2", "a: *b", "!!python/name:os.system {}"])
def test_text_that_is_not_yaml_is_refused_in_one_line_that_names_its_source(tmp_path, text):
    assert message(params.parse, text, "--subset").startswith("--subset must be YAML, but: ")
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert message(params.read_params, path).startswith(f"{path} must be YAML, but: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]", "it has an alias (*name)"),
        ("a: " + "[" * 10**4 + "]" * 10**4, "maximum depth"),
        ("a: " + "9" * 10**4, "integer string conversion"),
        ("a: 2024-13-45", "month must be in 1..12"),
    ],
    ids=["holds itself", "deep", "long number", "date"],
)
def test_text_that_would_grow_without_bound_is_refused_before_it_is_built(text, said):
    assert said in message(params.parse, text, "--subset")


@pytest.mark.parametrize("path", ["a/" + "\u00e9" * 128 + "/b", "a/" * 1501, "a\0b", "\ud800"])
def test_a_path_that_no_file_can_have_is_refused_before_it_is_looked_for(path):
    said = message(params.validate, params.FilePath, path, "datasets.tiny.root")
    assert said.startswith("params.yaml: datasets.tiny.root: ")


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("0o17", 15), ("017", 17), ("yes", "yes")]
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    parsed = params.parse(text, "here")
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_missing_section_is_named_with_its_dotted_key_and_the_known_ones():
    tree = {"recipes": {"digits": {"macer": {}, "gaussian": {}}}}
    must = "params.yaml must have the key "
    said = message(params.section, tree, "recipes.digits.advmacer")
    assert f"{must}recipes.digits.advmacer; known here: macer, gaussian; add it" in said
    said = message(recipes.load_section, LAYERED, "recipes.huge.certify", Certify)
    assert f"{must}recipes.huge; known here: cifar10, digits, " in said


LAYERED = {
    "defaults": {
        "macer": {
            "draws": 16,
            "lam": {0.25: 12.0, 0.5: 4.0},
            "training": {"epochs": 440, "batch": 64},
        },
        "training": {"epochs": 150, "batch": 256, "decay": 0.1, "flip": True},
        "certify": {"n": 1000, "subset": {"first": 500}},
        "arithmetic": "native",
    },
    "recipes": {
        "cifar10": {},
        "digits": {
            "macer": {"lam": {0.5: 1.0}, "training": {"batch": 8}},
            "training": {"epochs": 12, "flip": {0.25: True, 0.5: False}},
            "certify": {"subset": {"stride": 2}},
            "arithmetic": "portable",
        },
        "empty": {"macer": None, "training": None},
        "second": {"base": "digits", "training": {"epochs": 2}},
        "third": {"base": "second", "macer": {"lam": {0.25: 3.0}}},
    },
}


def test_a_recipe_has_the_defaults_that_it_does_not_change():
    at_half = {"draws": 16, "lam": 4.0, "training": {"epochs": 440, "batch": 64}}
    for dataset in ("cifar10", "empty"):
        assert recipes.merge(LAYERED, f"recipes.{dataset}.macer", sigma=0.5)[0] == at_half
    merged, origins = recipes.merge(LAYERED, "recipes.digits.macer", sigma=0.5)
    assert merged == {"draws": 16, "lam": 1.0, "training": {"batch": 8}}
    assert origins["draws"] == "defaults.macer"
    assert origins["lam"] == "recipes.digits.macer"


def test_a_mapping_replaces_the_one_of_the_defaults_unless_both_are_from_noise_levels():
    certify, _ = recipes.merge(LAYERED, "recipes.digits.certify")
    assert certify["subset"] == {"stride": 2}
    at_sigma = partial(recipes.merge, LAYERED, "recipes.digits.macer")
    assert at_sigma(sigma=0.25)[0]["lam"] == 12.0
    assert at_sigma(sigma=0.5)[0]["lam"] == 1.0
    assert at_sigma()[0]["lam"] == {0.25: 12.0, 0.5: 1.0}
    said = message(partial(at_sigma, sigma=1.0))
    assert said == (
        "params.yaml: recipes.digits.macer.lam must have a value for sigma 1.0; it has 0.25, 0.5"
    )


def test_the_nearest_noise_level_is_that_of_the_merged_values():
    """The defaults have 0.25, so the recipe's own 0.5 is not the nearest level to 0.3."""
    at_sigma = partial(recipes.merge, LAYERED, "recipes.digits.macer", nearest=True)
    assert at_sigma(sigma=0.3)[0]["lam"] == 12.0
    assert at_sigma(sigma=0.4)[0]["lam"] == 1.0


@pytest.mark.parametrize("level", [0, -0.5, math.inf, math.nan])
def test_a_noise_level_that_is_not_positive_is_refused(level):
    with refuses(r"recipes\.mine\.lam must have positive, finite noise levels"):
        recipes.for_sigma({level: 1.0, 0.5: 2.0}, 0.001, "recipes.mine.lam", nearest=True)


def test_a_recipe_inherits_from_its_base_as_from_the_defaults():
    macer, origins = recipes.merge(LAYERED, "recipes.third.macer", sigma=0.5)
    assert macer == {"draws": 16, "lam": 1.0, "training": {"batch": 8}}
    assert origins["lam"] == "recipes.third.macer"
    assert recipes.merge(LAYERED, "recipes.third.macer")[0]["lam"] == {0.25: 3.0, 0.5: 1.0}
    training, origins = recipes.merge(LAYERED, "recipes.third.macer.training", sigma=0.25)
    assert training == {"epochs": 2, "batch": 8, "decay": 0.1, "flip": True}
    assert origins["batch"] == "recipes.digits.macer.training"
    assert recipes.load_section(LAYERED, "recipes.third.arithmetic", str) == "portable"


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("thrid", "recipes.digits.base must be a recipe, one of cifar10, "),
        ("third", "recipes.third.base must not lead back to a recipe that is based on it"),
        (3, "recipes.digits.base: Input should be a valid string, got 3"),
    ],
)
def test_a_base_that_is_unknown_or_leads_back_is_refused(base, said):
    values = copy.deepcopy(LAYERED)
    values["recipes"]["digits"]["base"] = base
    assert said in message(recipes.merge, values, "recipes.second.macer")


@pytest.mark.parametrize("defaults", [{}, {"defaults": {"certify": {}, "macer": {}}}])
@pytest.mark.parametrize("key", ["certfy", "Certify", "MACER", 1])
def test_a_section_of_a_recipe_that_nothing_reads_is_refused(defaults, key):
    values = defaults | {"recipes": {"mine": {"certify": {}, key: {"n": 5}}}}
    said = message(recipes.over_packaged, values)
    assert "params.yaml: a key of recipes.mine must be one of base, " in said
    assert f"got {key!r}" in said
    del values["recipes"]["mine"][key]
    assert recipes.over_packaged(values)["recipes"]["mine"] == {"certify": {}}


def test_a_training_inside_a_noise_level_is_refused():
    levels = {0.25: {"lam": 1.0, "training": {"epochs": 2}}, 0.5: {"lam": 2.0}}
    values = {"recipes": {"tiny": {"model": {}, "macer": levels, "training": {"epochs": 1}}}}
    assert recipes.merge_recipe(values, "tiny", "macer", 0.5)["macer"][0] == {"lam": 2.0}
    with refuses(r"inside a noise level of macer; give recipes\.tiny\.macer\.training"):
        recipes.merge_recipe(values, "tiny", "macer", 0.25)


def test_a_recipes_trainings_come_before_the_defaults_of_a_method_and_after_its_own_of_it():
    merged, origins = recipes.merge(LAYERED, "recipes.digits.macer.training", sigma=0.5)
    assert merged == {"epochs": 12, "batch": 8, "decay": 0.1, "flip": False}
    assert origins["epochs"] == "recipes.digits.training"
    assert origins["batch"] == "recipes.digits.macer.training"
    merged, _ = recipes.merge(LAYERED, "recipes.cifar10.macer.training")
    assert merged == {"epochs": 440, "batch": 64, "decay": 0.1, "flip": True}


@validated
class Certify:
    n: Count
    subset: dict[str, int]


def test_a_section_is_loaded_as_its_class_or_plain_type():
    section = recipes.load_section(LAYERED, "recipes.digits.certify", Certify)
    assert section == Certify(n=1000, subset={"stride": 2})
    for dataset, arithmetic in (("digits", "portable"), ("cifar10", "native")):
        assert recipes.load_section(LAYERED, f"recipes.{dataset}.arithmetic", str) == arithmetic
    sigmas = recipes.load_section({"sigmas": [1, 0.5]}, "sigmas", list[Positive])
    assert [repr(sigma) for sigma in sigmas] == ["1.0", "0.5"]


def test_a_fault_is_named_where_it_stands():
    values = {
        "defaults": {"certify": {"n": 0}, "seed": "0"},
        "recipes": {"digits": {"certify": {"m": 1}}},
    }
    said = message(recipes.load_section, values, "recipes.digits.certify", Certify)
    assert "defaults.certify.n: " in said
    assert "recipes.digits.certify.subset is missing" in said
    assert "recipes.digits.certify.m is not a known key" in said
    said = message(recipes.load_section, values, "recipes.digits.seed", int)
    assert said == "params.yaml: defaults.seed: Input should be a valid integer, got '0'"


def test_a_section_that_is_nowhere_is_named_with_every_place_it_can_have():
    key = "recipes.digits.stop"
    expected = (
        "params.yaml must have the key defaults.stop or recipes.digits.stop; "
        "known in recipes.digits: macer, training, certify, arithmetic"
    )
    assert message(recipes.merge, LAYERED, key) == expected
    assert message(recipes.load_section, LAYERED, key, Certify) == expected
    assert recipes.merge(LAYERED, key, optional=True) == ({}, {})


@pytest.mark.parametrize("section", [[1], 3])
def test_a_section_that_is_no_mapping_is_refused(section):
    values = {"defaults": {"certify": {"n": 1}}, "recipes": {"digits": {"certify": section}}}
    said = message(recipes.load_section, values, "recipes.digits.certify", Certify)
    assert said.startswith("params.yaml: recipes.digits.certify: ")
    assert said.endswith(f"got {section!r}")


@pytest.mark.parametrize(
    ("key", "wrong"), [("draws", 0), ("lam", math.nan), ("lam", {0.25: 1.0}), ("flag", 1)]
)
def test_a_wrong_value_is_refused_with_its_key_and_what_came(key, wrong):
    values = {"draws": 1, "lam": 0.0, "flag": True, key: wrong}
    said = message(params.validate, Settings, values, "where")
    assert said.startswith(f"params.yaml: where.{key}")
    assert said.endswith(f", got {wrong!r}")


@pytest.mark.parametrize("values", [None, "text", [1, 2], {1: 2}])
def test_values_that_are_not_named_are_refused(values):
    said = message(params.validate, Settings, values, "macer")
    assert f"params.yaml: macer must be a mapping of named values, got {values!r}; write" in said


def test_values_per_noise_level_are_replaced_at_any_depth():
    values = {"draws": 4, "deep": {"lam": {0.25: 12.0, 1: 4.0}}}
    assert recipes.for_sigma(values, 1.0, "w") == {"draws": 4, "deep": {"lam": 4.0}}


def test_a_recipe_may_be_of_a_data_set_of_another_name():
    values = {"datasets": {"cifar10-cpu": {"dataset": "cifar10"}, "other": {"dataset": ["a"]}}}
    assert recipes.base_dataset(values, "cifar10-cpu") == "cifar10"
    assert recipes.base_dataset(values, "tiny") == "tiny"
    with refuses(r"datasets\.other\.dataset: Input should be a valid string, got \['a'\]"):
        recipes.base_dataset(values, "other")
