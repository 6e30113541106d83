"""Check a bundle of a study of certified robustness.

    python check.py BUNDLE

This program needs Python 3.11 or later and its standard library, nothing else. Get it from a
source that you trust; a bundle does not contain it.

A bundle is a tar archive, compressed with xz. It holds rows (one line per image with its votes and
its certificate), sidecars (what made the rows), the parameters of the study, and the tables that
state average certified radii (ACR) and certified accuracies. The program proves four things:

1. The bound, radius and class of each row follow from its votes and the study's n, alpha and sigma.
2. Each classifier has one row per image of the subset, and all classifiers have the same labels.
3. Models of one method at one noise level have different fingerprints.
4. Each ACR and certified accuracy in the tables is the mean over the rows.

It cannot prove that the votes were cast, or by which network: certifying again with the model can.
"""

import io
import json
import lzma
import math
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

STUDY = "study.json"
PARAMETERS = "params.yaml"
MAX_BYTES = 2**31  # of an unpacked bundle

PRECISION = Decimal("1e-12")  # of bounds and radii, relative
MEAN_PRECISION = 1e-9  # of means, relative: a sum of floats depends on their order
ABSTAIN = -1
WRONG = -1.0  # in place of the radius of an image that is wrong; it is below every radius

COLUMNS = [
    "idx", "label", "predict", "radius", "correct", "p_lower", "n0", "n", "alpha", "sigma",
    "counts0", "counts", "mode", "scope",
]  # fmt: skip
"""Columns of rows; ``evaluations`` can follow."""

PROTOCOL = ("subset", "n0", "n", "alpha", "shortcut")
"""Settings of all certificates of a study, as its parameters state them."""

SHARED = ("dataset", "images", "classes")
"""Fields that have the same value in the sidecars of all classifiers."""

KEYS_OF_TABLES = {
    "main": ("sigma", "method"),
    "certified": ("sigma", "method", "radius"),
    "ensembles": ("sigma", "ensemble", "combination"),
}
"""Columns that name a line of a table, by the first word of the table's name."""

Values = dict[str, Any]  # an object of JSON
Rows = list[dict[str, str]]  # cells by column
Means = dict[tuple[str, ...], dict[str, float]]  # means of a table by line and column
Groups = dict[tuple[str, str, str | None], list[float]]
"""Radii of all results, all of the same images, by noise level, name and combination."""


class BundleError(Exception):
    """A contradiction in a bundle; its message says where."""


def demand(holds: object, what: str) -> None:
    """Refuse the bundle unless ``holds``."""
    if not holds:
        raise BundleError(what)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Add the place to an error, and turn any other exception (malformed content) into one."""
    try:
        yield
    except BundleError as error:
        raise BundleError(f"{where}: {error}") from error
    except Exception as error:
        raise BundleError(f"{where} cannot be read ({type(error).__name__}: {error})") from error


# ---------------------------------------------------------------------------------------- files


def pack(files: dict[str, bytes]) -> bytes:
    """Pack files {name: bytes} into a tar archive; equal input gives equal bytes."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # without times and owners
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return tar.getvalue()


