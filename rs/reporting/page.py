"""The report as one page that recomputes: votes, commands and provenance of every result, in a file
of its own.

The files in the folder ``web`` beside this one are its program. Vega-Lite comes from the package
vl-convert-python. Nothing in the page asks for anything outside it. Its bytes depend on rows,
sidecars, parameters and, where it is given them, the test images alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from rs.errors import InputError
from rs.reporting.figures import COLOURS, DASHES
from rs.reporting.load import StudyFiles
from rs.reporting.logs import read_several_alone
from rs.reporting.page_data import Pictures, has_votes, packed, vote_columns
from rs.reporting.results import Group, Groups, Result, filter_groups, results_of
from rs.reporting.tables.ensemble_tables import families, models_by_member, with_combination
from rs.statistics import metrics
from rs.statistics.certificate import SET_SCOPE
from rs.study import grid
from rs.study.layout import pool_rows, pool_target

WEB = Path(__file__).with_name("web")

LIMIT = 5_000_000
"""Bytes of a page at most: where votes are too many, the page has those of half of the images, or
of a quarter, ...
"""

POLICY = "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may do: run programs of these hashes, which evaluate no text as code, style itself,
and show pictures that it holds.
"""

SIDECAR = (
    "code",
    "versions",
    "device",
    "precision",
    "engine",
    "arithmetic",
    "outputs",
    "seed",
    "subset",
    "images",
)
"""What the page tells of the sidecar of rows."""

Record = dict[str, Any]
"""Values by name, as in JSON."""

Origins = Mapping[Any, Record]
"""Where a result comes from, by its key."""


def study_page(
    groups: Groups,
    study: StudyFiles,
    pictures: Pictures | None = None,
    claims: Sequence[Sequence[str]] = (),
) -> bytes | None:
    """Return the page of a study; ``None`` if no rows hold their votes.

    Args:
        groups: All results; those without votes (early stopping) are left out.
        study: What the parameters declare.
        pictures: The test images, of which the page shows some, with the names of their classes.
        claims: The table of the claims of the paper, its titles first.
    Raises:
        InputError: If rows are of other images than ``pictures``.
    """
    shown = filter_groups(groups, has_votes)
    if not shown:
        return None
    about = {
        "dataset": study.dataset,
        "combination": study.combination,
        "remarks": study.settings.remarks,
        "claims": claims,
    }
    return _page(shown, about, study.settings.reference, dict(_origins(study)), pictures)


def rows_page(paths: Sequence[Path], pictures: Pictures | None = None) -> bytes:
    """Return the page of row files of no study, each under its name.

    Args:
        paths: Rows of this project, with their votes, all of the same images.
        pictures: The images that were certified.
    Raises:
        InputError: If rows are damaged, have no votes or labels, or are of different images.
    """
    groups: Groups = {}
    origins = {}
    for path, result in zip(paths, read_several_alone(paths), strict=True):
        if not (has_votes(result) and metrics.has_labels(result.rows)):
            mode = metrics.mode_of(result.rows)
            lacking = "votes" if metrics.has_labels(result.rows) else "labels"
            got = (
                f"has no {lacking}; rs show reads it"
                if mode == "certify"
                else f"is of mode {mode}; rs show reads it"
            )
            raise InputError(
                f"{path} must have labels and all votes of one classifier to be reported, but it "
                f"{got}"
            )
        classes = None if result.scope == SET_SCOPE else result.provenance.classes
        groups.setdefault(result.sigma, {})[result.name] = Group(
            (replace(result, classes=classes),)
        )
        origins[_key(result)] = {"file": str(path), "command": f"rs show {path}", "parameters": {}}
    terms = [result.terms for result in results_of(groups)]
    metrics.check_comparable(
        [each._replace(budget=each.budget | {"sigma": 0.0}) for each in terms]
    )  # of any sigma
    dataset = results_of(groups)[0].provenance.dataset or "images"
    about = {"dataset": dataset, "combination": "", "remarks": [], "claims": []}
    return _page(groups, about, "", origins, pictures)


