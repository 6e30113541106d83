"""The checker of bundles: what is forged is refused, with hashes that match the forged files."""

import json
import lzma
import re
import shutil
import tarfile

import pytest
from typer.testing import CliRunner

from rs.command_line.main import app
from rs.errors import InputError
from rs.reporting import check
from rs.reporting.bundle import make_bundle, verify
from rs.study.subset import select, subset_name
from tests.support.helpers import python, refuses
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


def refused(bundle):
    """What the checker says of a forgery; empty if it passes."""
    try:
        check.check_bundle(bundle, "forged.tar.xz")
    except check.BundleError as error:
        return str(error)
    return ""


# -------------------------------------------------------------------------------------------------
# bundles


def test_the_checker_runs_alone(bundle, tmp_path):
    """In a Python that sees no other package."""
    shutil.copy(check.__file__, tmp_path / "check.py")
    (tmp_path / "good").write_bytes(bundle)
    (tmp_path / "bad").write_bytes(bundle[:-1])
    good = python("-I", "-S", "check.py", "good", cwd=tmp_path)
    bad = python("-I", "-S", "check.py", "bad", cwd=tmp_path)
    assert good.stdout.splitlines() == check.check_bundle(bundle, "good")
    assert (good.returncode, bad.returncode) == (0, 1)
    assert bad.stderr.startswith("refused: bad: ")


@pytest.mark.trust_only("forged bundles")
def test_every_bit_of_an_archive_counts():
    """Of a small one, with the container of all: compressed data, their frame, and the tar."""
    small = packed({"a.txt": b"one file\n", "b/c.txt": bytes(range(200))})
    for at, byte in enumerate(small):
        for bit in range(8):
            forged = small[:at] + bytes([byte ^ 1 << bit]) + small[at + 1 :]
            with pytest.raises((check.BundleError, lzma.LZMAError, tarfile.TarError)):
                check.unpack(forged)


def test_a_file_of_another_format_is_refused_as_such():
    for content in (b"", b"idx\tlabel\n" * 9, b"PK\3\4" * 9):
        with pytest.raises(check.BundleError):
            check.unpack(content)


def test_an_archive_with_more_or_less_is_refused(bundle):
    for forged in (bundle + b"\0", bundle + bundle, bundle[:-4], b""):
        assert refused(forged)


# -------------------------------------------------------------------------------------------------
# forgeries

ROWS = "results/tiny/0.5/advmacer-0.tsv"
ENSEMBLE = "results/tiny/0.25/pool/advmacer-0-1.average"
TABLES = ("main", "certified-0.25", "certified-0.5", "ensembles-0.25", "ensembles-0.5")
MEANS = ("acr", "clean_accuracy", "accuracy")


def altered(text):
    """Another value of the same kind."""
    if re.fullmatch(r"-?\d+", text):
        return str(int(text) + 1)
    try:
        return repr(float(text) * (1 + 1e-5) if float(text) else 0.125)
    except ValueError:
        return {"True": "False", "False": "True"}.get(text, text + "x")


def with_sidecar(content, path, **changes):
    """The content with other fields in a sidecar; ``None`` deletes a field."""
    side = json.loads(content[path]) | changes
    stated = {name: value for name, value in side.items() if value is not None}
    return content | {path: json.dumps(stated).encode()}


def with_rows(content, change):
    """The content with other rows of every classifier."""
    changed = dict(content)
    for path in content:
        if path.endswith(".tsv"):
            head, *lines, _ = content[path].decode().split("\n")
            changed[path] = "\n".join([head, *change(lines), ""]).encode()
    return changed


# Rows: bounds, radii and classes follow from the votes.


@pytest.mark.parametrize("name", check.COLUMNS)
def test_a_forged_field_of_a_row_is_refused(content, name):
    head, first, *lines = content[ROWS].decode().split("\n")
    row = dict(zip(head.split("\t"), first.split("\t"), strict=True))
    if name.startswith("counts"):
        row[name] = re.sub(r"\d+$", "7", row[name])
    else:
        row[name] = altered(row[name])
    forged = "\n".join([head, "\t".join(row.values()), *lines]).encode()
    assert forged != content[ROWS]
    assert ROWS in refused(packed(content | {ROWS: forged}))