def unpack(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle; refuse an archive with any byte that they do not imply."""
    demand(bundle[:6] == b"\xfd7zXZ\0", "must be an archive *.tar.xz, as rs bundle writes it")
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    tar = decompressor.decompress(bundle, MAX_BYTES)
    is_whole = decompressor.eof and not decompressor.unused_data
    demand(is_whole, f"must be one archive of at most {MAX_BYTES:,} bytes, compressed with xz")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            if content is not None:
                files[entry.name] = content.read()
    demand(pack(files) == tar, "must hold only files, each once, in the order of their names")
    return files


def parse_object(files: dict[str, bytes], path: str) -> Values:
    """Parse a file of JSON that holds an object."""
    with located(path):
        values = json.loads(files[path].decode())
        demand(isinstance(values, dict), "must hold an object of JSON")
    return values


def parse_table(text: str, separator: str) -> tuple[list[str], Rows]:
    """Return the columns of a table, and its lines as cells by column."""
    header, *lines, end = text.split("\n")
    demand(end == "", "must end with a line feed")
    columns = header.split(separator)
    rows = [dict(zip(columns, line.split(separator), strict=True)) for line in lines]
    return columns, rows


def rows_path(study: Values, sigma: str, classifier: Values) -> str:
    """Return the path of a classifier's rows and sidecar, without ``.tsv`` or ``.json``."""
    return f"results/{study['dataset']}/{sigma}/{classifier['rows']}"


def table_path(study: Values, name: str, sigma: str | None = None) -> str:
    """Return the path of a table, or of a table for one noise level."""
    suffix = "" if sigma is None else f"-{float(sigma)}"
    return f"reports/{study['dataset']}/{name}{suffix}.csv"


def file_names(study: Values) -> set[str]:
    """Return the names of the files that the bundle of a study has."""
    has_ensembles = any(classifier["combination"] for classifier in study["classifiers"])
    names = {STUDY, PARAMETERS, table_path(study, "main")}
    for sigma in study["sigmas"]:
        names.add(table_path(study, "certified", sigma))
        if has_ensembles:
            names.add(table_path(study, "ensembles", sigma))
        for classifier in study["classifiers"]:
            path = rows_path(study, sigma, classifier)
            names.update([f"{path}.tsv", f"{path}.json"])
    return names


# ---------------------------------------------------------------------------------------- bounds


@cache
def proved_bound(k: int, n: int, alpha: str, stated: str) -> bool:
    """Prove a Clopper-Pearson bound, P(Bin(n, bound) >= k) = alpha, to PRECISION of it.

    Without votes (k = 0) the bound is 0. Otherwise the probability grows with p, so it must be at
    most alpha just below the bound, and at least alpha just above it. At 50 digits, rounding adds
    far less than 1e-19 to the error of the tail.
    """
    if k == 0:
        return stated == "0.0"
    slack = Decimal("1e-19")
    with localcontext(prec=50, Emin=-(10**9)):
        below = Decimal(stated) * (1 - PRECISION)
        above = min(Decimal(stated) * (1 + PRECISION), 1 - PRECISION**2)
        largest = binomial_tail(k, n, below) * (1 + slack)
        smallest = binomial_tail(k, n, above) * (1 - slack)
        return largest <= Decimal(alpha) <= smallest


def binomial_tail(k: int, n: int, p: Decimal) -> Decimal:
    """Return P(Bin(n, p) >= k), up to 1e-20 of it.

    It is the sum of C(n, j) p^j (1 - p)^(n - j) over j >= k. Each term follows from the one before.
    The sum ends where terms shrink and n times the last term is below 1e-20 of the total.
    """
    term = math.comb(n, k) * p**k * (1 - p) ** (n - k)
    total = term
    for j in range(k, n):
        ratio = p * (n - j) / ((1 - p) * (j + 1))
        term *= ratio
        total += term
        if ratio < 1 and term * n * 10**20 < total:
            break
    return total


@cache
def proved_radius(p_lower: str, sigma: str, stated: str) -> bool:
    """Prove R = sigma Phi^-1(p_lower) to PRECISION (R + sigma), or R = 0 for p_lower below 0.5.

    Phi must be at most p_lower just below R / sigma, and at least p_lower just above it. The texts
    stand for the nearest float64: near 1, a difference of 1e-17 in p changes R by 1e-11.
    """
    if float(p_lower) < 0.5:
        return stated == "0.0"
    with localcontext(prec=50):
        p = Decimal(float(p_lower))
        z = Decimal(float(stated)) / Decimal(float(sigma))
        slack = PRECISION * (z + 1)
        return normal(z - slack) <= p <= normal(z + slack)


def normal(z: Decimal) -> Decimal:
    """Return Phi(z) = 1/2 + density(z) (z + z^3 / 3 + z^5 / 15 + ...), all terms of one sign."""
    total = z
    term = z
    j = 1
    while abs(term) > abs(total) * Decimal("1e-45"):
        j += 2
        term *= z * z / j
        total += term
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937511")
    return Decimal("0.5") + total * (-z * z / 2).exp() / two_pi.sqrt()


# ---------------------------------------------------------------------------------------- rows


def parse_votes(row: dict[str, str], name: str, classes: range) -> dict[int, int]:
    """Return the votes of a row by class, from a text such as ``0:90,2:10``, or ``-`` for none."""
    votes: dict[int, int] = {}
    if row[name] != "-":
        for pair in row[name].split(","):
            label, number = pair.split(":")
            votes[int(label)] = int(number)
    text = ",".join(f"{label}:{votes[label]}" for label in sorted(votes))
    demand(row[name] == (text or "-"), f"{name} must list votes by class, not {row[name]}")
    is_valid = all(label in classes and number > 0 for label, number in votes.items())
    demand(is_valid, f"{name} must be positive numbers for {len(classes)} classes")
    return votes


def check_row(row: dict[str, str], settings: Values) -> None:
    """Refuse a row whose bound, radius or class does not follow from its votes.

    Args:
        row: Cells by column.
        settings: :data:`PROTOCOL`, sigma, scope, and the number of classes.
    """
    classes = settings["classes"]
    label = int(row["label"])
    demand(0 <= label < classes, f"label must be one of {classes} classes, not {label}")
    selection_votes = parse_votes(row, "counts0", range(classes))
    bound_votes = parse_votes(row, "counts", range(classes))
    selected = max(sorted(selection_votes), key=lambda voted: selection_votes[voted])

    expected = {name: settings[name] for name in ("n0", "n", "alpha", "sigma", "scope")}
    if row["mode"] == "shortcut":  # skips the n samples of an image whose selected class is wrong
        may_skip = settings["shortcut"] and selected != label
        demand(may_skip, "a shortcut must be of a wrong class, and allowed by the parameters")
        expected |= {"n": 0, "p_lower": 0.0, "radius": 0.0}
        predict = selected
    else:
        demand(row["mode"] == "certify", f"mode must be certify or shortcut, not {row['mode']}")
        check_bound(row, bound_votes.get(selected, 0))
        predict = selected if float(row["p_lower"]) >= 0.5 else ABSTAIN
    expected |= {"predict": predict, "correct": int(predict == label)}
    for name, value in expected.items():
        demand(row[name] == str(value), f"{name} must be {value}, not {row[name]}")
    demand(sum(selection_votes.values()) == expected["n0"], "n0 must be the votes in counts0")
    demand(sum(bound_votes.values()) == expected["n"], "n must be the votes in counts")


def check_bound(row: dict[str, str], votes: int) -> None:
    """Refuse a bound or radius that does not follow from the votes for the selected class."""
    p_lower = row["p_lower"]
    radius = row["radius"]
    is_bound = proved_bound(votes, int(row["n"]), row["alpha"], p_lower)
    demand(is_bound, f"p_lower must be the Clopper-Pearson bound of {votes} votes, not {p_lower}")
    is_radius = proved_radius(p_lower, row["sigma"], radius)
    rule = "sigma Phi^-1(p_lower), or 0.0 where p_lower is below 0.5"
    demand(is_radius, f"radius must be {rule}, not {radius}")


def check_rows(text: str, settings: Values) -> Rows:
    """Return the rows of a classifier; refuse rows that do not follow from their votes."""
    columns, rows = parse_table(text, "\t")
    demand(columns in (COLUMNS, [*COLUMNS, "evaluations"]), "must have the columns of rows")
    for number, row in enumerate(rows, 2):
        with located(f"line {number}"):
            check_row(row, settings)
    return rows


def subset_images(subset: str, split_size: int | None) -> list[int]:
    """Return the images of a subset ``all``, ``first-500``, ``range-500-1000`` or ``stride-20``."""
    form, *numbers = subset.split("-")
    limits = [int(number) for number in numbers]
    if form == "first":
        return list(range(limits[0]))
    if form == "range":
        return list(range(limits[0], limits[1]))
    demand(split_size is not None, f"split_size must be stated for the subset {subset}")
    steps = {"all": [1], "stride": limits}
    return list(range(0, int(split_size or 0), *steps[form]))


def check_images(rows: Rows, settings: Values, shared: Values) -> None:
    """Refuse rows that are not one per image of the subset, or whose labels differ from others."""
    subset = settings["subset"]
    images = subset_images(subset, settings.get("split_size"))
    has_all = [row["idx"] for row in rows] == [str(image) for image in images]
    demand(has_all, f"must have one row per image of the subset {subset}, in order")
    labels = [int(row["label"]) for row in rows]
    is_same = labels == shared.setdefault("labels", labels)
    demand(is_same, "must have the labels of the other classifiers")


def check_results(files: dict[str, bytes], study: Values) -> Groups:
    """Check rows and sidecars of all classifiers; return their radii."""
    groups: Groups = {}
    shared = {"dataset": study["dataset"]}
    for sigma in study["sigmas"]:
        models: dict[tuple[str, str], str] = {}  # paths by method and fingerprint
        for classifier in study["classifiers"]:
            name = classifier["name"]
            path = rows_path(study, sigma, classifier)
            sidecar = parse_object(files, f"{path}.json")
            with located(f"{path}.json"):
                for field in SHARED:
                    value = shared.setdefault(field, sidecar[field])
                    demand(sidecar[field] == value, f"{field} must be {value} in all sidecars")
                if classifier["combination"] is None:
                    model = (name, sidecar["classifier"])
                    twin = models.get(model)
                    demand(twin is None, f"must not have the fingerprint of another seed, {twin}")
                    models[model] = path
            settings = sidecar | study["certify"]
            settings |= {"sigma": float(sigma), "scope": classifier["scope"]}
            with located(f"{path}.tsv"):
                rows = check_rows(files[f"{path}.tsv"].decode(), settings)
                check_images(rows, settings, shared)
            radii = [certified_radius(row) for row in rows]
            groups.setdefault((sigma, name, classifier["combination"]), []).extend(radii)
    return groups


# ---------------------------------------------------------------------------------------- means


def certified_radius(row: dict[str, str]) -> float:
    """Return the radius of a row, or WRONG where the class is wrong or abstained."""
    return float(row["radius"]) if row["correct"] == "1" else WRONG


def share_certified(radii: list[float], at: float) -> float:
    """Return the share of images that are right with at least this radius."""
    return fmean(radius >= at for radius in radii)


def means_of_tables(study: Values, groups: Groups) -> dict[str, Means]:
    """Return what each table must state, by its path."""
    tables: dict[str, Means] = defaultdict(dict)
    for (sigma, name, key), radii in groups.items():
        level = str(float(sigma))
        acr = fmean(max(radius, 0.0) for radius in radii)  # an image that is wrong counts as 0
        means = {"acr": acr, "clean_accuracy": share_certified(radii, 0.0)}
        if key is not None:
            tables[table_path(study, "ensembles", sigma)][level, name, key] = means
        if key in (None, study["combination"]):
            tables[table_path(study, "main")][level, name] = means
            certified = tables[table_path(study, "certified", sigma)]
            for radius in map(float, study["radii"]):
                accuracy = share_certified(radii, radius)
                certified[level, name, str(radius)] = {"accuracy": accuracy}
    return tables


def check_table(text: str, keys: tuple[str, ...], means: Means) -> None:
    """Refuse a table whose lines or means are not those of the rows."""
    columns, rows = parse_table(text, ",")
    demand(len(set(columns)) == len(columns), "must have each column once")
    stated = {}
    for cells in rows:
        key = tuple(cells[name] for name in keys)
        demand(key in means and key not in stated, f"must have no second or other line of {key}")
        stated[key] = cells
    for key, expected in means.items():
        line = ", ".join(key)
        demand(key in stated, f"must have a line for {line}")
        for name, value in expected.items():
            cell = stated[key][name]
            is_mean = math.isclose(float(cell), value, rel_tol=MEAN_PRECISION)
            demand(is_mean, f"{name} of {line} must be {value}, not {cell}")


# ---------------------------------------------------------------------------------------- bundles


def check_files(files: dict[str, bytes]) -> list[str]:
    """Check the files of a bundle; return what is proved and what is not, in lines."""
    study = parse_object(files, STUDY)
    with located(STUDY):
        expected = file_names(study)
    different = ", ".join(sorted(files.keys() ^ expected)[:3])
    demand(not different, f"must have the files of {STUDY} and no others, unlike {different}")
    groups = check_results(files, study)
    for path, means in means_of_tables(study, groups).items():
        keys = KEYS_OF_TABLES[Path(path).stem.split("-")[0]]
        with located(path):
            check_table(files[path].decode(), keys, means)
    rows = sum(map(len, groups.values()))
    return [
        f"OK: {len(study['classifiers']):,} classifiers per noise level, {rows:,} rows",
        "Proved: bounds, radii and classes of the rows, no missing image, means in the tables.",
        "Not checked: whether the votes were cast, by which network; errors and verdicts.",
    ]


def check_bundle(bundle: bytes, name: str) -> list[str]:
    """Check a bundle; return what is proved and what is not, in lines.

    Raises:
        BundleError: If the bundle is damaged, or contradicts itself.
    """
    with located(name):
        return check_files(unpack(bundle))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(*check_bundle(Path(sys.argv[1]).read_bytes(), sys.argv[1]), sep="\n")
    except BundleError as error:
        sys.exit(f"refused: {error}")
