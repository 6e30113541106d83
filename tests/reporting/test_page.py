"""The page of a study: what it holds, that its numbers are Python's, and, where there is a browser,
what it does.
"""

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from scipy.special import ndtri

from rs.errors import InputError
from rs.params import read_params
from rs.reporting import page, page_data
from rs.reporting.load import StudyFiles
from rs.reporting.page_data import Pictures
from rs.reporting.results import grouped
from rs.statistics.certificate import parse_counts
from rs.statistics.comparison import estimate, sample
from rs.statistics.radius import lower_bound
from rs.statistics.resampling import two_sided
from rs.storage import certificate_rows, files
from tests.support.helpers import ROOT, refuses, write_row_file
from tests.support.label_bounds import label_bounds
from tests.support.tiny_study import (
    ALPHA,
    CLASSES,
    IMAGES,
    N0,
    SIGMAS,
    N,
    add_family,
    add_vote,
    make_study,
    write_rows,
)

NODE = shutil.which("node")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_node = pytest.mark.skipif(NODE is None, reason="node runs the page's mathematics")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="a Chromium shows the page")


TOLERANCE = 1e-9
PATIENCE = 300_000
"""Milliseconds until a browser on a busy machine is given up."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with families of ensembles."""
    return add_family(make_study(tmp_path_factory.mktemp("study")))


def read_study(root):
    """What the page of the study in ``root`` is made of."""
    values = read_params(root / "params.yaml")
    folders = [root / name for name in ("results", "weights")]
    declared = StudyFiles(values, "tiny", *folders)
    groups = grouped([*declared.read_models(), *declared.read_ensembles()])
    return groups, declared


def page_of(root, pictures=None):
    return page.study_page(*read_study(root), pictures).decode()


@pytest.fixture(scope="module")
def groups(study):
    """Its results by noise level."""
    return read_study(study)[0]


@pytest.fixture(scope="module")
def text(study):
    return page_of(study)


def data_of(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    )