def _page(
    groups: Groups, about: Record, reference: str, origins: Origins, pictures: Pictures | None
) -> bytes:
    """Return a page of as many images as it has room for."""
    images = min(len(result.rows) for result in results_of(groups))
    while (
        len(content := _html(about | _data(groups, about, reference, origins, pictures, images)))
        > LIMIT
    ):
        if images <= 2:
            break
        images //= 2
    return content


# -----------------------------------------------------------------------------------------------------
# data


def _data(
    groups: Groups,
    about: Record,
    default_reference: str,
    origins: Origins,
    pictures: Pictures | None,
    images: int,
) -> Record:
    results = results_of(groups)
    n0, n, alpha = (
        metrics.common_budget([result.terms for result in results], name)
        for name in ("n0", "n", "alpha")
    )
    provenances: list[Record] = []
    for result in results:
        if (provenance := _provenance(result)) not in provenances:
            provenances.append(provenance)
    if pictures:
        _check_images(provenances, pictures)
    levels = []
    for sigma, methods in groups.items():
        reference = default_reference if default_reference in methods else next(iter(methods))
        level = _level(methods, about["combination"], origins, provenances, images, int(n))
        levels.append(level | {"sigma": sigma, "reference": reference})
    return {
        "subset": results[0].subset,
        "images": images,
        "certified": len(results[0].rows),
        "n0": int(n0),
        "n": int(n),
        "alpha": alpha,
        "colours": COLOURS,
        "dashes": {
            name: [] if dash == "-" else [2 * part for part in dash[1]]
            for name, dash in DASHES.items()
        },
        "levels": levels,
        "provenance": provenances,
        "classes": pictures and pictures.classes,
        "pictures": pictures and pictures.sheet(levels[0]["indices"]),
    }


def _provenance(result: Result) -> Record:
    stated = result.provenance.to_json()
    return {name: stated[name] for name in SIDECAR if name in stated}


def _check_images(provenances: Sequence[Record], pictures: Pictures) -> None:
    """Check that rows whose sidecars name their images are of these."""
    for images in {provenance["images"] for provenance in provenances if "images" in provenance}:
        if images != pictures.fingerprint:
            raise InputError(
                "--data or --images must hold the test images that the rows are of, "
                f"{images[:12]}, got "
                f"{pictures.fingerprint[:12]}; give what was certified, converted in the same way, "
                "with --classes in the order of the model"
            )


def _level(
    methods: Mapping[str, Group],
    combination: str,
    origins: Origins,
    provenances: list[Record],
    images: int,
    draws: int,
) -> Record:
    """Return the results and groups of a noise level."""
    results = [result for group in methods.values() for result in group.results]
    numbers = {id(result): i for i, result in enumerate(results)}
    frames = [result.rows.sort_values("idx", kind="stable")[:images] for result in results]
    width = 2 if draws < 65_535 else 4
    singles = models_by_member(methods)
    return {
        "indices": frames[0]["idx"].tolist(),
        "labels": frames[0]["label"].tolist(),
        "width": width,
        "votes": packed([vote_columns(frame, draws) for frame in frames], width),
        "results": [
            _result(result, origins) | {"provenance": provenances.index(_provenance(result))}
            for result in results
        ],
        "groups": [
            _group(group, methods, combination, singles, numbers) for group in methods.values()
        ],
    }


def _result(result: Result, origins: Origins) -> Record:
    record = origins[_key(result)] | {
        "name": result.full_name,
        "chosen": result.chosen,
        "classes": result.classes,
        "seeds": sorted(result.seeds),
        "evaluations": result.members_per_draw,
    }
    # votes for no class have the number after those of the classes
    return record | {"undecided": result.provenance.classes} if result.scope == "set" else record


