"""The checker of bundles: its bounds against the library's, and forgeries of every field and cell, hashes included."""

import itertools
import json
import lzma
import math
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rs.command_line.main import app
from rs.errors import InputError
from rs.reporting import check
from rs.reporting.bundle import make_bundle, verify
from rs.study.subset import select, subset_name
from tests.support.helpers import python
from tests.support.tiny_bundle import make_bundled_study, packed


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_bundled_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def bundle(study):
    return make_bundle(study, study / "params.yaml", "tiny")[0]


@pytest.fixture(scope="module")
def content(bundle):
    return check.unpack(bundle)


def refused(bundle, judge=check.check_bundle):
    """What the checker says of a forgery; empty if it passes."""
    try:
        judge(bundle)
    except (check.BundleError, InputError, *check.FAULTS) as error:
        return str(error) or type(error).__name__
    return ""


def refused_by_library(bundle):
    """What the library says of a forgery, which reads the parameters and members too; empty if it passes."""
    return refused(bundle, lambda data: verify(data, "forged.tar.xz"))


# ------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("t", [1e-12, 1e-9, 1e-6, 1.0])
def test_p_values_near_1_keep_their_digits(t):
    """One degree of freedom is Cauchy's law."""
    assert 1 - check.student(t, 1.0, 1) == pytest.approx(2 / math.pi * math.atan(t), rel=1e-3, abs=3e-16)


# ------------------------------------------------------------------------------------------------- bundles


def test_a_bundle_passes_and_its_bytes_repeat(study, bundle):
    assert check.check_bundle(bundle)[-1] == "nothing contradicts the votes"
    assert make_bundle(study, study / "params.yaml", "tiny")[0] == bundle


def test_the_checker_runs_alone(bundle, content, tmp_path):
    """By the copy in the bundle, in a Python that sees no other package."""
    (tmp_path / "check.py").write_bytes(content["check.py"])
    for name, data in (("good", bundle), ("bad", bundle[:-1])):
        (tmp_path / name).write_bytes(data)
    good, bad = (python("-I", "-S", "check.py", name, cwd=tmp_path) for name in ("good", "bad"))
    assert (good.returncode, good.stdout.splitlines()) == (0, check.check_bundle(bundle))
    assert bad.returncode == 1
    assert bad.stderr.startswith("refused: ")


@pytest.mark.trust_only
def test_every_bit_of_an_archive_counts():
    """Of a small one, whose container is that of all: its compressed data, their frame, and the tar within."""
    small = packed({"a.txt": b"one file\n", "b/c.txt": bytes(range(200))})
    assert set(check.unpack(small)) == {"a.txt", "b/c.txt", check.MANIFEST}
    passed = []
    for at, bit in itertools.product(range(len(small)), range(8)):
        try:
            check.unpack(_with_byte(small, at, small[at] ^ 1 << bit))
            passed.append((at, bit))
        except (check.BundleError, *check.FAULTS):
            pass
    assert passed == []


@pytest.mark.trust_only
def test_every_byte_of_the_tar_counts_where_it_is_compressed_anew():
    tar = lzma.decompress(packed({"a.txt": b"one file\n", "b/c.txt": bytes(200)}))
    for at in range(len(tar)):
        with pytest.raises((check.BundleError, *check.FAULTS)):
            check.unpack(lzma.compress(_with_byte(tar, at, tar[at] ^ 1), preset=0))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_altered_byte_passes(bundle, data):
    at = data.draw(st.integers(0, len(bundle) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != bundle[at]))
    assert refused(_with_byte(bundle, at, value))


@pytest.mark.parametrize("change", [lambda b: b + b"\0", lambda b: b + b, lambda b: b[:-4], lambda b: b""])
def test_an_archive_with_more_or_less_is_refused(bundle, change):
    assert refused(change(bundle))


def _with_byte(bundle, at, value):
    return bundle[:at] + bytes([value]) + bundle[at + 1 :]


# ------------------------------------------------------------------------------------------------- forgeries