@pytest.mark.parametrize("move", [1, -1])
def test_a_forged_vote_is_refused(content, move):
    text = content[ROWS].decode()
    zero, one = re.search(r"0:(\d+),1:(\d+)", text).groups()
    moved = text.replace(f"0:{zero},1:{one}", f"0:{int(zero) - move},1:{int(one) + move}", 1)
    assert "p_lower" in refused(packed(content | {ROWS: moved.encode()}))


SHORTCUT = "3 1 0 0.0 0 0.0 10 0 0.01 0.5 0:10 - shortcut model"
SETTINGS = {"classes": 3, "n0": 10, "n": 200, "alpha": 0.01, "sigma": 0.5, "shortcut": True}


def check_line(line):
    """Check a row that is written with spaces."""
    row = dict(zip(check.COLUMNS, line.split(" "), strict=True))
    check.check_row(row, SETTINGS | {"scope": row["scope"]})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3 1 0", "3 0 0"),
        ("3 1 0 0.0 0", "3 1 1 0.0 1"),
        ("10 0 0.01 0.5 0:10 -", "10 200 0.01 0.5 0:10 0:200"),
        ("0 0.0 0 0.0", "0 0.5 0 0.0"),
        ("shortcut", "certify"),
        ("0:10", "3:10"),
        ("0:10", "0:9"),
        ("0:10", "0:10,1:0"),
    ],
)
def test_a_forged_row_without_a_certificate_is_refused(old, new):
    check_line(SHORTCUT)
    assert old in SHORTCUT
    with pytest.raises(check.BundleError):
        check_line(SHORTCUT.replace(old, new, 1))


# Images: each classifier has one row per image of the subset.


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[3:],
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: lines[::-1],
    ],
    ids=["first", "last", "twice", "order"],
)
def test_a_missing_or_repeated_image_is_refused(content, change):
    assert "one row per image of the subset first-12" in refused(packed(with_rows(content, change)))


@pytest.mark.parametrize(("subset", "step"), [("all", 1), ("stride-5", 5)])
def test_a_last_image_that_is_missing_everywhere_is_refused(content, subset, step):
    """The size of the split says which images a subset to the end of the data has."""
    study = json.loads(content["study.json"])
    study["certify"]["subset"] = subset
    files = with_rows(content, lambda lines: lines[::step])
    check.check_results(files, study)
    with pytest.raises(check.BundleError, match=f"one row per image of the subset {subset}"):
        check.check_results(with_rows(files, lambda lines: lines[:-1]), study)


def relabeled(lines):
    """The rows with another label for the first image."""
    idx, label, predict, radius, _, *others = lines[0].split("\t")
    label = str(1 - int(label))
    correct = str(int(label == predict))
    return ["\t".join([idx, label, predict, radius, correct, *others]), *lines[1:]]


def test_an_image_with_two_labels_is_refused(content):
    other = with_rows(content, relabeled)
    forged = content | {name: data for name, data in other.items() if "/0.25/" in name}
    study = json.loads(content["study.json"])
    check.check_results(other, study)
    with pytest.raises(check.BundleError, match="must have the labels of the other classifiers"):
        check.check_results(forged, study)


@pytest.mark.parametrize("subset", ["all", {"first": 3}, {"stride": 20}, {"range": [5, 8]}])
def test_the_images_of_a_subset_are_those_that_are_certified(subset):
    assert check.subset_images(subset_name(subset), 60) == select(60, subset).tolist()


# Sidecars: all are of the same images, and name different models.


@pytest.mark.parametrize("name", check.SHARED)
def test_a_forged_field_of_a_sidecar_is_refused(content, name):
    path = f"{ENSEMBLE}.json"
    value = json.loads(content[path])[name]
    forged = with_sidecar(content, path, **{name: type(value)(altered(str(value)))})
    assert f"{path}: {name} must be {value} in all sidecars" in refused(packed(forged))
    missing = with_sidecar(content, path, **{name: None})
    assert f"{path} cannot be read (KeyError: '{name}')" in refused(packed(missing))


def test_the_same_training_as_another_seed_is_refused(content):
    first = "results/tiny/0.25/advmacer-0"
    second = "results/tiny/0.25/pool/advmacer-1"
    copied = {second + suffix: content[first + suffix] for suffix in (".json", ".tsv")}
    forged = with_sidecar(content | copied, f"{second}.json", model="models/tiny/0.25/advmacer/1")
    message = f"{second}.json: must not have the fingerprint of another seed, {first}"
    assert message in refused(packed(forged))