def _group(
    group: Group,
    methods: Mapping[str, Group],
    combination: str,
    singles: Mapping[tuple[str, int | None], Result],
    numbers: Mapping[int, int],
) -> Record:
    def numbers_of(results: Sequence[Result | None]) -> list[int]:
        """Return the numbers of results; none if one of them is not there."""
        return [] if None in results else [numbers[id(result)] for result in results]

    first = group.first
    same = with_combination(group, methods, combination)
    teams = [[singles.get(member) for member in result.members] for result in group.results]
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
        "results": numbers_of(group.results),
        "fewest_seeds": group.fewest_seeds,
        "members": [numbers_of(team) for team in teams] if first.members else None,
        "beside": same and numbers_of(same.results),
    }


# --------------------------------------------------------------------------------------------------
# origins


def _key(result: Result) -> tuple[str, float, int | None, tuple[tuple[str, int], ...]]:
    return result.name, result.sigma, result.seed, result.members


def _origins(study: StudyFiles) -> Iterator[tuple[Any, Record]]:
    """Yield the key of each result, and its paths and commands as in the pipeline."""
    results, declared = Path("results", study.dataset), study.values.get("combinations") or {}
    for cell in study.cells:
        file, model = cell.rows(results).as_posix(), cell.model(Path("models", study.dataset))
        alone = f"python -m stages.certify {model} --dataset {study.dataset} --data data/{study.dataset} --out {file}"
        alone += f" --times logs/{study.dataset}/{cell.sigma}/{cell.method}-{cell.seed}.seconds.csv"
        yield (
            (cell.method, float(cell.sigma), cell.seed, ()),
            {
                "file": file,
                "target": cell.target("certify"),
                "command": pool_command(study.dataset, cell.sigma)
                if cell.is_member_seed
                else alone,
                "parameters": grid.configuration(
                    study.values, study.dataset, cell.method, float(cell.sigma)
                ),
            },
        )
    for sigma, ensemble in product(study.sigmas, study.ensembles):
        yield (
            (study.label(ensemble), float(sigma), None, ensemble.members),
            {
                "file": pool_rows(results, sigma, ensemble.slug).as_posix(),
                "target": pool_target("certify_ensembles", study.dataset, sigma),
                "command": pool_command(study.dataset, sigma),
                "parameters": {"combination": ensemble.key, **declared[ensemble.key]},
            },
        )


def pool_command(dataset: str, sigma: Any) -> str:
    """Return the command that certifies further seeds and ensembles of a noise level."""
    cell = f"{dataset}/{sigma}"
    return (
        f"python -m stages.certify_ensembles {dataset} --ensembles ensembles/{cell} --weights "
        f"weights/{cell} "
        f"--data data/{dataset} --out results/{cell}/pool --times logs/{cell}"
    )


# -----------------------------------------------------------------------------------------------------
# HTML


def _html(data: Record) -> bytes:
    """Return the page, which forbids itself every request and every program that is not its own."""
    scripts = {
        "LIBRARY": vega_embed(),
        "STATISTICS": _text("statistics.js"),
        "PAGE": _text("page.js"),
    }
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts.values()]
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    parts = {name: f"<script>{script}</script>" for name, script in scripts.items()} | {
        "POLICY": POLICY.format(sources),
        "STYLE": _text("page.css"),
        "LICENCES": html.escape(_text("licences.txt")),
        "TITLE": html.escape(data["dataset"]),
        "DATA": json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).replace(
            "<", "\\u003c"
        ),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], _text("page.html")).encode()


def _text(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


@cache
def vega_embed() -> str:
    """Return Vega-Embed, with Vega and Vega-Lite in it, as a program that can stand in HTML."""
    from vl_convert import javascript_bundle

    program = javascript_bundle("window.vegaEmbed = vegaEmbed;")
    program = program.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"(() => {{{program}}})();"  # so that its names are its own
