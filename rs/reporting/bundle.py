"""Bundles: a study's rows, protocol, tables and claims in one archive that anybody can check.

A bundle brings its checker, :mod:`rs.reporting.check`, which depends on Python's standard library alone.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rs import params
from rs.errors import InputError, nearest
from rs.reporting import check

CHECKER, PARAMETERS = "check.py", "params.yaml"
"""Names of the checker and of the parameters in a bundle."""


def make_bundle(root: Path, parameters: Path, dataset: str) -> tuple[bytes, list[str]]:
    """Return the bundle of a study, and what its checker says of it.

    The archive depends on the files alone; how xz compresses it, on the version of liblzma too.

    Args:
        root: Folder with ``results/DATASET`` and ``reports/DATASET``, and the models and ensembles where the sidecars
            of the rows say, whose cards come along if they are there.
        parameters: The parameters of the study.
        dataset: Name of the recipe.
    Raises:
        InputError: If there are no results of this name, a file is missing, or the study contradicts itself.
    """
    _check_results(root / "results", dataset)
    study = study_of(params.read(parameters), dataset)
    content = {CHECKER: Path(check.__file__).read_bytes(), PARAMETERS: parameters.read_bytes()}
    content[check.STUDY] = (json.dumps(study, indent=1) + "\n").encode()
    for path in [*_rows(study), *_tables(root, dataset)]:
        content[path] = _bytes(root / path)
    for path in _cards(content):
        if (root / path).is_file():
            content[path] = _bytes(root / path)
    bundle = lzma.compress(check.pack(content), check=lzma.CHECK_SHA256)
    return bundle, verify(bundle, "the study")


def _check_results(folder: Path, dataset: str) -> None:
    known = sorted(path.name for path in folder.glob("*") if path.is_dir())
    if dataset not in known:
        remedy = nearest(dataset, known) or "; reproduce the study first"
        raise InputError(
            f"DATASET must be one of {folder}: {', '.join(known) or 'none there'}, got {dataset!r}{remedy}"
        )


def verify(bundle: bytes, name: str) -> list[str]:
    """Return what the checker derives of a bundle, in lines.

    It runs as this library has it, not as the bundle brings it; and the protocol that it reads must be that of the
    parameters in the bundle, which need a reader of YAML.

    Raises:
        InputError: If the bundle is damaged or contradicts itself.
    """
    with _named(name):
        found = check.check(bundle)
    study, values, content = opened(bundle, name)
    if study_of(values, study["dataset"]) != study:
        raise InputError(f"{name}: {check.STUDY} must say what {PARAMETERS} says, but does not; do not believe it")
    if subset := _certify(values, study["dataset"]).get("subset"):
        _check_images(name, study, subset, content)
    return found


def _check_images(name: str, study: dict[str, Any], subset: Any, content: dict[str, bytes]) -> None:
    """Refuse rows of other images than those of the subset; all rows of a noise level are of the same images."""
    from rs.study.subset import subset_name  # NumPy, as below

    for sigma in study["sigmas"]:
        path = f"results/{check.place(study, sigma, study['classifiers'][0])}.tsv"
        images = [int(line.partition("\t")[0]) for line in content[path].decode().split("\n")[1:-1]]
        wanted = _indices(subset, len(images))
        if len(images) != len(wanted) or any(own != index for own, index in zip(images, wanted, strict=True)):
            raise InputError(
                f"{name}: {path} must be of the images of the subset {subset_name(subset)}, but is of {len(images):,} "
                f"from {images[0]} to {images[-1]}; do not believe it"
            )


def _indices(subset: Any, count: int) -> range:
    """Return the images of a subset; ``count`` of one whose end depends on the data set."""
    match subset:
        case {"first": stop}:
            return range(stop)
        case {"range": [start, stop]}:
            return range(start, stop)
        case {"stride": step}:
            return range(0, step * count, step)
        case _:
            return range(count)


def opened(bundle: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """Return what the checker reads of the parameters, the parameters, and all files of a bundle.

    Raises:
        InputError: If the bundle is damaged.
    """
    with _named(name):
        content = check.unpack(bundle)
        values = params.parse(content[PARAMETERS].decode(), PARAMETERS)
        check.demand(isinstance(values, dict), f"{PARAMETERS} must hold a mapping of sections")
        return json.loads(content[check.STUDY]), values, content


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn what the checker raises into an error of the user's input."""
    try:
        yield
    except (check.BundleError, *check.FAULTS) as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} must be a bundle that agrees with itself, but: {reason}; do not believe it"
        ) from error


def is_bundle(path: Path) -> bool:
    """Whether a file is compressed as bundles are."""
    return path.is_file() and path.read_bytes()[:6] == b"\xfd7zXZ\0"


def study_of(values: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return what the checker must know of the parameters, in plain JSON."""
    from rs.study.ensembles import declared  # NumPy, which must not be loaded before the arithmetic is chosen
    from rs.study.grid import cells
    from rs.study.subset import subset_name

    certify = _certify(values, dataset)
    protocol = {name: certify[name] for name in check.ALIKE if name in certify}
    if "subset" in protocol:
        protocol["subset"] = subset_name(protocol["subset"])
    classifiers = {
        (cell.method, cell.seed): _classifier(cell.method, None, "model", [(cell.method, cell.seed)], cell.further)
        for cell in cells(values, dataset)
    }
    ensembles = [_classifier(one.name, one.key, one.combination.scope, one.members, True) for one in declared(values)]
    return {
        "dataset": dataset,
        "sigmas": [str(sigma) for sigma in params.section(values, "sigmas")],
        "combination": params.section(values, "tables.combination"),
        "certify": protocol,
        "classifiers": [*classifiers.values(), *ensembles],
    }


def _certify(values: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return how the study of a data set is certified."""
    return params.merge(values, *params.layers(f"recipes.{dataset}.certify"), optional=True)[0]


def _classifier(name: str, key: str | None, scope: str, members: Any, pool: bool) -> dict[str, Any]:
    folder = "pool/" if pool else ""
    return {"name": name, "key": key, "scope": scope, "members": [list(one) for one in members], "folder": folder}


def _rows(study: dict[str, Any]) -> list[str]:
    paths = [check.place(study, sigma, one) for sigma in study["sigmas"] for one in study["classifiers"]]
    return [f"results/{path}{suffix}" for path in paths for suffix in (".tsv", ".json")]


def _tables(root: Path, dataset: str) -> list[str]:
    folder = Path("reports") / dataset
    tables = sorted(path.name for path in (root / folder).glob("*.csv"))
    return [f"{folder}/{name}" for name in ("claims.md", "metrics.json", *tables)]


def _cards(content: dict[str, bytes]) -> list[str]:
    """Return where the sidecars say that cards of models and files of ensembles are."""
    sides = [name for name in content if name.startswith("results/") and name.endswith(".json")]
    return [_card(name, content[name]) for name in sides]


def _card(name: str, data: bytes) -> str:
    try:
        side = json.loads(data)
        model, scope = side["model"], side["scope"]
    except (ValueError, LookupError, TypeError):
        model = scope = None
    if not isinstance(model, str):
        raise InputError(f"{name} must be a sidecar that says its model and scope, but does not; certify again")
    return f"{model}/model.json" if scope == "model" else model


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(
            f"{path} must be a file, but there is none; a bundle is of a whole study, so reproduce it first"
        )
    return path.read_bytes()
