"""The report as one page that recomputes: votes, commands and provenance of every result, in a file of its own.

The files in the folder ``web`` beside this one are its program. Vega-Lite comes from the package vl-convert-python.
Nothing in the page asks for anything outside it. Its bytes depend on rows, sidecars, training seconds, parameters and,
where it is given them, the test images alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rs.errors import InputError
from rs.reporting.figures import COLOURS
from rs.reporting.load import StudyFiles
from rs.reporting.offline_plots import vega_embed
from rs.reporting.page_data import Pictures, has_votes, packed, vote_columns
from rs.reporting.results import Group, Groups, Result, filter_groups, results_of
from rs.reporting.settings import ReportSettings
from rs.reporting.tables.ensemble_tables import families, models_by_member
from rs.statistics import metrics
from rs.storage import files
from rs.storage.certificate_rows import sidecar_of
from rs.study import grid
from rs.study.layout import pool_rows, pool_target

WEB = Path(__file__).with_name("web")
LIMIT = 5_000_000
"""Bytes of a page at most: where votes are too many, the page has those of half of the images, or of a quarter, ..."""

POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
"""What the page may do: run programs of these hashes, which evaluate no text as code, style itself, and show pictures
that it holds."""

SIDECAR = ("code", "versions", "device", "precision", "engine", "arithmetic", "outputs", "seed", "subset", "images")
"""What the page tells of the sidecar of rows."""

Record = dict[str, Any]
"""Values by name, as in JSON."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the rows of a result come from: paths and commands as in the pipeline, whatever folder was read."""

    file: str
    target: str  # DVC's name of the cell that makes them
    command: str  # what that cell runs
    parameters: Record
    sidecar: Path  # where it was read


def study_page(
    groups: Groups,
    study: StudyFiles,
    values: dict[str, Any],
    settings: ReportSettings,
    pictures: Pictures | None = None,
) -> bytes | None:
    """Return the page of a study; ``None`` if no rows hold their votes.

    Args:
        groups: All results; those without votes (external logs, early stopping) are left out.
        study: What the parameters declare.
        values: The parameters.
        settings: The method that the others are compared with at first, and what must be said of the data.
        pictures: The test images, of which the page shows some, with the names of their classes.
    Raises:
        InputError: If rows are of other images than ``pictures``.
    """
    shown = filter_groups(groups, lambda result: not result.external and has_votes(result))
    if not shown:
        return None
    sources = _sources(study, values)
    images = min(len(result.rows) for result in results_of(shown))
    while len(content := _html(_data(shown, study, sources, settings, pictures, images))) > LIMIT and images > 2:
        images //= 2
    return content


# ----------------------------------------------------------------------------------------------------- data


def _data(
    groups: Groups,
    study: StudyFiles,
    sources: Mapping[Any, Origin],
    settings: ReportSettings,
    pictures: Pictures | None,
    images: int,
) -> Record:
    results = results_of(groups)
    n0, n, alpha = (metrics.common_budget([one.rows for one in results], name) for name in ("n0", "n", "alpha"))
    made_by: list[Record] = []
    levels = [
        _level(sigma, methods, study, sources, made_by, images, int(n))
        | {"reference": _reference(methods, settings.reference)}
        for sigma, methods in groups.items()
    ]
    if pictures:
        _check_images(made_by, pictures)
    return {
        "dataset": study.dataset,
        "subset": results[0].subset,
        "images": images,
        "certified": len(results[0].rows),
        "n0": int(n0),
        "n": int(n),
        "alpha": alpha,
        "combination": study.combination,
        "remarks": settings.remarks,
        "times": study.times,
        "colours": COLOURS,
        "levels": levels,
        "provenance": made_by,
        "classes": pictures and pictures.classes,
        "pictures": pictures and pictures.sheet(levels[0]["indices"]),
    }


def _check_images(made_by: Sequence[Record], pictures: Pictures) -> None:
    """Check that rows whose sidecars name their images are of these."""
    for images in {how["images"] for how in made_by if "images" in how}:
        if images != pictures.fingerprint:
            raise InputError(
                f"--data must hold the test images that the rows are of, {images[:12]}, got "
                f"{pictures.fingerprint[:12]}; give the data set that was certified"
            )


def _level(
    sigma: float,
    methods: Mapping[str, Group],
    study: StudyFiles,
    sources: Mapping[Any, Origin],
    made_by: list[Record],
    images: int,
    draws: int,
) -> Record:
    """Return the results and groups of a noise level; what made their rows is added to ``made_by``."""
    results = [result for group in methods.values() for result in group.results]
    place = {id(result): i for i, result in enumerate(results)}
    frames = [result.rows.sort_values("idx", kind="stable")[:images] for result in results]
    width = 2 if draws < 65_535 else 4
    singles = models_by_member(methods)
    return {
        "sigma": sigma,
        "indices": frames[0]["idx"].tolist(),
        "labels": frames[0]["label"].tolist(),
        "width": width,
        "votes": packed([vote_columns(frame, draws) for frame in frames], width),
        "results": [_result(result, sources[_key(result)], singles, made_by) for result in results],
        "groups": [_group(group, methods, study.combination, singles, place) for group in methods.values()],
    }