ROWS = "results/tiny/0.5/advmacer-0.tsv"
ENSEMBLE = "results/tiny/0.25/pool/advmacer-0-1.average"
FREE = {"model", "classifier", "device"}
"""Of a sidecar, what no number of the bundle contradicts: where the model was, and the machine."""


def altered(text):
    """Another value of the same kind."""
    if re.fullmatch(r"-?\d+", text):
        return str(int(text) + 1)
    try:
        return repr(float(text) * (1 + 1e-5) if float(text) else 0.125)
    except ValueError:
        return {"True": "False", "False": "True"}.get(text, text + "x")


@pytest.mark.parametrize("name", check.HEADER.split("\t"))
def test_a_field_of_a_row_is_caught_with_its_hash_made_anew(content, name):
    head, first, *lines = content[ROWS].decode().split("\n")
    row = dict(zip(head.split("\t"), first.split("\t"), strict=True))
    row[name] = altered(row[name]) if not name.startswith("counts") else re.sub(r"\d+$", "7", row[name])
    forged = "\n".join([head, "\t".join(row.values()), *lines])
    assert forged.encode() != content[ROWS]
    assert ROWS in refused(packed(content | {ROWS: forged.encode()}))


@pytest.mark.parametrize("move", [1, -1])
def test_a_vote_that_goes_to_another_class_is_caught(content, move):
    head, first, *lines = content[ROWS].decode().split("\n")
    moved = re.sub(r"0:(\d+),1:(\d+)", lambda m: f"0:{int(m[1]) - move},1:{int(m[2]) + move}", first)
    assert moved != first
    assert "p_lower" in refused(packed(content | {ROWS: "\n".join([head, moved, *lines]).encode()}))


@pytest.mark.parametrize("path", [f"{ROWS[:-4]}.json", f"{ENSEMBLE}.json"])
def test_a_field_of_a_sidecar_is_caught_with_its_hash_made_anew(content, path):
    side = json.loads(content[path])
    passed = []
    for name, value in side.items():
        other = (not value) if isinstance(value, bool) else altered(str(value))
        forged = packed(content | {path: json.dumps(side | {name: type(value)(other)}).encode()})
        passed += [] if refused_by_library(forged) else [name]
    assert set(passed) <= FREE


def test_a_member_of_an_ensemble_is_caught_with_its_hash_made_anew(content):
    path = f"{ENSEMBLE}.json"
    for name in ("method", "seed", "classifier"):
        side = json.loads(content[path])
        one = side["members"][1]
        one[name] = type(one[name])(altered(str(one[name])))
        assert refused_by_library(packed(content | {path: json.dumps(side).encode()}))


@pytest.mark.parametrize("name", ["main", "differences", "ensembles-0.25", "certified-0.5"])
def test_every_derived_cell_of_a_table_is_caught(content, name):
    study = json.loads(content["study.json"])
    derived = check.tables(check.read_results(content, study)[0], study)[name]
    lines = check.parse_table(name, content[f"reports/tiny/{name}.csv"].decode())
    check.check_lines(name, lines, derived)
    columns = {column for line in derived for column in line}
    cells = [(i, column) for i, line in enumerate(lines) for column in line if column in columns]
    for i, column in cells:
        if lines[i][column]:
            forged = [line | ({column: altered(line[column])} if i == k else {}) for k, line in enumerate(lines)]
            with pytest.raises(check.BundleError):
                check.check_lines(name, forged, derived)


@pytest.mark.parametrize(
    ("scope", "stated"), [("set", {}), ("global", {"acr_two_sided": "0.3", "acr_two_sided_votes": ""})]
)
def test_the_scope_says_whether_two_sided_radii_are_stated(scope, stated):
    cells = {"acr": "0.25", "scope": scope, "members_per_draw": "3.0"}
    check.check_lines("ensembles-0.5.csv", [cells | stated], [{"acr": 0.25, "scope": scope}])
    with pytest.raises(check.BundleError, match="must have the columns"):
        check.check_lines("ensembles-0.5.csv", [cells | {"acr_two_sided": "1"}], [{"acr": 0.25, "scope": scope}])


