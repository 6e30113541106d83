"""The report page: its numbers are those of the rows, it needs nothing else, and all is legible."""

import base64
import hashlib
import io
import json
import re
import shutil
from html import escape

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rs.reporting import page, page_charts
from rs.reporting.page_data import Pictures
from rs.reporting.results import Group
from rs.statistics import metrics
from rs.statistics.certificate import UNLABELED
from rs.storage import certificate_rows, files
from tests.support.helpers import refuses, write_row_file
from tests.support.tiny_study import (
    ALPHA,
    CLASSES,
    IMAGES,
    N0,
    SIGMAS,
    N,
    add_family,
    at_radii,
    make_study,
    read_study,
    result,
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="a Chromium shows the page")

PATIENCE = 300_000
"""Milliseconds until a browser on a busy machine is given up."""

GRAYS = np.linspace(10, 250, IMAGES).astype(np.uint8)
PICTURES = Pictures(
    ("cat", "dog", "frog"), "f" * 64, np.broadcast_to(GRAYS[:, None, None, None], (IMAGES, 1, 8, 8))
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with families of ensembles."""
    return add_family(make_study(tmp_path_factory.mktemp("study")))


CLAIMS = [["claim", "held"], ["AdvMacer beats SmoothAdv", "1"]]


def page_of(root, pictures=None):
    return page.study_page(read_study(root), pictures, CLAIMS).decode()


@pytest.fixture(scope="module")
def text(study):
    return page_of(study)


def specs_of(text):
    """The charts of a page by the names of their places."""
    charts = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(charts)["specs"]


def points_of(spec):
    """The points of the curves of a chart by name."""
    by_name = {}
    for point in spec["datasets"][spec["data"]["name"]]:
        by_name.setdefault(point["name"], []).append(point)
    return by_name


# -------------------------------------------------------------------------------------------------
# what it asks for


def test_nothing_in_the_page_names_another_file(text):
    tags = re.findall(r"<[a-z][^>]*>", re.sub(r"(?s)<script.*?</script>", "", text))
    assert not re.search(r'(?:src|href|action|srcset|data)="[^#]', "".join(tags))
    assert "url(" not in re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert len(text.encode()) < 3_000_000


def test_the_page_forbids_every_script_but_its_own_and_every_request(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    hashes = []
    for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL):
        digest = hashlib.sha256(script.encode()).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    assert len(hashes) == 2
    assert rules == {
        "default-src": "'none'",
        "script-src": " ".join(hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_names_of_files_are_text_on_the_page(study, tmp_path):
    path = tmp_path / "<script>&amp;'\".tsv"
    shutil.copy(study / "results/0.25/gaussian-0.tsv", path)
    content = page.rows_page([path]).decode()
    assert content.count("<script>") == 2
    assert escape(path.name) in content


# -------------------------------------------------------------------------------------------------
# what it says


def test_the_first_table_says_who_is_best_and_by_how_much(study):
    groups = read_study(study).groups
    shown = page.Page("tiny", groups, "gaussian", None, [0.0])
    rows = page.answer_table(shown).data.to_dict("records")
    assert [row["sigma"] for row in rows] == list(SIGMAS)
    for row in rows:
        acrs = {}
        for name, group in groups[row["sigma"]].items():
            if group.sound:
                acrs[name] = np.mean([metrics.acr(rows) for rows in group.rows])
        best = max(acrs, key=acrs.get)
        single = max(("gaussian", "advmacer"), key=acrs.get)
        assert row["best"] == best
        for key, other in (("reference", "gaussian"), ("single", single)):
            if other != best:
                assert row[key].startswith(f"{acrs[best] - acrs[other]:+.4f} ± ")
                assert row[key].endswith(f"({other})")


def test_a_curve_is_the_share_of_images_that_are_right_with_the_radius(study, text):
    groups = read_study(study).groups
    for number, sigma in enumerate(SIGMAS):
        curves = points_of(specs_of(text)[f"curves-{number}"])
        assert len(curves) >= 4
        for name, points in curves.items():
            at = np.array([point["radius"] for point in points])
            shares = [metrics.certified_accuracy(rows, at) for rows in groups[sigma][name].rows]
            expected = np.mean(shares, axis=0).round(4).tolist()
            assert [point["accuracy"] for point in points] == expected
            assert points[-1]["accuracy"] == 0.0


def test_every_file_is_listed_with_the_command_that_makes_it(text):
    listed = re.findall(r"<pre>([^<]*)</pre><dl>", text)
    assert "results/tiny/0.25/gaussian-0.tsv\ndvc repro certify@tiny-gaussian-0.25-0" in listed
    ensemble = "results/tiny/0.5/pool/advmacer-0-1.per-image.tsv"
    assert f"{ensemble}\ndvc repro certify_ensembles@tiny-0.5" in listed
    assert f"<dd>n0: {N0}, n: {N}, alpha: {ALPHA}, sigma: 0.25" in text


def test_claims_of_the_paper_stand_where_the_study_is_the_papers(study, tmp_path):
    assert "AdvMacer beats SmoothAdv" not in page_of(study)
    shutil.copytree(study, tmp_path / "s")
    params = tmp_path / "s" / "params.yaml"
    params.write_text(params.read_text().replace("{source: none}", "{dataset: cifar10}"))
    assert "AdvMacer beats SmoothAdv" in page_of(tmp_path / "s")


def test_attacks_are_counted_by_classifier_and_distance():
    lines = ["sigma,classifier,scope,distance,attacked,below_half"]
    lines += ["0.25,macer-0,model,0.99,24,0", "0.25,macer-0,model,0.99,8,1"]
    lines += ["0.25,macer-0,model,2.5,24,23", "0.25,other,global,2.5,0,0"]
    table = page.attacks_table(pd.read_csv(io.StringIO("\n".join(lines))))
    assert table.body == [
        ["0.25", "macer-0", "model", "1 of 32", "23 of 24"],
        ["0.25", "other", "global", "–", "–"],
    ]


def test_pictures_of_other_images_than_those_of_the_rows_are_refused(study, tmp_path):
    shutil.copytree(study, tmp_path / "s")
    side = tmp_path / "s/results/0.25/gaussian-0.json"
    files.write_json(side, files.read_json(side) | {"images": "f" * 64})
    assert "frog" not in page_of(tmp_path / "s")
    assert "<td class=text>dog" in page_of(tmp_path / "s", PICTURES)
    files.write_json(side, files.read_json(side) | {"images": "e" * 64})
    with refuses("the test images that were certified, eee"):
        page_of(tmp_path / "s", PICTURES)


def test_a_page_of_row_files_needs_their_votes_and_the_same_images(study, tmp_path):
    path = study / "results/0.25/gaussian-0.tsv"
    rows = certificate_rows.read_rows(path)
    of_other_noise = certificate_rows.read_rows(study / "results/0.5/gaussian-0.tsv")
    other = tmp_path / "other.tsv"
    for changed, message in (
        (of_other_noise[1:], "same images, got 12 and 11"),
        (
            at_radii(rows, 0.25),
            rf"must have labels and all votes .* is of mode at-radius:0\.25:{N}",
        ),
        (rows.assign(label=UNLABELED, correct=0), "it has no labels"),
    ):
        write_row_file(changed, other)
        with refuses(message):
            page.rows_page([path, other])
    write_row_file(rows, other)
    sidecar = files.read_json(path.with_suffix(".json"))
    files.write_json(other.with_suffix(".json"), sidecar | {"classes": CLASSES + 1})
    with refuses("same data set, but their sidecars have different classes"):
        page.rows_page([path, other])


# -------------------------------------------------------------------------------------------------
# colors


def test_no_two_names_look_the_same_and_no_color_is_two_methods():
    names = ["gaussian", "advmacer", "stability", *(f"file-{k}" for k in range(9))]
    methods = {name: Group((result(name, [1.0]),)) for name in names}
    for name, others in (("advmacer x2", "advmacer"), ("mixed", "gaussian"), ("more", "gaussian")):
        members = (("advmacer", 0), (others, 1))
        methods[name] = Group((result(name, [1.0], ensemble=name, members=members),))
    looks = page_charts.looks(methods)
    colors = {name: color for name, (color, _) in looks.items()}
    assert looks.keys() == methods.keys()
    assert len({(color, *dash) for color, dash in looks.values()}) == len(methods)
    assert colors["advmacer x2"] == colors["advmacer"] != colors["gaussian"]
    assert colors["mixed"] == colors["more"] == "var(--ink)"
    assert [looks[name][1] for name in names[:3]] == [[]] * 3


# -------------------------------------------------------------------------------------------------
# in a browser


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open pages in tabs; in the end none of them has complained or asked for another file."""
    said = []
    asked = []

    def opened(content, **look):
        path = tmp_path / "index.html"
        path.write_bytes(content)
        tab = browser.new_page(**look)
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", "file:"))] == []


def wait_for_lines(tab, count):
    """Wait until the first chart has that many curves."""
    from playwright.sync_api import expect

    curves = tab.locator("#curves-0 g.mark-line path")
    expect(curves).to_have_count(count, timeout=PATIENCE)


@needs_chromium
def test_clicks_show_and_hide_curves_and_noise_levels(show, text):
    tab = show(text.encode())
    names = [point["name"] for point in specs_of(text)["curves-0"]["params"][0]["value"]]
    wait_for_lines(tab, len(names))
    legend = tab.locator("#curves-0 .role-legend-entry text", has_text=re.compile("^gaussian$"))
    legend.click()
    wait_for_lines(tab, len(names) - 1 if "gaussian" in names else len(names) + 1)
    legend.click()
    wait_for_lines(tab, len(names))
    assert not tab.locator("#curves-1").is_visible()
    tab.locator("[data-show='1']").click()
    assert not tab.locator("#curves-0").is_visible()
    tab.wait_for_selector("#curves-1[data-drawn]")


@needs_chromium
def test_tables_are_sorted_and_filtered_and_a_name_leads_to_its_files(show, study):
    tab = show(page_of(study, PICTURES).encode())
    results = tab.locator("table", has=tab.locator("a[data-name]"))
    cells = results.locator("tbody tr td:nth-child(2)")
    first = [float(cell.split()[0]) for cell in cells.all_inner_texts()]
    assert first == sorted(first, reverse=True)
    results.locator("th button").nth(1).click()
    second = [float(cell.split()[0]) for cell in cells.all_inner_texts()]
    assert second == sorted(first)

    tab.locator("a[data-name='gaussian']").click()
    told = tab.locator(".level:visible details[data-name='gaussian']").inner_text()
    assert "dvc repro certify@tiny-gaussian-0.25-0" in told
    images = tab.locator(".level:visible .sortable", has=tab.locator(".picture"))
    images.locator("input").fill("ABSTAINS")
    shown = images.locator("tbody tr:visible").all_inner_texts()
    assert 0 < len(shown) < IMAGES
    assert all("abstains" in row for row in shown)


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_phones_and_desktops_in_light_and_dark(show, study, width, scheme):
    look = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    tab = show(page_of(study, PICTURES).encode(), **look)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) > 380) == (scheme == "light")
    for place in tab.locator(".level:visible .chart").all():
        place.scroll_into_view_if_needed()
        assert 200 < place.locator("svg").bounding_box()["width"] <= width
    pictures = tab.locator(".picture:visible").all()
    for gray, picture in list(zip(GRAYS, pictures, strict=True))[::5]:
        seen = Image.open(io.BytesIO(picture.screenshot())).convert("L")
        assert seen.getpixel((20, 20)) == gray


# -------------------------------------------------------------------------------------------------
# colors


def luminance(color):
    """The relative luminance of a color ``#rrggbb`` (WCAG 2.1)."""
    channels = np.array([*bytes.fromhex(color[1:])]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(first, second):
    """The contrast ratio of two colors, from 1 to 21 (WCAG 2.1)."""
    darker, lighter = sorted([luminance(first), luminance(second)])
    return (lighter + 0.05) / (darker + 0.05)


def test_every_line_is_legible_on_light_and_dark_pages(text):
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    papers = re.findall(r"--paper: (#\w+)", style)
    inks = re.findall(r"--ink: (#\w+)", style)
    parts = style.split("--paper: ")[1:]
    assert len({*papers}) == 2
    for paper, ink, part in zip(papers, inks, parts, strict=True):
        series = re.findall(r"--series-\d+: (#\w+)", part)
        assert len(set(series)) == len(page_charts.SERIES)
        assert min(contrast(color, paper) for color in [*series, ink]) >= 3