def scripts_of(text):
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def votes_of_level(level):
    """Columns of votes as the page packs them, (4, results, images)."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(level["votes"])), dtype=np.uint8)
    planes = raw.reshape(level["width"], 4, len(level["results"]), -1).astype(np.int64)
    return sum(plane << (8 * byte) for byte, plane in enumerate(planes))


# -------------------------------------------------------------------------------------------------
# what it holds


class Reader(HTMLParser):
    """Collects what a page could ask the network for, and elements that are not closed."""

    def __init__(self):
        super().__init__()
        self.asked, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.asked += [
            value for name, value in attrs if name in ("src", "href", "action", "srcset", "data")
        ]
        self.open += [] if tag in ("meta", "input", "link", "br") else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_nothing_in_the_page_names_another_file(text):
    reader = Reader()
    reader.feed(text)
    assert reader.asked == []
    assert reader.open == []
    assert "url(" not in re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]


def test_the_page_forbids_every_program_but_its_own_and_every_request(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in scripts_of(text)
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert len(hashes) == 3
    assert rules["img-src"] == "data:"
    assert set(rules) == {
        "default-src",
        "script-src",
        "style-src",
        "img-src",
        "base-uri",
        "form-action",
    }


def test_the_votes_in_the_page_are_those_of_the_rows(groups, text):
    data = data_of(text)
    assert [level["sigma"] for level in data["levels"]] == list(SIGMAS)
    for level in data["levels"]:
        other, missing, rest, own = votes_of_level(level)
        results = [result for group in groups[level["sigma"]].values() for result in group.results]
        assert len(results) == len(level["results"])
        for i, result in enumerate(results):
            for k, (_, row) in enumerate(result.rows.sort_values("idx").iterrows()):
                first, counts = parse_counts(row["counts0"]), parse_counts(row["counts"])
                chosen = min(first, key=lambda c: (-first[c], c))
                second = max([votes for c, votes in counts.items() if c != chosen], default=0)
                assert other[i, k] == (0 if chosen == row["label"] else chosen + 1)
                assert missing[i, k] == N - counts.get(chosen, 0)
                assert missing[i, k] - rest[i, k] == second
                assert own[i, k] == (0 if chosen == row["label"] else counts.get(row["label"], 0))


def test_skipped_draws_have_a_number_of_their_own(study):
    path = study / "results/0.25/gaussian-0.tsv"
    rows = certificate_rows.read_rows(path)[:2]
    skipped = rows.assign(n=0, counts="-", counts0=f"2:{N0}", label=1)
    assert page_data.vote_columns(skipped, N).tolist() == [[3, 3], [N + 1, N + 1], [0, 0], [0, 0]]


def test_votes_of_more_than_two_bytes_are_packed_too():
    columns = np.array([[[3, 0]], [[100_001, 65_536]], [[0, 255]], [[256, 70_000]]]).swapaxes(0, 1)
    level = {"votes": page_data.packed(list(columns), 4), "width": 4, "results": [None]}
    assert votes_of_level(level).tolist() == columns.swapaxes(0, 1).tolist()


def test_every_command_is_that_of_the_pipeline(text):
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    data = data_of(text)
    seen = set()
    for level in data["levels"]:
        for result in level["results"]:
            stage, item = result["target"].split("@")
            seen.add(stage)
            dataset, *method, sigma = re.fullmatch(
                r"(tiny)-(?:(\w+)-)?([\d.]+)(?:-\d+)?", item
            ).groups()
            command = re.sub(r"\s+", " ", stages[stage]["cmd"])
            item = {
                "dataset": dataset,
                "method": method[0],
                "sigma": sigma,
                "seed": item.rpartition("-")[2],
            }
            assert result["command"] == re.sub(
                r"\$\{item\.(\w+)\}", lambda match, item=item: item[match[1]], command
            )
            assert f"--out {result['file']}" in result["command"] or "/pool/" in result["file"]
    assert seen == {"certify", "certify_ensembles"}


def test_the_bytes_depend_on_no_folder_and_come_again(study, text, tmp_path):
    shutil.copytree(study, tmp_path / "elsewhere")
    assert page_of(tmp_path / "elsewhere") == text
    assert str(study) not in text


def test_a_page_that_would_be_too_large_has_the_first_images(study, text, monkeypatch):
    monkeypatch.setattr(page, "LIMIT", len(text.encode()) - 1)
    less = data_of(page_of(study))
    assert (less["images"], less["certified"]) == (IMAGES // 2, IMAGES)
    for level, whole in zip(less["levels"], data_of(text)["levels"], strict=True):
        assert level["labels"] == whole["labels"][: IMAGES // 2]
        assert (votes_of_level(level) == votes_of_level(whole)[:, :, : IMAGES // 2]).all()


def test_results_without_votes_are_left_out(study, tmp_path):
    shutil.copytree(study, tmp_path / "s")
    for path in (tmp_path / "s/results").rglob("*.tsv"):
        rows = certificate_rows.read_rows(path)
        write_row_file(rows.assign(mode=f"acr-error:0.1:{N}"), path)
    assert page.study_page(*read_study(tmp_path / "s")) is None


GREYS = np.linspace(10, 250, IMAGES).astype(np.uint8)
"""One for each image."""

PICTURES = Pictures(
    ("cat", "dog", "frog"), "f" * 64, np.broadcast_to(GREYS[:, None, None, None], (IMAGES, 1, 8, 8))
)


def test_pictures_of_other_images_than_those_of_the_rows_are_refused(study, tmp_path):
    shutil.copytree(study, tmp_path / "s")
    side = tmp_path / "s/results/0.25/gaussian-0.json"
    for images in ("f", "e"):
        files.write_json(side, files.read_json(side) | {"images": images * 64})
        if images == "f":
            assert data_of(page_of(tmp_path / "s", PICTURES))["classes"] == ["cat", "dog", "frog"]
    with pytest.raises(
        InputError, match="--data or --images must hold the test images that the rows are of, eee"
    ):
        page_of(tmp_path / "s", PICTURES)


# ------------------------------------------------------------------------------------------- its
# mathematics


def page_says(data, index, expression):
    """The value of an expression in the names of the page's program, of the classifier ``index`` of
    the first level.
    """
    scripts = [(page.WEB / name).read_text() for name in ("statistics.js", "page.js")]
    program = "".join(script.replace("\nstart();\n", "\n") for script in scripts)
    stub = "const document = { getElementById: () => ({ textContent: given }) }, matchMedia = () => ({});"
    settings = "sigma: 0, sides: 'one', filter: 'all', sort: 'index', alpha: DATA.alpha, images: DATA.images"
    program = f"""const given = require('fs').readFileSync(0, 'utf-8'); {stub}
        {program.replace('"use strict";', "")}
        readVotes(level()).then(() => {{
          state.bounds = boundsOf(DATA.n, state.alpha);
          state.certificates = remembered((index) => certificatesOf(level(), index));
          console.log(JSON.stringify({expression}));
        }});""".replace(
        "const state = {};", f"const state = {{ {settings}, classifier: {index} }};"
    )
    done = subprocess.run(
        [NODE, "-e", program], input=json.dumps(data), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def add_set(root):
    """Write an ensemble with votes for no class, which win the n0 draws and nearly all others of
    the first image.
    """
    params = (root / "params.yaml").read_text(encoding="utf-8")
    entry = "  set: {rule: softmax, scope: set, low: 0.2, high: 0.8}\n  per-image:"
    params = params.replace("  per-image:", entry, 1).replace(
        "[average, per-image]", "[average, per-image, set]", 1
    )
    files.write_text(root / "params.yaml", params)
    for sigma in SIGMAS:
        pool = root / "results" / str(sigma) / "pool"
        rows = certificate_rows.read_rows(pool / "advmacer-0-1.average.tsv").assign(scope="set")
        none = {
            "predict": -1,
            "radius": 0.0,
            "correct": 0,
            "p_lower": 0.0,
            "counts0": f"{CLASSES}:{N0}",
        }
        none["counts"] = f"0:3,{CLASSES}:{N - 3}"
        write_rows(
            rows.assign(**{k: rows[k].mask(rows["idx"] == 0, v) for k, v in none.items()}),
            pool / SET,
        )
    return root


SET = "advmacer-0-1.set.tsv"


@needs_node
def test_votes_for_no_class_make_no_certificate(tmp_path):
    study = add_set(make_study(tmp_path))
    data = data_of(page_of(study))
    path = study / "results" / "0.25" / "pool" / SET
    rows = certificate_rows.read_rows(path)
    assert data_of(page.rows_page([path]).decode())["levels"][0]["results"][0]["classes"] is None
    names = [one["file"] for one in data["levels"][0]["results"]]
    index = names.index(f"results/tiny/0.25/pool/{SET}")
    found = page_says(
        data,
        index,
        "Object.values(certificates(state.classifier)).map((column) => Array.from(column))",
    )
    close(found[0], rows["radius"])
    close(found[3], label_bounds(rows))
    listed = page_says(data, index, "imageRows()")
    assert [one["kind"] for one in listed] == [
        "abstains" if predict == -1 else "right" if correct else "mistakes"
        for predict, correct in zip(rows["predict"], rows["correct"], strict=True)
    ]
    assert (rows["predict"] >= 0).any()


def test_row_files_of_no_study_have_a_page_with_their_names_and_numbers(study):
    paths = [study / "results/0.25" / name for name in ("gaussian-0.tsv", "advmacer-0.tsv")]
    data = data_of(page.rows_page(paths).decode())
    assert [group["name"] for group in data["levels"][0]["groups"]] == ["gaussian-0", "advmacer-0"]
    assert [result["command"] for result in data["levels"][0]["results"]] == [
        f"rs show {path}" for path in paths
    ]
    assert [result["classes"] for result in data["levels"][0]["results"]] == [CLASSES, CLASSES]
    if NODE:
        numbers = page_says(
            data, 0, "numbersOf(level().groups).map(({acr}) => [acr.value, acr.errorImages])"
        )
        scores = [estimate(sample([certificate_rows.read_rows(path)], [()])) for path in paths]
        close(numbers, np.array([[score.value, score.error_images] for score in scores]))


def test_a_page_of_row_files_needs_their_votes_and_the_same_images(study, tmp_path, monkeypatch):
    path = study / "results/0.25/gaussian-0.tsv"
    for sigma in SIGMAS:
        rows = pd.read_csv(study / f"results/{sigma}/gaussian-0.tsv", sep="\t", dtype=str)
        rows[1:].to_csv(tmp_path / "fewer.tsv", sep="\t", index=False)
        with pytest.raises(InputError, match="same images, got 12 and 11"):
            page.rows_page([path, tmp_path / "fewer.tsv"])
    monkeypatch.setattr(page, "has_votes", lambda result: False)
    with refuses(
        "must have labels and all votes of one classifier to be reported, but it has no votes"
    ):
        page.rows_page([path])
    monkeypatch.undo()
    write_row_file(
        certificate_rows.read_rows(path).assign(mode=f"acr-error:0.1:{N}"), tmp_path / "early.tsv"
    )
    with refuses(rf"but it is of mode acr-error:0\.1:{N}; rs show reads it"):
        page.rows_page([tmp_path / "early.tsv"])


def close(found, wanted):
    assert np.abs(np.array(found, dtype=float) - wanted).max() <= TOLERANCE


# ---------------------------------------------------------------------------------------------- in
# a browser


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Shown:
    """The page in a tab, and what it asked for and complained of."""

    def __init__(self, browser, path, **look):
        self.tab, self.said, self.asked = browser.new_page(**look), [], []
        self.tab.set_default_timeout(PATIENCE)
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.url, self.updates = path.as_uri(), 0
        self.tab.goto(self.url)
        self.updated()

    def updated(self):
        """Wait for the next update."""
        self.updates += 1
        self.tab.wait_for_selector(f'html[data-ready="{self.updates}"]', state="attached")

    def set(self, control, value):
        """Move a slider, as a hand does."""
        self.tab.locator(control).evaluate(
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", value
        )
        self.updated()

    def table(self, name):
        """Cells of the body of a table, as text."""
        rows = self.tab.locator(f"#{name} tbody tr").all()
        return [row.locator("td").all_inner_texts() for row in rows]

    def numbers(self):
        """The headline numbers that the page has computed, by method."""
        pick = "({group, acr, clean}) => [group.name, acr && {...acr, clean}]"
        return dict(self.tab.evaluate(f"() => state.headline.map({pick})"))


@pytest.fixture
def show(browser, tmp_path):
    """Open pages in tabs; in the end none of them has complained of anything, and all are closed."""
    tabs = []

    def opened(content, **look):
        (tmp_path / "index.html").write_bytes(content)
        tabs.append(Shown(browser, tmp_path / "index.html", **look))
        return tabs[-1]

    yield opened
    for shown in tabs:
        assert shown.said == []
        shown.tab.close()


@pytest.fixture
def shown(show, text):
    shown = show(text.encode())
    yield shown
    assert shown.asked == [shown.url]


def rows_at(rows, alpha=ALPHA, images=IMAGES):
    """The first rows with the radii of another alpha."""
    rows = rows.sort_values("idx")[:images].reset_index(drop=True)
    votes = [parse_counts(text).get(0, 0) for text in rows["counts"]]  # class 0 was chosen
    low = lower_bound(votes, N, alpha)
    predict = np.where(low >= 0.5, 0, -1)
    radii = float(rows["sigma"][0]) * ndtri(np.maximum(low, 0.5))
    return rows.assign(
        radius=radii, predict=predict, correct=(predict == rows["label"]).astype(int), alpha=alpha
    )


def check_headline(shown, methods, change):
    """Hold the numbers on the page against those of Python's rows after ``change``."""
    numbers = shown.numbers()
    assert len(numbers) >= 4
    for name, found in numbers.items():
        group = methods[name]
        frames = [change(rows) for rows in group.rows]
        wanted = estimate(sample(frames, [result.seeds for result in group.results]))
        close([found["value"], found["errorImages"]], [wanted.value, wanted.error_images])
        close([found["error"] or 0], [wanted.error or 0])
        close([found["clean"]], [np.mean([frame["correct"].mean() for frame in frames])])


