"""Bundles: a study's rows, protocol, tables and claims in one archive that anybody can check.

A bundle brings its checker, :mod:`rs.reporting.check`, which depends on Python's standard library alone.
"""

from __future__ import annotations

import json
import lzma
import re
from itertools import product
from pathlib import Path
from typing import Any

from rs import params
from rs.errors import InputError
from rs.reporting import check
from rs.storage.files import read_bytes

REPRODUCE = "a bundle is of a whole study, so reproduce it first"
DIFFERENT = "Certified differently: {provenance}."
"""Note of ``rs.reporting.tables.notes.provenance_notes``."""


def make_bundle(root: Path, parameters: Path, dataset: str) -> tuple[bytes, list[str]]:
    """Return the bundle of a study, and what its checker says of it.

    The archive depends on the files alone; how xz compresses it, on the version of liblzma too.

    Args:
        root: Folder with ``results/DATASET`` and ``reports/DATASET``.
        parameters: The parameters of the study.
        dataset: Name of the recipe.
    Raises:
        InputError: If there are no results of this name, a file is missing, or the study contradicts itself.
    """
    study = study_of(params.read_params(parameters), dataset)
    content = {check.CHECKER: Path(check.__file__).read_bytes(), check.PARAMETERS: parameters.read_bytes()}
    content[check.STUDY] = (json.dumps(study, indent=1) + "\n").encode()
    for path in sorted(check.file_names(study) - content.keys() - {check.MANIFEST}):
        content[path] = read_bytes(root / path, check.MAX_BYTES, REPRODUCE)
    bundle = lzma.compress(check.pack(content), check=lzma.CHECK_SHA256)
    return bundle, verify(bundle, "the study")


def verify(bundle: bytes, name: str) -> list[str]:
    """Return what the checker derives of a bundle, in lines.

    It runs as this library has it, not as the bundle brings it; and the protocol that it reads must be that of the
    parameters in the bundle, which need a reader of YAML.

    Raises:
        InputError: If the bundle is damaged or contradicts itself.
    """
    try:
        lines = check.check_bundle(bundle)
        content = check.unpack(bundle)
        values = params.parse(content[check.PARAMETERS].decode(), check.PARAMETERS)
        check.demand(isinstance(values, dict), f"{check.PARAMETERS} must hold a mapping of sections")
        study = check.parse_strict_json(content, check.STUDY)
        same = study_of(values, study["dataset"]) == study
        check.demand(same, f"{check.STUDY} must say what {check.PARAMETERS} says, but does not")
        _check_members(study, content)
        _check_prose(study, content[f"reports/{study['dataset']}/claims.md"].decode())
    except (check.BundleError, *check.FAULTS) as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} must be a bundle that agrees with itself, but: {reason}; do not believe it"
        ) from error
    return lines


def _check_prose(study: dict[str, Any], page: str) -> None:
    """Refuse a paragraph above the claims that no report has."""
    from rs.reporting import claims  # pandas, which takes half a second

    texts = [*claims.HEAD.split("\n\n"), claims.ATTACKED, claims.ROUNDED, claims.ADDED, claims.STARTED, DIFFERENT]
    forms = [re.sub(r"\\{\w+\\}", r"[^\n<|]+", re.escape(text.strip())) for text in texts]
    forms += [re.escape(remark.strip()) for remark in study["remarks"]]
    paragraphs = [text.strip() for text in page[: page.index("## What there is")].strip().split("\n\n")]
    all_known = all(any(re.fullmatch(form, text) for form in forms) for text in paragraphs)
    once = len({*paragraphs}) == len(paragraphs)
    check.demand(all_known and once, "claims.md must have the paragraphs of a report above its claims, each once")


def _check_members(study: dict[str, Any], content: dict[str, bytes]) -> None:
    """Refuse rows of ensembles whose sidecars name other models than those that the sidecars of single models do."""
    models = {}
    for sigma, classifier in product(study["sigmas"], study["classifiers"]):
        path = f"{check.rows_path(study, sigma, classifier)}.json"
        side = check.parse_strict_json(content, path)
        for method, seed in classifier["members"] if classifier["key"] is None else ():
            models[sigma, method, seed] = {"method": method, "seed": seed, "classifier": side["classifier"]}
        members = [models[sigma, method, seed] for method, seed in classifier["members"]]
        same = all(member in members for member in side.get("members", ()))
        check.demand(same, f"{path} must be of the members that {check.STUDY} says, with their sidecars")


def study_of(values: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return what the checker must know of the parameters, in plain JSON."""
    from rs.study.ensembles import declared  # NumPy, which must not be loaded before the arithmetic is chosen
    from rs.study.grid import cells
    from rs.study.subset import subset_name

    certify = params.merge(values, *params.layers(f"recipes.{dataset}.certify"), optional=True)[0]
    protocol = {name: certify[name] for name in check.ALIKE if name in certify}
    if "subset" in protocol:
        protocol["subset"] = subset_name(protocol["subset"])
    model = params.merge(values, *params.layers(f"recipes.{dataset}.model"), optional=True)[0]
    classifiers = {
        (cell.method, cell.seed): _classifier(
            cell.method, None, "model", [(cell.method, cell.seed)], cell.is_member_seed
        )
        for cell in cells(values, dataset)
    }
    ensembles = [_classifier(e.name, e.key, e.combination.scope, e.members, True) for e in declared(values)]
    return {
        "dataset": dataset,
        "sigmas": [str(sigma) for sigma in params.section(values, "sigmas")],
        **{name: params.section(values, f"tables.{name}") for name in ("combination", "radii", "reference", "remarks")},
        "network": model.get("architecture"),
        "certify": protocol,
        "classifiers": [*classifiers.values(), *ensembles],
    }


def _classifier(name: str, key: str | None, scope: str, members: Any, pool: bool) -> dict[str, Any]:
    folder = "pool/" if pool else ""
    return {"name": name, "key": key, "scope": scope, "members": [list(member) for member in members], "folder": folder}