def test_a_training_under_two_seeds_of_the_study_is_refused(content):
    study = json.loads(content["study.json"])
    models = [one for one in study["classifiers"] if one["name"] == "advmacer"]
    unused = models[1]["rows"]
    models[1]["rows"] = models[0]["rows"]
    left = {name: data for name, data in content.items() if f"/{unused}." not in name}
    forged = left | {"study.json": json.dumps(study).encode()}
    assert "must not have the fingerprint of another seed" in refused(packed(forged))


# Means: tables state those of the rows.


def table_of(content, name):
    """The path of a table, its columns, and its lines of cells."""
    path = f"reports/tiny/{name}.csv"
    columns, *lines = [line.split(",") for line in content[path].decode().splitlines()]
    return path, columns, lines


def with_table(content, path, lines):
    """The content with another table."""
    return content | {path: "".join(",".join(line) + "\n" for line in lines).encode()}


@pytest.mark.parametrize("name", TABLES)
def test_a_forged_mean_is_refused(content, name):
    path, columns, lines = table_of(content, name)
    places = [at for at, column in enumerate(columns) if column in MEANS]
    assert places
    for at in places:
        for text in (altered(lines[-1][at]), "nan", ""):
            last = [*lines[-1][:at], text, *lines[-1][at + 1 :]]
            found = refused(packed(with_table(content, path, [columns, *lines[:-1], last])))
            assert path in found


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_second_or_other_line_of_a_table_is_refused(content, name):
    path, columns, lines = table_of(content, name)
    first, *others = lines
    renamed = ["0.125" if cell in ("0.25", "0.5") else cell for cell in first]
    for forged in (others, [*lines, first], [*lines, renamed]):
        assert path in refused(packed(with_table(content, path, [columns, *forged])))
    mean = next(column for column in columns if column in MEANS)
    assert path in refused(packed(content | {path: content[path] + b"0.5"}))
    twice = [[*columns, mean], *[[*line, "9.9"] for line in lines]]
    assert path in refused(packed(with_table(content, path, twice)))


# Files: those that the study implies, and no others.


@pytest.mark.parametrize("name", ["reports/tiny/claims.md", "../main.csv"])
def test_another_file_is_refused(content, name):
    assert name in refused(packed(content | {name: b"{}"}))


def test_a_missing_file_is_refused(content):
    for path in content:
        left = {name: data for name, data in content.items() if name != path}
        assert path in refused(packed(left))


# Parameters: the library compares them with the study that the checker reads.


def test_the_library_compares_the_study_with_the_parameters(content):
    other = content["params.yaml"].replace(b"alpha: 0.01", b"alpha: 0.02")
    forged = packed(content | {"params.yaml": other})
    assert refused(forged) == ""  # the standard library reads no YAML
    with refuses(r"study\.json must say what params\.yaml says"):
        verify(forged, "forged.tar.xz")


# -------------------------------------------------------------------------------------------------
# the commands


def test_the_commands_make_and_check_a_bundle(study, bundle, tmp_path):
    """The bytes of a bundle repeat."""
    out = tmp_path / "tiny.tar.xz"
    words = ["bundle", "tiny", "--root", study, "--params", study / "params.yaml", "--out", out]
    made = CliRunner().invoke(app, list(map(str, words)))
    said = check.check_bundle(bundle, str(out))
    assert made.stdout.splitlines() == [*said, f"bundle in {out}"]
    assert out.read_bytes() == bundle
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.stdout.splitlines() == said
    out.write_bytes(bundle[:-1])
    assert isinstance(CliRunner().invoke(app, ["verify", str(out)]).exception, InputError)


def test_what_has_no_end_is_refused_before_it_is_read():
    refused = CliRunner().invoke(app, ["verify", "/dev/zero"]).exception
    assert str(refused).startswith("/dev/zero must be a file, but there is none")


def test_a_study_that_contradicts_itself_is_not_bundled(study, tmp_path):
    root = shutil.copytree(study, tmp_path / "copy")
    rows = root / ROWS
    rows.write_text(rows.read_text().replace("\tcertify\t", "\tshortcut\t", 1))
    with refuses("line 2: a shortcut must be of a wrong class"):
        make_bundle(root, root / "params.yaml", "tiny")