@needs_chromium
def test_the_page_shows_the_numbers_of_the_study(shown, groups):
    check_headline(shown, groups[0.25], lambda rows: rows)
    shown.tab.select_option("#sigma", "1")
    shown.updated()
    check_headline(shown, groups[0.5], lambda rows: rows)
    assert [row[0] for row in shown.table("headline")] == list(shown.numbers())


@needs_chromium
def test_the_sliders_recompute_every_number(shown, groups):
    shown.set("#alpha", "-4")
    assert shown.tab.locator("#alpha-text").inner_text() == "1e-4"
    check_headline(shown, groups[0.25], lambda rows: rows_at(rows, 1e-4))
    shown.set("#images", "10")
    assert shown.tab.locator("#images-text").inner_text() == "first 10"
    check_headline(shown, groups[0.25], lambda rows: rows_at(rows, 1e-4, 10))
    assert shown.tab.locator("#status").inner_text() == "recomputed from the votes"
    shown.tab.click("#reset")
    shown.updated()
    check_headline(shown, groups[0.25], lambda rows: rows)
    assert shown.tab.locator("#status").inner_text() == "as certified"


@needs_chromium
def test_two_sided_radii_are_those_of_the_same_votes(shown, groups):
    before = shown.numbers()
    shown.tab.check("input[value=two]")
    shown.updated()
    check_headline(shown, groups[0.25], lambda rows: two_sided(rows, CLASSES)["even"])
    assert shown.numbers() != before