MAIN, ENSEMBLES, PAGE = ("reports/tiny/" + name for name in ("main.csv", "ensembles-0.5.csv", "claims.md"))


def column(text, name, value=None):
    """A table in CSV with one more column, or, of a name that it has, without that column."""
    header, *lines = [line.split(",") for line in text.removesuffix("\n").split("\n")]
    if value is None:
        at = header.index(name)
        cells = [line[:at] + line[at + 1 :] for line in [header, *lines]]
    else:
        cells = [[name, *header], *([value, *line] for line in lines)]
    return "".join(",".join(line) + "\n" for line in cells)


def hidden(page):
    """The claims in a comment, and others on the page."""
    start = page.index("## Claims")
    shown = re.sub(r"(?m)^\| ", " | ", page[start:].replace("| tie |", "| held |"))
    return f"{page[:start]}<!--\n{page[start:]}-->\n{shown}"


FORGERIES = {
    "a second column acr": {MAIN: lambda text: column(text, "acr", "9.9")},
    "a column with another name": {MAIN: lambda text: column(text, "true_acr", "9.9")},
    "words in a column that is not derived": {
        MAIN: lambda text: column(column(text, "acr_two_sided"), "acr_two_sided", "acr 9.9")
    },
    "without a column that is not derived": {MAIN: lambda text: column(text, "acr_two_sided")},
    "a column of another table": {ENSEMBLES: lambda text: column(text, "radius", "0.9")},
    "without an error": {ENSEMBLES: lambda text: column(text, "members_error")},
    "without a method": {MAIN: lambda text: re.sub(r"\ngaussian,[^\n]*", "", text)},
    "a line twice": {MAIN: lambda text: text + text.split("\n")[1] + "\n"},
    "a table without lines": {"reports/tiny/differences.csv": lambda text: text.split("\n")[0] + "\n"},
    "claims in a comment": {PAGE: hidden},
    "another page below": {PAGE: lambda text: text + "\nAdvMacer is the best.\n"},
    "a table in the prose": {PAGE: lambda text: text.replace("## What", "| AdvMacer | held |\n\n## What", 1)},
    "other images in the prose": {PAGE: lambda text: text.replace("12 images (subset", "12,000 images (subset", 1)},
    "mark-up in a claim that is not derived": {PAGE: lambda text: re.sub(r"(attacks \|)  \|", r"\1 <b>1</b> |", text)},
    "a name twice in a sidecar": {f"{ROWS[:-4]}.json": lambda text: text.replace("{", '{"alpha": 0.5,', 1)},
    "a name twice in the protocol": {"study.json": lambda text: text.replace("{", '{"dataset": "digits",', 1)},
    "a number with other digits": {ROWS: lambda text: text.replace("\n3\t", "\n0_3\t", 1)},
    **{
        f"a file {name}": {name: lambda _: "{}"}
        for name in ("README.md", "results/../reports/tiny/main.csv", "reports/tiny/metrics.json", "reports/main.csv")
    },
    "without tables": {f"reports/tiny/{name}.csv": None for name in ("main", "differences", "certified-0.25")},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_with_its_hashes_made_anew(content, name):
    forged = dict(content)
    for path, change in FORGERIES[name].items():
        forged[path] = b"" if change is None else change(content.get(path, b"").decode()).encode()
        if change is None:
            del forged[path]
    assert forged != content
    assert refused(packed(forged))


def test_a_verdict_is_caught_with_its_hash_made_anew(content):
    path = "reports/tiny/claims.md"
    lines = content[path].decode().split("\n")
    claims = [at for at, line in enumerate(lines) if line.startswith(("| AdvMacer beats SmoothAdv", "| EsbRS"))]
    assert claims
    for at in claims:
        forged = list(lines)
        forged[at] = re.sub(r"(tie|not tested|held|\d)(\D*)$", r"0held\2", lines[at])
        assert "claims.md" in refused(packed(content | {path: "\n".join(forged).encode()}))


def test_the_manifest_must_be_that_of_the_files(content):
    for text in (b"{}", content[check.MANIFEST].replace(b"0", b"1", 1)):
        tar = check.pack(content).replace(content[check.MANIFEST], text.ljust(len(content[check.MANIFEST])))
        assert refused(lzma.compress(tar))


def test_a_file_that_is_missing_is_caught(content):
    for path in content:
        if path.startswith("results/"):
            assert refused(packed({name: data for name, data in content.items() if name != path}))


def with_rows(content, change):
    """The content with other rows of every classifier, and sidecars that say how many."""
    made = {}
    for path in (name for name in content if name.endswith(".tsv")):
        head, *lines, _ = content[path].decode().split("\n")
        rows = change(lines)
        side = json.loads(content[f"{path[:-4]}.json"]) | {"rows": len(rows)}
        made |= {path: "\n".join([head, *rows, ""]).encode(), f"{path[:-4]}.json": json.dumps(side).encode()}
    return content | made


def test_an_image_of_two_labels_at_two_noise_levels_is_caught(content):
    def relabelled(lines):
        rows = [line.split("\t") for line in lines]
        for row in rows[:1]:
            row[1] = str(1 - int(row[1]))
            row[4] = str(int(row[1] == row[2]))
        return ["\t".join(row) for row in rows]

    assert check.HEADER.split("\t")[1:5:3] == ["label", "correct"]
    other = with_rows(content, relabelled)
    forged = content | {name: data for name, data in other.items() if "/0.25/" in name}
    for files in (content, other):
        check.read_results(files, json.loads(files["study.json"]))
    with pytest.raises(check.BundleError, match=r"must be of the images|must have the labels"):
        check.read_results(forged, json.loads(forged["study.json"]))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[3:],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: lines[:-1],
        lambda lines: [f"{100 + k}{line[line.index(chr(9)) :]}" for k, line in enumerate(lines)],
        lambda lines: [*lines, lines[-1]],
    ],
    ids=["first", "middle", "last", "others", "twice"],
)
def test_images_that_are_missing_or_count_twice_are_found(content, change):
    with pytest.raises(check.BundleError, match="must be of the images of the subset first-12, in order"):
        check.check_bundle(packed(with_rows(content, change)))


