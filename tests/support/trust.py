"""``make trust``: which tests of ``make test`` belong to it too, and the table of what was tried.

Tests that attack are marked ``@pytest.mark.trust_only("family")`` and run in ``make trust`` alone.
Without a family they count under the name of their module. The tests of :data:`FAMILIES` get the
marker ``trust`` and run in both. A test counts as one case, or as the number that it gives with
``record_property("tried", number)``.
"""

import re
from collections import Counter

FAMILIES = {
    "rows that contradict themselves": (
        "storage/test_certificate_rows.py::test_a_row_that_contradicts_itself",
        "storage/test_certificate_rows.py::test_a_damaged_file_is_refused",
        "storage/test_certificate_rows.py::test_damaged_counts",
        "reporting/test_load.py::test_a_sidecar_of_other_rows",
        "reporting/test_load.py::test_rows_and_sidecar_of_another_model",
        "reporting/test_load.py::test_rows_of_another",
    ),
    "models that are not one function": ("smoothing/test_determinism.py::",),
    "weights that are not numbers": (
        "models/test_checkpoint.py::test_weights",
        "models/test_checkpoint.py::test_numbers_of_another_kind",
        "smoothing/test_classifier.py::test_a_single_nan",
        "ensemble/test_rules.py::test_no_rule_hides",
    ),
    "files that execute": ("models/test_checkpoint.py::test_no_pickle",),
    "cards and ensembles of the wrong kind": (
        "models/test_checkpoint.py::test_a_card",
        "models/test_checkpoint.py::test_the_values_of_a_card",
        "ensemble/test_spec.py::test_keys_that_are",
        "ensemble/test_spec.py::test_parts_that_do_not_fit",
        "ensemble/test_spec.py::test_a_member_that",
        "ensemble/test_spec.py::test_members_that_disagree",
    ),
    "data that is damaged": (
        "data/test_images.py::test_a_damaged_data_set",
        "data/test_images.py::test_a_bad_split",
        "data/test_parquet.py::test_bad_rows",
        "data/test_parquet.py::test_a_bad_folder",
        "data/test_readers.py::test_a_bad_folder",
        "data/test_readers.py::test_a_file_with_another_checksum",
    ),
    "forged bundles": (
        "reporting/test_check.py::test_a_forged",
        "reporting/test_check.py::test_a_last_image",
        "reporting/test_check.py::test_a_missing",
        "reporting/test_check.py::test_a_name_twice",
        "reporting/test_check.py::test_a_number_with_other",
        "reporting/test_check.py::test_a_training_under_two",
        "reporting/test_check.py::test_an_archive",
        "reporting/test_check.py::test_an_image_with_two",
        "reporting/test_check.py::test_another_file",
        "reporting/test_check.py::test_the_library_compares",
        "reporting/test_check.py::test_the_manifest",
        "reporting/test_check.py::test_the_same_training",
    ),
    "paths and overwriting": ("pipeline/test_overwriting.py::",),
    "words that are mistyped": ("command_line/test_main.py::test_a_mistyped_word",),
    "kills and interruptions": (
        "command_line/test_shell.py::test_a_certification_that_is_interrupted",
        "command_line/test_shell.py::test_a_training_that_is_interrupted",
        "runtime/test_scratch.py::test_another_process",
        "storage/test_files.py::test_a_failure",
        "training/test_trainer.py::test_an_interrupted",
    ),
    "false certificates, constructed": (
        "smoothing/test_noise.py::test_rounding",
        "smoothing/test_classifier.py::test_a_certificate_reaches",
        "ensemble/test_rules.py::test_a_polytope_that_holds",
        "ensemble/test_rules.py::test_weights_clipped",
    ),
    "false certificates, by attack": ("benchmarks/test_falsify.py::",),
}
"""Tests of `make test` that are of a family, by the beginning of their names."""

HEADINGS = ("family", "tried", "held or refused clearly", "broken")


def family_of(node, marked=()):
    """The family of a test by its node id: that of its marker, or of :data:`FAMILIES`; else
    ``None``.
    """
    name = node.removeprefix("tests/")
    listed = (family for family, tests in FAMILIES.items() if name.startswith(tests))
    return next(iter(marked), None) or next(listed, None)


def module_of(node):
    """What a test is about that says no family: the name of its module."""
    return re.sub(r"^.*test_(\w+)\.py::.*$", r"\1", node).replace("_", " ")


def table(cases):
    """The lines of the table, of cases (family, number tried, whether the test passed)."""
    tried, broken = Counter(), Counter()
    for family, number, passed in cases:
        tried[family] += number
        broken[family] += not passed
    rows = [(name, tried[name], max(tried[name] - broken[name], 0), broken[name]) for name in tried]
    rows.append(("all", *(sum(row[column] for row in rows) for column in (1, 2, 3))))
    return [
        f"| {' | '.join(HEADINGS)} |",
        "|---|---:|---:|---:|",
        *(
            f"| {' | '.join(format(cell, ',') if isinstance(cell, int) else cell for cell in row)} "
            "|"
            for row in rows
        ),
    ]