@needs_chromium
def test_the_bounds_of_labels_are_those_of_the_rows(shown, groups):
    results = [result for group in groups[0.25].values() for result in group.results]
    for index, result in enumerate(results):
        found = shown.tab.evaluate(f"() => Array.from(certificates({index}).label)")
        close(found, label_bounds(result.rows.sort_values("idx")))


@needs_chromium
def test_the_switches_choose_the_lines_of_both_charts(shown):
    from playwright.sync_api import expect

    def check_lines(count):
        for chart in ("curves-chart", "probability-chart"):
            expect(shown.tab.locator(f"#{chart} g.mark-line path")).to_have_count(
                count, timeout=PATIENCE
            )

    check_lines(2)
    shown.tab.uncheck("#toggles input[value=gaussian]")
    check_lines(1)
    shown.tab.locator("#toggles h3 button", has_text="all").last.click()
    check_lines(shown.tab.locator("#toggles input").count() - 1)
    for button in shown.tab.locator("#toggles h3 button", has_text="none").all():
        button.click()
    expect(shown.tab.locator("#curves-chart")).to_be_hidden(timeout=PATIENCE)


@needs_chromium
def test_a_link_keeps_noise_level_alpha_and_methods(shown):
    shown.tab.select_option("#sigma", "1")
    shown.updated()
    shown.set("#alpha", "-4")
    shown.tab.uncheck("#toggles input[value=gaussian]")
    shown.tab.wait_for_url("**#sigma=0.5&alpha=0.0001&method=advmacer")
    shown.tab.reload()
    shown.updates = 0
    shown.updated()
    assert shown.tab.locator("#sigma").evaluate("e => e.selectedOptions[0].text") == "0.5"
    assert "α = 0.0001." in shown.tab.locator("#about").inner_text()
    assert not shown.tab.is_checked("#toggles input[value=gaussian]")
    shown.asked.pop()
    shown.tab.evaluate("location.hash = '#sigma=0.25&alpha=0.001&method=gaussian'")
    shown.updated()
    assert shown.tab.locator("#sigma").evaluate("e => e.selectedOptions[0].text") == "0.25"