@pytest.mark.parametrize(
    ("subset", "rows"), [("all", 12), ("stride-2", 6), ("stride-5", 3), ("first-12", 12), ("range-0-12", 12)]
)
def test_the_size_of_the_split_says_which_images_there_must_be(content, subset, rows):
    """With ``all`` and ``stride`` the last images can be missing everywhere."""
    step = int(subset.removeprefix("stride-")) if "stride" in subset else 1

    def cut_to(count):
        files = with_rows(content, lambda lines: lines[::step][:count])
        for path in [name for name in files if re.fullmatch(r"results/.*\.json", name)]:
            files[path] = json.dumps(json.loads(files[path]) | {"subset": subset}).encode()
        study = json.loads(files["study.json"])
        return files, study | {"certify": study["certify"] | {"subset": subset}}

    side = json.loads(content[f"{ROWS[:-4]}.json"])
    meta = json.dumps({"sha256": {"test": side["images"]}, "sizes": {"test": 12}}).encode()
    files, study = cut_to(rows)
    check.read_results(files | {"data/tiny/meta.json": meta}, study)
    files, study = cut_to(rows - 1)
    with pytest.raises(check.BundleError, match=f"must be of the images of the subset {subset}, in order"):
        check.read_results(files | {"data/tiny/meta.json": meta}, study)
    for path in check.meta_path(study):
        with pytest.raises(check.BundleError, match="must describe the images of the sidecars"):
            check.read_results(files | {path: meta.replace(b'"test": "', b'"test": "0')}, study)


@pytest.mark.parametrize("subset", ["all", {"first": 3}, {"stride": 20}, {"range": [5, 8]}])
def test_the_images_of_a_subset_are_those_that_are_certified(subset):
    alike, study = {"subset": subset_name(subset), "images": "sum"}, {"dataset": "tiny", "certify": {}}
    files = {"data/tiny/meta.json": b'{"sha256": {"test": "sum"}, "sizes": {"test": 60}}'}
    assert check.subset_images(files, study, alike) == select(60, subset).tolist()