def _result(
    result: Result, source: Origin, singles: Mapping[tuple[str, int | None], Result], made_by: list[Record]
) -> Record:
    sidecar = files.read_json(source.sidecar)
    how = {name: sidecar[name] for name in SIDECAR if name in sidecar}
    if how not in made_by:
        made_by.append(how)
    trained = [singles[member] for member in result.members if member in singles] or [result]
    seconds = [one.training_seconds for one in trained if one.training_seconds is not None]
    return {
        "name": result.full_name,
        "file": source.file,
        "target": source.target,
        "command": source.command,
        "parameters": source.parameters,
        "chosen": result.chosen,
        "provenance": made_by.index(how),
        "classes": result.classes,
        "seeds": sorted(result.seeds),
        "evaluations": result.members_per_draw,
        "seconds": sum(seconds) if len(seconds) == (len(result.members) or 1) else None,
    } | ({"undecided": sidecar.get("classes")} if result.scope == "set" else {})  # the number of votes for no class


def _group(
    group: Group,
    methods: Mapping[str, Group],
    combination: str,
    singles: Mapping[tuple[str, int | None], Result],
    place: Mapping[int, int],
) -> Record:
    first = group.first
    teams = [[singles.get(member) for member in result.members] for result in group.results]
    others = {
        result.members: result
        for other in methods.values()
        if other.first.combination == combination
        for result in other.results
    }
    beside = [others.get(result.members) for result in group.results] if first.combination != combination else []
    return {
        "name": first.name,
        "ensemble": first.ensemble,
        "combination": first.combination,
        "scope": first.scope,
        "sound": group.sound,
        "size": len(first.members) or 1,
        "trained": first.training_methods or [first.name],
        "headline": first.ensemble is None or first.combination == combination,
        "cost": "evaluations" in first.rows and group in families(methods, str(first.combination)),
        "results": [place[id(result)] for result in group.results],
        "members": [_places(team, place) for team in teams] if first.members else None,
        "beside": _places(beside, place) or None,
    }


def _places(results: Sequence[Result | None], place: Mapping[int, int]) -> list[int]:
    """Return the numbers of results; none if one of them is not there."""
    return [] if None in results else [place[id(result)] for result in results]


def _reference(methods: Mapping[str, Group], wanted: str) -> str:
    return wanted if wanted in methods else next(iter(methods))


# -------------------------------------------------------------------------------------------------- sources


def _key(result: Result) -> tuple[str, float, int | None, tuple[tuple[str, int], ...]]:
    return result.name, result.sigma, result.seed, result.members


def _sources(study: StudyFiles, values: dict[str, Any]) -> dict[Any, Origin]:
    """Return where each result of the study comes from."""
    return dict([*_sources_of_models(study, values), *_sources_of_ensembles(study, values)])


def _sources_of_models(study: StudyFiles, values: dict[str, Any]) -> Iterator[tuple[Any, Origin]]:
    for cell in study.cells:
        file, model = cell.rows(Path("results", study.dataset)).as_posix(), cell.model(Path("models", study.dataset))
        alone = f"python -m stages.certify {model} --dataset {study.dataset} --data data/{study.dataset} --out {file}"
        yield (
            (cell.method, float(cell.sigma), cell.seed, ()),
            Origin(
                file=file,
                target=cell.target("certify"),
                command=pool_command(study.dataset, cell.sigma) if cell.is_member_seed else alone,
                parameters=grid.configuration(values, study.dataset, cell.method, float(cell.sigma)),
                sidecar=sidecar_of(cell.rows(study.results)),
            ),
        )


def _sources_of_ensembles(study: StudyFiles, values: dict[str, Any]) -> Iterator[tuple[Any, Origin]]:
    declared = values.get("combinations") or {}
    for sigma in study.sigmas:
        for ensemble in study.ensembles:
            yield (
                (study.label(ensemble), float(sigma), None, ensemble.members),
                Origin(
                    file=pool_rows(Path("results", study.dataset), sigma, ensemble.slug).as_posix(),
                    target=pool_target("certify_ensembles", study.dataset, sigma),
                    command=pool_command(study.dataset, sigma),
                    parameters={"combination": ensemble.key, **declared[ensemble.key]},
                    sidecar=sidecar_of(study.ensemble_rows(ensemble, sigma)),
                ),
            )


def pool_command(dataset: str, sigma: Any) -> str:
    """Return the command that certifies further seeds and ensembles of a noise level."""
    cell = f"{dataset}/{sigma}"
    return (
        f"python -m stages.certify_ensembles {dataset} --ensembles ensembles/{cell} --weights weights/{cell} "
        f"--data data/{dataset} --out results/{cell}/pool --times results/{cell}/times"
    )


# ----------------------------------------------------------------------------------------------------- HTML


def _html(data: Record) -> bytes:
    """Return the page, which forbids itself every request and every program that is not its own."""
    scripts = {"LIBRARY": vega_embed(), "STATISTICS": _text("statistics.js"), "PAGE": _text("page.js")}
    own = " ".join(f"'sha256-{_hash(script)}'" for script in scripts.values())
    parts = {name: f"<script>{script}</script>" for name, script in scripts.items()} | {
        "POLICY": POLICY.format(own),
        "STYLE": _text("page.css"),
        "LICENCES": html.escape(_text("licences.txt")),
        "TITLE": html.escape(data["dataset"]),
        "TIMES": html.escape(data["times"]),
        "DATA": json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], _text("page.html")).encode()


def _text(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
