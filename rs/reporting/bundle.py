"""Bundles: rows, sidecars, parameters and tables of a study in one archive that anyone can check.

The checker, :mod:`rs.reporting.check`, needs nothing but Python's standard library.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from rs import params, recipes
from rs.errors import InputError
from rs.reporting import check
from rs.storage.files import read_bytes

REPRODUCE = "a bundle is of a whole study, so reproduce it first"


def make_bundle(root: Path, parameters: Path, dataset: str) -> tuple[bytes, list[str]]:
    """Return the bundle of a study, and what its checker says about it.

    The archive depends on the files alone; its compression also depends on the version of liblzma.

    Args:
        root: Folder with ``results/DATASET`` and ``reports/DATASET``.
        parameters: The parameters of the study.
        dataset: Name of the recipe.
    Raises:
        InputError: If there are no results of this name, a file is missing, or the study
            contradicts itself.
    """
    study = study_of(params.read_params(parameters), dataset)
    text = json.dumps(study, indent=1) + "\n"
    content = {check.PARAMETERS: parameters.read_bytes(), check.STUDY: text.encode()}
    for path in sorted(check.file_names(study) - content.keys()):
        content[path] = read_bytes(root / path, check.MAX_BYTES, REPRODUCE)
    bundle = lzma.compress(check.pack(content), check=lzma.CHECK_SHA256)
    return bundle, verify(bundle, "the study", REPRODUCE)


def verify(bundle: bytes, name: str, advice: str = "do not trust this bundle") -> list[str]:
    """Return what is proved of a bundle and what is not, in lines.

    The checker of this library runs. It trusts what the bundle's ``study.json`` says of the study;
    here that is compared with the bundle's parameters, which need a reader of YAML.

    Raises:
        InputError: If the bundle is damaged or contradicts itself.
    """
    try:
        with check.located(name):
            files = check.unpack(bundle)
            lines = check.check_files(files)
            _check_study(files)
    except check.BundleError as error:
        raise InputError(f"{error}; {advice}") from error
    return lines


def _check_study(files: dict[str, bytes]) -> None:
    """Refuse a ``study.json`` that does not follow from the parameters."""
    study = check.parse_object(files, check.STUDY)
    with check.located(check.PARAMETERS):
        values = params.parse(files[check.PARAMETERS].decode(), check.PARAMETERS)
        check.demand(isinstance(values, dict), "must hold a mapping of sections")
        expected = study_of(values, study["dataset"])
    must = f"{check.STUDY} must say what {check.PARAMETERS} says, but does not"
    check.demand(study == expected, must)


def study_of(values: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return the part of the parameters that the checker needs, as values of JSON."""
    # These modules load NumPy, which must not happen before the arithmetic is chosen.
    from rs.study import layout
    from rs.study.ensembles import declared_ensembles
    from rs.study.grid import cells
    from rs.study.subset import subset_name

    certify, _ = recipes.merge(values, f"recipes.{dataset}.certify", optional=True)
    protocol = {name: certify[name] for name in check.PROTOCOL}
    protocol["subset"] = subset_name(protocol["subset"])
    sigmas = params.section(values, "sigmas")
    entries: list[tuple[str, str | None, str, Path]] = []
    for cell in cells(values, dataset):
        if cell.sigma == sigmas[0]:
            rows = cell.rows(Path()).relative_to(str(cell.sigma))
            entries.append((cell.method, None, "model", rows))
    for ensemble in declared_ensembles(values):
        rows = layout.pool_rows(Path(), "", ensemble.slug)
        entries.append((ensemble.name, ensemble.key, ensemble.combination.scope, rows))
    classifiers = []
    for name, combination, scope, rows in entries:
        about = {"name": name, "combination": combination, "scope": scope}
        classifiers.append(about | {"rows": rows.with_suffix("").as_posix()})
    return {
        "dataset": dataset,
        "sigmas": list(map(str, sigmas)),
        "combination": params.section(values, "tables.combination"),
        "radii": params.section(values, "tables.radii"),
        "certify": protocol,
        "classifiers": classifiers,
    }
