"""The report as one interactive page: a single HTML file that needs no network.

The page shows what Python computed: the tables of the report, which sort by a click, charts by
Altair, images with their votes, and where each number comes from. The files in the folder ``web``
are its frame, its style and its script. Its bytes depend on rows, sidecars, parameters and, where
they are given, test images and counts of attacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import pandas as pd

from rs.errors import InputError
from rs.recipes import base_dataset
from rs.reporting import page_charts
from rs.reporting.attacks import empirical
from rs.reporting.load import StudyFiles
from rs.reporting.logs import read_several_alone
from rs.reporting.page_data import MAX_IMAGES, Pictures, image_table
from rs.reporting.page_html import (
    cells_table,
    describe_origins,
    folded,
    html_table,
    page_style,
    policy,
    vega_embed,
    web_file,
)
from rs.reporting.results import Group, Groups, Result, best, published, results_of
from rs.reporting.summaries import check_same_data, radii_shown
from rs.reporting.tables import notes
from rs.reporting.tables.ensemble_tables import ensembles_table
from rs.reporting.tables.formatting import (
    Row,
    Table,
    build_table,
    plain,
    with_errors,
    with_verdict,
)
from rs.reporting.tables.method_tables import certified_table, differences_table, main_table
from rs.statistics import metrics
from rs.storage import attack_rows

ATTACKED = (
    "A curve named “attacked” bounds robust accuracy from above: it counts an image "
    "up to the smallest perturbation found. Images that were not attacked count at every radius."
)
"""Explanation of the empirical curves."""


@dataclass
class Page:
    """What stands on a page, noise level by noise level."""

    title: str
    groups: Groups  # the results that are compared
    reference: str  # the baseline; empty: the next best
    pictures: Pictures | None
    radii: Sequence[float]  # of the table of certified accuracy
    remarks: Sequence[str] = ()
    attacked: Groups = field(default_factory=dict)  # radii that attacks found, for the curves
    charts: dict[str, page_charts.Json] = field(default_factory=dict)  # by the name of their place

    def chart(self, name: str, sigma: float, spec: page_charts.Json | None) -> str:
        """Return the place of a chart of a noise level; nothing if there is no chart."""
        if spec is None:
            return ""
        element = f"{name}-{list(self.groups).index(sigma)}"
        self.charts[element] = spec
        return f'<div class="chart" id="{element}"></div>'

    def by_level(self, show: Callable[[float], str]) -> str:
        """Return blocks by noise level, of which the page shows one at a time."""
        blocks = []
        for number, sigma in enumerate(self.groups):
            blocks.append(f'<div class="level" data-level="{number}">{show(sigma)}</div>')
        return "\n".join(blocks)

    def reference_at(self, sigma: float) -> str:
        """Return the name that others are compared with at a noise level."""
        methods = self.groups[sigma]
        if self.reference in methods:
            return self.reference
        ranked = sorted(methods, key=lambda name: methods[name].acr.value, reverse=True)
        return ranked[:2][-1]


def study_page(
    study: StudyFiles,
    pictures: Pictures | None,
    claims: Sequence[Sequence[str]],
) -> bytes:
    """Return the page of a study.

    Args:
        study: Its results.
        pictures: The test images, with the names of their classes.
        claims: The table of the claims of the paper, its titles first. The page has it where the
            paper has figures on the data set.
    Raises:
        InputError: If rows are of other images than ``pictures``.
    """
    page = Page(
        study.dataset,
        study.main_groups,
        study.settings.reference,
        pictures,
        study.settings.radii,
        study.settings.remarks,
    )
    _check_images(results_of(study.groups), pictures)
    attacks = study.read_attacks()
    headline = _headline(page)
    costs = ""
    ensembles = ""
    if any(result.ensemble for result in results_of(page.groups)):
        costs = page.by_level(
            lambda sigma: page.chart("cost", sigma, page_charts.cost_chart(page.groups[sigma]))
        )
        ensembles = page.by_level(
            lambda sigma: html_table(ensembles_table(study.groups, sigma, study.combination))
        )
    is_of_paper = not published(base_dataset(study.values, study.dataset)).empty
    remade = f"<p>Make all of it again: <code>make study DATASET={study.dataset}</code></p>"
    sections = {
        **headline,
        "Attacks on certificates": "" if attacks is None else html_table(attacks_table(attacks)),
        "What a larger ACR costs": costs,
        "Ensembles": ensembles,
        "Images and their votes": _images(page),
        "Claims of the paper": cells_table(claims[0], claims[1:]) if is_of_paper else "",
        "Where each number comes from": remade + _origins(page, study.groups),
    }
    return _html(page, sections)


def rows_page(paths: Sequence[Path], pictures: Pictures | None = None) -> bytes:
    """Return the page of row files of no study, each under its name.

    Args:
        paths: Rows of this project, with their votes, all of the same images.
        pictures: The images that were certified.
    Raises:
        InputError: If rows are damaged, have no votes or labels, or are of different images.
    """
    groups: Groups = {}
    attacks = [path for path in paths if attack_rows.is_attack_rows(path)]
    certified = [path for path in paths if path not in attacks]
    if not certified:
        raise InputError("a report must have certificate rows, got attack rows; give both")
    read = list(zip(certified, read_several_alone(certified), strict=True))
    for path, result in read:
        _check_has_votes(path, result)
        groups.setdefault(result.sigma, {})[result.name] = Group((result,))
    results = results_of(groups)
    of_any_sigma = []
    for result in results:
        of_any_sigma.append(metrics.terms_of(result.rows.drop(columns="sigma")))
        check_same_data(results[0], result)
    metrics.check_comparable(of_any_sigma)
    _check_images(results, pictures)
    radii = radii_shown([result.rows for result in results])
    title = results[0].provenance.dataset or "images"
    page = Page(title, groups, "", pictures, radii)
    for result in empirical(read, attacks):
        page.attacked.setdefault(result.sigma, {})[result.name] = Group((result,))
    sections = {
        **_headline(page),
        "Images and their votes": _images(page),
        "Where each number comes from": _origins(page, groups),
    }
    return _html(page, sections)


def _check_has_votes(path: Path, result: Result) -> None:
    """Refuse rows that have no labels, or not the votes of all their samples."""
    rows = result.rows
    mode = metrics.mode_of(rows)
    lacks_votes = (rows["counts"] == "-") & (rows["n"] != 0)  # n of a log may be NaN
    if mode != "certify":
        problem = f"is of mode {mode}"
    elif lacks_votes.any():
        problem = "has no votes"
    elif not metrics.has_labels(rows):
        problem = "has no labels"
    else:
        return
    raise InputError(
        f"{path} must have labels and all votes of one classifier to be reported, but it "
        f"{problem}; rs show reads it"
    )


def _check_images(results: Iterable[Result], pictures: Pictures | None) -> None:
    """Check that rows whose sidecars name their images are of these."""
    for result in results:
        images = result.provenance.images
        if pictures and images and images != pictures.fingerprint:
            raise InputError(
                "--data or --images must hold the test images that were certified, "
                f"{images[:12]}, got {pictures.fingerprint[:12]}; give those images, "
                "converted in the same way, with --classes in the order of the model"
            )


# --------------------------------------------------------------------------------------------------
# tables


def answer_table(page: Page) -> Table:
    """Return which is best at each noise level, and by how much."""
    rows: list[Row] = []
    for sigma, methods in page.groups.items():
        if not best(methods):
            continue
        first, *ties = best(methods)
        group = methods[first]
        row: Row = {"sigma": sigma, "best": first, "ties": ", ".join(ties) or None}
        row |= {"acr": with_errors(group.acr), "clean_accuracy": group.accuracy(0.0)}
        compared = {"reference": page.reference_at(sigma)}
        compared["single"] = [*best(page_charts.single_models(methods)), first][0]
        for key, other in compared.items():
            if other != first:
                row[key] = f"{with_verdict(group.difference_to(methods[other]))} ({other})"
        rows.append(row)
    single = len(results_of(page.groups)) == 1
    reference = "the baseline" if page.reference else "the next best"
    columns = {
        "σ": plain("sigma"),
        "Classifier" if single else "Best": plain("best"),
        "ACR": plain("acr"),
        f"Minus {reference}": plain("reference"),
        "Minus the best single model": plain("single"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "Ties with it": plain("ties"),
    }
    return build_table(notes.about(page.groups), columns, rows, [])


def attacks_table(counts: pd.DataFrame) -> Table:
    """Return what attacks within and beyond certified radii found, by classifier."""
    rows: list[Row] = []
    for (sigma, classifier), attacks in counts.groupby(["sigma", "classifier"]):
        row: Row = {"sigma": sigma, "classifier": classifier, "scope": attacks["scope"].iloc[0]}
        for distance, attempts in attacks[attacks["attacked"] > 0].groupby("distance"):
            row[distance] = f"{attempts['below_half'].sum()} of {attempts['attacked'].sum()}"
        rows.append(row)
    columns = {"σ": plain("sigma"), "Classifier": plain("classifier"), "Scope": plain("scope")}
    for distance in sorted(counts["distance"].unique()):
        columns[f"at {distance:g} of the radius"] = plain(distance)
    caption = (
        "How often an attack found a point where the certified class has less than half of the "
        "votes. Within the radius (below 1) each one would refute a certificate, unless its scope "
        "is per-image, which covers frozen weights only. Beyond it, they show how tight radii are."
    )
    return build_table(caption, columns, rows, [])


# --------------------------------------------------------------------------------------------------
# sections, as HTML by their titles


def _headline(page: Page) -> dict[str, str]:
    """Return the answer, the curves, and the paired differences."""
    answer = html_table(answer_table(page))
    if not any(map(best, page.groups.values())):
        answer = "<p>No result has a sound certificate.</p>"

    def curves(sigma: float) -> str:
        curves = page.groups[sigma] | page.attacked.get(sigma, {})
        spec = page_charts.curves_chart(curves, page.reference_at(sigma))
        note = f"<p>{ATTACKED}</p>" if sigma in page.attacked else ""
        table = html_table(certified_table(page.groups, sigma, page.radii))
        folds = folded("Certified accuracy in numbers", table)
        return page.chart("curves", sigma, spec) + note + folds

    def differences(sigma: float) -> str:
        spec = page_charts.differences_chart(page.groups[sigma], page.reference_at(sigma))
        return page.chart("differences", sigma, spec)

    single = all(len(methods) == 1 for methods in page.groups.values())
    sections = {
        "Result" if single else "Which is best, and by how much?": answer,
        "Certified accuracy": page.by_level(curves),
    }
    if single:
        return sections
    named = dict.fromkeys(map(page.reference_at, page.groups))
    table = html_table(differences_table(page.groups, list(named)))
    sections["All results"] = html_table(main_table(page.groups), links=True)
    sections["Paired differences"] = page.by_level(differences) + folded("In numbers", table)
    return sections


def _images(page: Page) -> str:
    """Return the images with their votes, by the classifiers that the charts show first."""

    def images(sigma: float) -> str:
        methods = page.groups[sigma]
        names = page_charts.highlighted(methods, page.reference_at(sigma))
        results = {name: methods[name].first for name in names}
        return cells_table(*image_table(results, page.pictures))

    results = results_of(page.groups)
    certified = len(results[0].rows)
    texts = []
    if certified > MAX_IMAGES:
        texts.append(f"The first {MAX_IMAGES} of {certified:,} images.")
    if len(results) > sum(map(len, page.groups.values())):
        texts.append("Each method is shown by its first training seed.")
    if not page.pictures:
        texts.append("Classes are the numbers of the data set; pictures are not in this page.")
    return f"<p>{' '.join(texts)}</p>{page.by_level(images)}"


def _origins(page: Page, groups: Groups) -> str:
    """Return files, commands and parameters of all results."""

    def origins(sigma: float) -> str:
        folds = []
        for name, group in groups[sigma].items():
            folds.append(folded(name, describe_origins(group.results), name=name))
        return f'<div class="scroll">{"".join(folds)}</div>'

    return page.by_level(origins)


# --------------------------------------------------------------------------------------------------
# the whole


def _html(page: Page, sections: Mapping[str, str]) -> bytes:
    """Return the page, which forbids itself every request and every script that is not its own."""
    scripts = [vega_embed(), web_file("page.js")]
    body: list[str] = []
    links: list[str] = []
    for title, content in sections.items():
        if content:
            anchor = f"section-{len(body)}"
            heading = f"<h2>{escape(title)}</h2>"
            body.append(f'<section id="{anchor}">{heading}\n{content}\n</section>')
            links.append(f'<a href="#{anchor}">{escape(title)}</a>')
    buttons = []
    for number, sigma in enumerate(page.groups):
        buttons.append(f'<button data-show="{number}">σ = {sigma:g}</button>')
    charts = json.dumps({"config": page_charts.CONFIG, "specs": page.charts}, allow_nan=False)
    indices = sorted(results_of(page.groups)[0].rows["idx"])[:MAX_IMAGES]
    sheet = page.pictures.sheet(indices) if page.pictures else None
    parts = {
        "POLICY": policy(scripts),
        "STYLE": page_style(sheet, len(indices)),
        "TITLE": escape(page.title),
        "REMARKS": escape(" ".join(page.remarks)),
        "CONTENTS": "\n".join(links),
        "LEVELS": "".join(buttons) if len(buttons) > 1 else "",
        "SECTIONS": "\n".join(body),
        "LICENSES": escape(web_file("licenses.txt")),
        "CHARTS": charts.replace("<", "\\u003c"),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], web_file("page.html")).encode()