@needs_chromium
def test_claims_stand_on_the_page_and_no_heading_is_under_the_bar(show, study):
    claims = [["claim", "held", "tie"], ["AdvMacer beats SmoothAdv", "1", "2"]]
    shown = show(page.study_page(*read_study(study), claims=claims))
    assert shown.table("claims-table") == claims[1:]
    for link in shown.tab.locator("#contents a").all():
        heading = shown.tab.get_by_role("heading", name=link.inner_text(), exact=True)
        link.click()
        bar = shown.tab.locator("#controls").bounding_box()
        assert heading.bounding_box()["y"] >= bar["y"] + bar["height"]


@needs_chromium
def test_any_number_leads_to_its_rows_command_and_parameters(shown):
    shown.tab.locator("#headline .value").first.click()
    panel = shown.tab.locator("#panel")
    told = panel.inner_text()
    assert "results/tiny/0.25/gaussian-0.tsv" in told
    assert "make study DATASET=tiny TARGETS=certify@tiny-gaussian-0.25-0" in told
    assert "python -m stages.certify models/tiny/0.25/gaussian/0 --dataset tiny" in told
    assert f"n {N}, alpha {ALPHA}" in told
    panel.locator("button").click()
    assert not panel.is_visible()
    shown.tab.locator("#combinations .value").last.click()
    assert "stages.certify_ensembles tiny" in panel.inner_text()
    shown.tab.keyboard.press("Escape")
    shown.tab.locator("#members-chart g.mark-symbol path").first.click(force=True)
    assert "results/tiny/" in panel.inner_text()


@needs_chromium
def test_the_table_of_combinations_tells_which_are_not_sound(shown):
    rows = {tuple(row[:2]): row for row in shown.table("combinations")}
    (unsound,) = [row for row in rows.values() if "not sound" in row[1]]
    assert unsound[1].startswith("per-image †")
    assert "not sound" in shown.tab.locator("#unsound").inner_text()
    assert shown.tab.locator("#combinations tr.best", has_text="†").count() == 0