def test_the_library_compares_the_prose_above_the_claims(content):
    forged = content[PAGE].decode().replace("## What", "AdvMacer is the best of all.\n\n## What", 1)
    with pytest.raises(InputError, match=r"claims\.md must have the paragraphs of a report"):
        verify(packed(content | {PAGE: forged.encode()}), "forged.tar.xz")


def test_the_library_compares_the_protocol_with_the_parameters(content):
    forged = content | {"params.yaml": content["params.yaml"].replace(b"alpha: 0.01", b"alpha: 0.02")}
    assert refused(packed(forged)) == ""  # the standard library reads no YAML
    with pytest.raises(InputError, match=r"study\.json must say what params\.yaml says"):
        verify(packed(forged), "forged.tar.xz")


# ------------------------------------------------------------------------------------------------- the commands


def test_the_commands_make_and_check_a_bundle(study, bundle, tmp_path):
    out = tmp_path / "tiny.tar.xz"
    words = ["bundle", "tiny", "--root", study, "--params", study / "params.yaml", "--out", out]
    error = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "params.yaml")]).exception
    assert "--out must be a file *.tar.xz, got" in str(error)
    made = CliRunner().invoke(app, [*map(str, words)])
    said = check.check_bundle(bundle)
    assert (made.exit_code, made.stdout.splitlines(), out.read_bytes()) == (0, [*said, f"bundle in {out}"], bundle)
    found = CliRunner().invoke(app, ["verify", str(out)])
    assert (found.exit_code, found.stdout.splitlines()) == (0, said)
    out.write_bytes(_with_byte(bundle, 1000, bundle[1000] ^ 1))
    assert isinstance(CliRunner().invoke(app, ["verify", str(out)]).exception, InputError)


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_what_has_no_end_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    refused = CliRunner().invoke(app, ["verify", name]).exception
    assert isinstance(refused, InputError)
    assert str(refused).startswith(f"{name} must be a file, but there is none")


def test_a_name_too_long_for_a_plain_archive_is_packed_too():
    short, long = {"results/a.tsv": b"votes"}, {f"results/{'advmacer-0-' * 12}.tsv": b"votes"}
    for files in (short, long):
        found = check.unpack(lzma.compress(check.pack(files)))
        assert {name: data for name, data in found.items() if name != check.MANIFEST} == files
    assert b"PaxHeader" not in check.pack(short)


@pytest.mark.parametrize("text", [b"", b"[1]", b"7"])
def test_parameters_that_are_no_mapping_are_refused(content, text):
    with pytest.raises(InputError, match=r"params\.yaml must hold a mapping of sections; do not believe it"):
        verify(packed(content | {"params.yaml": text}), "forged.tar.xz")


@pytest.mark.parametrize("text", [b"{}", b"[]", b"null", b'{"model": 3', b"\xff", b'{"model": 3, "scope": "set"}'])
def test_a_sidecar_that_says_no_model_is_named(study, tmp_path, text):
    root = shutil.copytree(study, tmp_path / "copy")
    (root / ROWS).with_suffix(".json").write_bytes(text)
    with pytest.raises(InputError, match=re.escape(f"{ROWS[:-4]}.json")):
        make_bundle(root, root / "params.yaml", "tiny")


def test_a_study_of_another_name_is_refused(study):
    with pytest.raises(InputError, match="tinny"):
        make_bundle(study, study / "params.yaml", "tinny")


def test_a_study_that_contradicts_itself_is_not_bundled(study, tmp_path):
    root = shutil.copytree(study, tmp_path / "copy")
    rows = root / ROWS
    rows.write_text(rows.read_text().replace("\tcertify\t", "\tshortcut\t", 1))
    with pytest.raises(InputError, match="line 2: a shortcut must be of a wrong class"):
        make_bundle(root, root / "params.yaml", "tiny")


def test_the_checker_is_short_enough_to_be_read():
    assert len(Path(check.__file__).read_text().splitlines()) <= 660