@needs_chromium
def test_images_are_filtered_and_sorted(shown, groups):
    rows = groups[0.25]["gaussian"].rows[0]
    wanted = {
        "all": rows,
        "right": rows[rows["correct"] == 1],
        "abstains": rows[rows["predict"] == -1],
        "mistakes": rows[(rows["predict"] >= 0) & (rows["correct"] == 0)],
        "skipped": rows[:0],
    }
    assert all(len(wanted[name]) for name in ("right", "abstains", "mistakes"))
    for name, frame in wanted.items():
        shown.tab.select_option("#filter", name)
        assert {row[0] for row in shown.table("gallery")} == {f"image {i}" for i in frame["idx"]}
    shown.tab.select_option("#filter", "all")
    for order, sign in (("largest", -1), ("smallest", 1)):
        shown.tab.select_option("#sort", order)
        radii = [float(row[3]) for row in shown.table("gallery")]
        assert radii == sorted(radii, key=lambda radius, sign=sign: sign * radius)
    shown.tab.select_option("#sort", "index")
    assert [row[0] for row in shown.table("gallery")] == [f"image {i}" for i in range(IMAGES)]


@needs_chromium
def test_images_have_their_pictures_and_the_names_of_their_classes(show, study):
    shown = show(page_of(study, PICTURES).encode())
    shown.tab.select_option("#sort", "smallest")
    rows = shown.table("gallery")
    labels = {f"image {idx}": idx % 2 for idx in range(IMAGES)}
    assert [row[1] for row in rows] == [("cat", "dog")[labels[row[0]]] for row in rows]
    assert {row[2] for row in rows} == {"cat", "abstains"}
    assert all(row[4].endswith(" for cat") for row in rows)
    for row, cut in zip(rows, shown.tab.locator("#gallery .picture").all(), strict=True):
        seen = Image.open(io.BytesIO(cut.screenshot())).convert("L")
        assert seen.getpixel((24, 24)) == GREYS[int(row[0].removeprefix("image "))]
    assert "not in this page" not in shown.tab.locator("#found").inner_text()
    assert [url for url in shown.asked if not url.startswith("data:")] == [shown.url]


@needs_chromium
def test_a_page_of_one_row_file_compares_it_with_nothing(show, study):
    shown = show(page.rows_page([study / "results/0.25/gaussian-0.tsv"]))
    acr, error = (shown.numbers()["gaussian-0"][name] for name in ("value", "errorImages"))
    summary = shown.tab.locator("#summary").inner_text()
    assert summary == f"At σ = 0.25, gaussian-0 has an ACR of {acr:.3f} ± {error:.3f}."
    assert shown.tab.locator("#acr-chart").is_visible()
    assert shown.tab.locator("figcaption", has_text="Paired difference").is_hidden()
    assert shown.tab.locator("#cost").is_hidden()


@needs_chromium
def test_a_page_of_rows_that_are_not_sound_says_so(show, study):
    shown = show(page.rows_page([study / "results/0.25/pool/advmacer-0-1.per-image.tsv"]))
    assert (
        shown.tab.locator("#summary").inner_text() == "No result has a sound one-sided certificate."
    )
    assert shown.tab.locator("#unsound").is_visible()


@needs_chromium
def test_the_summary_names_the_largest_acr_of_all_rules(show, tmp_path):
    shown = show(page_of(add_vote(make_study(tmp_path))).encode())
    assert "of all 5 models and ensembles" in shown.tab.locator("#largest").inner_text().lower()
    assert shown.tab.locator("#largest b").inner_text() == "advmacer 0-1 (vote)"
    headline = shown.tab.locator("#summary b").inner_text()
    bold = shown.tab.locator("#headline tr.best td:first-child").all_inner_texts()
    assert headline in bold
    tied = shown.tab.locator(
        "#headline tr.best", has=shown.tab.locator("td:nth-child(2) .tag")
    ).count()
    assert len(bold) == 1 + tied
    assert "vote" not in " ".join(row[0] for row in shown.table("headline"))


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_phones_and_desktops_in_light_and_dark(show, text, width, scheme):
    shown = show(text.encode(), viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert shown.tab.evaluate("document.documentElement.scrollWidth") == width
    paper = shown.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) > 380) == (scheme == "light")
    for chart in shown.tab.locator(".chart svg").all():
        assert 200 < chart.bounding_box()["width"] <= width
    assert shown.tab.locator(".chart svg").count() == 6
