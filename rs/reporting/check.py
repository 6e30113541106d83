"""Check a bundle of a study of certified robustness, with Python 3.11 or later and nothing but its standard library.

    python check.py BUNDLE

A bundle is a tar archive, compressed by xz: rows (votes and certificates, a line for each image), sidecars (what made
the rows), the protocol, the report's tables and claims, and the SHA-256 of each file.
This program believes no number that follows from others. From the votes it derives every class, bound, radius and
correctness; from these the tables, and from those the page of claims. A file, column, line or name that the study does
not imply is refused, and so is one that is missing. The program writes nothing, and prints what it could not derive.
It cannot know whether the votes were cast: ``rs certify`` with the model makes the same row again.
"""

import hashlib
import io
import itertools
import json
import lzma
import math
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple

MANIFEST, STUDY, CHECKER, PARAMETERS = "manifest.json", "study.json", "check.py", "params.yaml"
MAX_BYTES, PRECISION = 2**31, Decimal("1e-12")  # of a bundle, unpacked; of bounds and radii, relative
CLOSE, LEVEL = 1e-9, 0.05  # averages of float64 in another order; the level of ties
WHOLE, REAL = ("idx", "label", "predict", "correct", "n0", "n"), ("radius", "p_lower", "alpha", "sigma")
HEADER = "idx\tlabel\tpredict\tradius\tcorrect\tp_lower\tn0\tn\talpha\tsigma\tcounts0\tcounts\tmode\tscope"
ALIKE = ("dataset", "images", "classes", "subset", "n0", "n", "alpha", "seed", "noise", "precision", "shortcut")
UNSOUND, VERDICTS = "per-image", ("held", "not held", "tie", "not tested")
TWO_SIDED = {"acr_two_sided", "acr_two_sided_votes"}  # which the scope set has not
STATED = {"main": TWO_SIDED, "ensembles": TWO_SIDED | {"members_per_draw"}}  # columns that do not follow from the rows
NORMAL_QUANTILE = NormalDist().inv_cdf(0.975)
HERMITE = [(0.0, 8 / 15)]  # nodes and weights of the Gauss rules of 5 and 24 points
HERMITE += [(s * (5 + t * 10**0.5) ** 0.5, (7 - 2 * t * 10**0.5) / 60) for s in (-1, 1) for t in (-1, 1)]
NODES = [0.06405689286261, 0.19111886747362, 0.31504267969616, 0.43379350762605, 0.54542147138884, 0.64809365193698]
NODES += [0.74012419157855, 0.82000198597390, 0.88641552700440, 0.93827455200273, 0.97472855597131, 0.99518721999702]
WEIGHTS = [0.12793819534675, 0.12583745634683, 0.1216704729278, 0.11550566805373, 0.10744427011597, 0.09761865210411]
WEIGHTS += [0.08619016153195, 0.07334648141108, 0.05929858491544, 0.04427743881742, 0.02853138862893, 0.0123412297999]
LEGENDRE = [(side * node, weight) for side in (-1, 1) for node, weight in zip(NODES, WEIGHTS, strict=True)]
EQUAL_TIME, ATTACKED = "AdvMacer beats MACER at equal training time", "weights chosen by the image keep the guarantee"
BROKEN = (EOFError, lzma.LZMAError, tarfile.TarError)
FAULTS = (*BROKEN, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Values = dict[str, Any]  # the numbers of a line of a table, or an object of JSON, by name


class BundleError(Exception):
    """A bundle contradicts itself; says where."""


class Classified(NamedTuple):
    """The certificates of a classifier at one noise level, image by image."""

    name: str  # training method, or name of the ensemble
    key: str | None  # how members are combined; None: a single model
    scope: str
    members: tuple[tuple[str, int], ...]  # training method and seed of each
    scores: tuple[float, ...]  # radius if right, else 0
    reach: tuple[float, ...]  # radius if right, else -1, which is below every radius


Group = tuple[Classified, ...]  # of one label: a result for each training seed, or each set of seeds
Groups = dict[float, dict[str, Group]]  # by noise level and label


class Difference(NamedTuple):
    """A mean score or the difference of two, with its errors (docs/method.md)."""

    value: float
    error_images: float  # over images, the training seeds being those there are
    error: float | None  # over images and training seeds; None where a single seed leaves it unknown
    p_value: float
    images: int
    seeds: int

    @property
    def tie(self) -> bool:
        """Whether 0 lies in the 95 % interval, over images and training seeds where that is known."""
        by_images = self.error_images * student_quantile(self.images)
        return abs(self.value) <= (by_images if self.error is None else self.error * NORMAL_QUANTILE)


def demand(holds: object, what: str) -> None:
    """Refuse the bundle unless ``holds``."""
    if not holds:
        raise BundleError(what)


# ------------------------------------------------------------------------------------------------- files


def pack(files: dict[str, bytes]) -> bytes:
    """Return files by name as a bundle: the manifest is made, and the same files make the same archive."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items()) if name != MANIFEST}
    files, tar = files | {MANIFEST: (json.dumps(hashes, indent=2) + "\n").encode()}, io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # without times and owners
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return tar.getvalue()


def unpack(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle, if their archive is the one that they make."""
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    tar = xz.decompress(bundle, MAX_BYTES)
    demand(xz.eof and not xz.unused_data, "the archive must end where its compressed data end")
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        files = {entry.name: (archive.extractfile(entry) or io.BytesIO()).read() for entry in archive.getmembers()}
    demand(pack(files) == tar, f"the archive must hold files alone, and {MANIFEST} the SHA-256 of each, in order")
    return files


def parse_strict_json(files: dict[str, bytes], path: str) -> Any:
    """Parse a file of JSON in which no name comes twice and every number is finite."""

    def unique(pairs: list[tuple[str, Any]]) -> Values:
        demand(len(dict(pairs)) == len(pairs), f"{path} must have each name once")
        return dict(pairs)

    try:
        return json.loads(files[path].decode(), object_pairs_hook=unique, parse_constant=int)  # which refuses NaN
    except ValueError as error:
        raise BundleError(f"{path} must hold JSON, but: {error}") from error


def slug_of(classifier: Values) -> str:
    """Return the name of a classifier in paths, by the methods and seeds of its members."""
    seeds: dict[str, list[str]] = {}
    for method, seed in classifier["members"]:
        seeds.setdefault(method, []).append(str(seed))
    slug = "+".join("-".join([method, *of_method]) for method, of_method in seeds.items())
    return f"{slug}.{classifier['key']}" if classifier["key"] else slug


def rows_path(study: Values, sigma: str, classifier: Values) -> str:
    """Return the path of the rows of a classifier, without their ending."""
    return f"results/{study['dataset']}/{sigma}/{classifier['folder']}{slug_of(classifier)}"


def model_path(study: Values, sigma: str, classifier: Values) -> str:
    """Return how the path of a model, or of the file of an ensemble, ends."""
    folder, member = f"{study['dataset']}/{sigma}", "/".join(map(str, classifier["members"][0]))
    return f"{folder}/{slug_of(classifier)}.json" if classifier["key"] else f"{folder}/{member}"


def table_names(study: Values) -> list[str]:
    """Return the names of the tables that follow from the rows."""
    ensembles = ["ensembles"] * any(classifier["key"] for classifier in study["classifiers"])
    of_level = [f"{name}-{float(sigma)}" for name in ["certified", *ensembles] for sigma in study["sigmas"]]
    return ["main", "differences", *of_level]


def meta_path(study: Values) -> list[str]:
    """Return the path of the description of the data set, if the subset ends where the data end."""
    return [f"data/{study['dataset']}/meta.json"] * study["certify"].get("subset", "all").startswith(("all", "stride"))


def file_names(study: Values) -> set[str]:
    """Return the files that the bundle of a study must have."""
    report, pairs = f"reports/{study['dataset']}", list(itertools.product(study["sigmas"], study["classifiers"]))
    names = [MANIFEST, STUDY, CHECKER, PARAMETERS, f"{report}/claims.md", *meta_path(study)]
    names += [f"{report}/{name}.csv" for name in table_names(study)]
    names += [rows_path(study, *pair) + suffix for pair in pairs for suffix in (".tsv", ".json")]
    return {*names}


# ------------------------------------------------------------------------------------------------- bounds and radii


@cache
def proved_bound(k: int, n: int, alpha: str, stated: str) -> bool:
    """Prove a Clopper-Pearson bound, P(Bin(n, bound) >= k) = alpha, to PRECISION of it.

    The probability grows with p: let it be below alpha at a p just below the bound, and above it just above. It is the
    sum of C(n, j) p^j (1 - p)^(n - j) over j >= k, each term made from the one before. The terms left out are fewer
    than n, none above the last, so below 1e-20 of the sum together; at 50 digits, roundings of so many positive numbers
    add less than 1e-40 to that.
    """
    slack, chances = Decimal("1e-19"), []
    with localcontext(prec=50, Emin=-(10**9)):
        for p in (Decimal(stated) * (1 - PRECISION), min(Decimal(stated) * (1 + PRECISION), 1 - PRECISION**2)):
            total = term = math.comb(n, k) * p**k * (1 - p) ** (n - k)
            for j in range(k, n):
                ratio = p * (n - j) / ((1 - p) * (j + 1))
                term *= ratio
                total += term
                if ratio < 1 and term * n * 10**20 < total:
                    break
            chances.append(total)
        return chances[0] * (1 + slack) <= Decimal(alpha) <= chances[1] * (1 - slack)


@cache
def proved_radius(p_lower: str, sigma: str, stated: str) -> bool:
    """Prove R = sigma Phi^-1(p_lower) to PRECISION (R + sigma): Phi is at most p_lower just below, at least just above.

    The texts stand for the float64 nearest to them. Near 1 the distance matters: 1e-17 of p can be 1e-11 of R.
    """
    with localcontext(prec=50):
        p, z = Decimal(float(p_lower)), Decimal(float(stated)) / Decimal(float(sigma))
        return normal(z - PRECISION * (z + 1)) <= p <= normal(z + PRECISION * (z + 1))


def normal(z: Decimal) -> Decimal:
    """Return the normal distribution function: 1/2 + density (z + z^3 / 3 + z^5 / 15 + ...), terms of one sign."""
    total, term, j = z, z, 1
    while abs(term) > abs(total) * Decimal("1e-45"):
        j += 2
        term *= z * z / j
        total += term
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937511")
    return Decimal("0.5") + total * (-z * z / 2).exp() / two_pi.sqrt()


# ------------------------------------------------------------------------------------------------- rows


def rules(row: dict[str, str], side: Values, members: int) -> Iterator[tuple[object, str]]:
    """Yield what must hold of a row, each rule with its words; the votes and the sidecar decide."""
    yield all(row[name] == str(int(row[name])) for name in WHOLE), f"{', '.join(WHOLE)} must be as Python writes them"
    yield all(row[name] == repr(float(row[name])) for name in REAL), f"{', '.join(REAL)} must be as Python writes them"
    undecided, votes = side["classes"] if side["scope"] == "set" else None, {}  # the number of votes for no class
    for name in ("counts0", "counts"):
        pairs = [pair.split(":") for pair in row[name].split(",")] if row[name] != "-" else []
        cast = votes[name] = {int(k): int(number) for k, number in pairs}
        text = ",".join(f"{k}:{cast[k]}" for k in sorted(cast)) or "-"
        yield row[name] == text and min(cast.values(), default=1) > 0, f"{name} must be votes, class by class"
        in_range = all(0 <= k < side["classes"] or k == undecided for k in [*cast, int(row["label"])])
        yield in_range, f"{name} and label must be of the sidecar's classes"
    n0, n, label, predict = (int(row[name]) for name in ("n0", "n", "label", "predict"))
    yield (n0, n) == tuple(sum(cast.values()) for cast in votes.values()), "n0 and n must be the numbers of votes"
    budget = ("n0", "alpha", "sigma", "scope")
    yield all(row[name] == str(side[name]) for name in budget), "n0, alpha, sigma and scope must be the sidecar's"
    selected = max(sorted(votes["counts0"]), key=lambda k: votes["counts0"][k])  # the lowest of equals
    if row["mode"] == "shortcut":  # the n draws were skipped
        yield side["shortcut"] and n == 0 and selected != label, "a shortcut must be of a wrong class"
        yield row["p_lower"] == row["radius"] == "0.0", "a shortcut must have no bound and no radius"
        derived = -1 if selected == undecided else selected
    else:
        k = 0 if selected == undecided else votes["counts"].get(selected, 0)
        proved = proved_bound(k, n, row["alpha"], row["p_lower"]) if k else row["p_lower"] == "0.0"
        yield row["mode"] == "certify" and n == side["n"], "mode must be certify or shortcut, n the sidecar's"
        yield proved, "p_lower must be the Clopper-Pearson bound of the votes"
        sure = float(row["p_lower"]) >= 0.5
        proved = proved_radius(row["p_lower"], row["sigma"], row["radius"]) if sure else row["radius"] == "0.0"
        yield proved, "radius must be sigma Phi^-1(p_lower), or 0 below one half"
        derived = selected if sure else -1
    yield predict == derived, "predict must be the class of the n0 votes, or -1 where the bound is below one half"
    yield row["correct"] == str(int(predict == label)), "correct must say whether predict is label"
    counted = row.get("evaluations", str(n0 + n))
    possible = counted == str(int(counted)) and n0 + n <= int(counted) <= members * (n0 + n)
    yield possible, "evaluations must be 1 to all members for each draw"


def check_rows(path: str, text: str, side: Values, members: int) -> list[dict[str, str]]:
    """Return the rows of a classifier, each derived from its votes."""
    header, *lines, end = text.split("\n")
    whole = header in (HEADER, f"{HEADER}\tevaluations") and len(lines) == side["rows"] and not end
    demand(whole, f"{path} must have the columns of rows, and as many rows as its sidecar says")
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    for number, row in enumerate(rows, 2):
        for holds, rule in rules(row, side, members):
            demand(holds, f"{path}, line {number}: {rule}")
    return rows


def subset_images(files: dict[str, bytes], study: Values, side: Values) -> list[int]:
    """Return the images of the subset, by its name: all, first-500, range-500-1000 or stride-20."""
    size, (form, *numbers) = 0, side["subset"].split("-")
    for path in meta_path(study):  # the size of the split counts
        meta = parse_strict_json(files, path)
        size = meta["sizes"]["test"]
        same = (side["images"], side.get("split_size", size)) == (meta["sha256"]["test"], size)
        demand(same, f"{path} must describe the images of the sidecars")
    bounds: Values = {"all": [0, size], "first": [0, *numbers], "range": numbers, "stride": [0, size, *numbers]}
    return [*range(*map(int, bounds[form]))]


def read_results(files: dict[str, bytes], study: Values) -> tuple[Groups, Values]:
    """Check rows and sidecars of every classifier; return the results, and what all have in common."""
    groups, alike = {float(sigma): dict[str, Group]() for sigma in study["sigmas"]}, dict(study["certify"])
    for sigma, classifier in itertools.product(study["sigmas"], study["classifiers"]):
        name, key, members = classifier["name"], classifier["key"], tuple(map(tuple, classifier["members"]))
        path, model = rows_path(study, sigma, classifier), model_path(study, sigma, classifier)
        side = parse_strict_json(files, f"{path}.json")
        is_sidecar = isinstance(side, dict) and {"model", "scope", "sigma"} <= side.keys()
        demand(is_sidecar, f"{path}.json must be a sidecar that says its model, scope and sigma")
        demand(f"/{side['model']}".endswith(f"/{model}"), f"{path}.json must be of {model}")
        same = (side["scope"], side["sigma"]) == (classifier["scope"], float(sigma))
        demand(same, f"{path}.json: scope or sigma is another's")
        for field in (*ALIKE, "split_size"):
            common = alike.setdefault(field, side.get(field))
            demand(side.get(field) == common, f"{path}.json: {field} must be {common}, as in all of the study")
        rows = check_rows(f"{path}.tsv", files[f"{path}.tsv"].decode(), side, len(members))
        same = [int(row["idx"]) for row in rows] == alike.setdefault("indices", subset_images(files, study, side))
        demand(same, f"{path}.tsv must be of the images of the subset {alike['subset']}, in order")
        labels = [row["label"] for row in rows]
        demand(labels == alike.setdefault("labels", labels), f"{path}.tsv must have the labels of the other rows")
        reach = tuple(float(row["radius"]) if row["correct"] == "1" else -1.0 for row in rows)
        result = Classified(name, key, side["scope"], members, tuple(max(radius, 0.0) for radius in reach), reach)
        methods, label = groups[float(sigma)], label_of(name, key, study["combination"])
        methods[label] = (*methods.get(label, ()), result)
    return groups, alike


def label_of(name: str, key: str | None, default: str) -> str:
    """Return the name of a classifier in tables."""
    return name if key in (None, default) else f"{name} ({key})"


# ------------------------------------------------------------------------------------------------- statistics


def average(columns: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the means of equally long columns, place by place."""
    return tuple(sum(values) / len(values) for values in zip(*columns, strict=True))


@cache
def estimate_of(*groups: Group) -> Difference:
    """Return the mean score of results, or the difference of two, with its two errors."""
    seeds = sorted({seed for group in groups for result in group for _, seed in result.members})
    parts = []
    for without in (None, *seeds):  # of all results, and of those that a seed is not in
        left = [[r.scores for r in group if all(seed != without for _, seed in r.members)] for group in groups]
        means = [average(scores) for scores in left if scores]
        if len(means) == len(groups):
            parts.append([v[0] - sum(v[1:]) for v in zip(*means, strict=True)])
    whole, size, both = parts[0], len(seeds), None
    counted = min(map(fewest_seeds, groups))
    value, by_images = fmean(whole), stdev(whole) / math.sqrt(len(whole))
    p_value = student(value, by_images, len(whole) - 1)
    if len(parts) == 1 + size and counted > 1:  # pseudo-values of the jackknife over seeds
        pairs = [zip(whole, part, strict=True) for part in parts[1:]]
        squares = (*squares_of([[size * a - (size - 1) * b for a, b in pair] for pair in pairs])[:-1], counted)
        p_value, start = max(p_value, two_way(value, squares)), math.sqrt(max(squares[:2]))
        width = max(math.sqrt(squares[0]), 1e-6 * start)  # the least: where nothing varies, or hardly but for seeds
        if start and two_way(width, squares) > LEVEL:
            width = interval_half_width(lambda mean: two_way(mean, squares), start)
        both = float(f"{max(by_images * student_quantile(len(whole)), width) / NORMAL_QUANTILE:.6g}")
    return Difference(value, by_images, both, float(f"{p_value:.6g}"), len(whole), size)


def fewest_seeds(group: Group) -> int:
    """Return the number of training seeds of the method that has the fewest, as which a table of seeds counts."""
    seeds: dict[str, set[int]] = {}
    for method, seed in (member for result in group for member in result.members):
        seeds.setdefault(method, set()).add(seed)
    return min(map(len, seeds.values()))


def squares_of(table: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean squares of a table of seeds by images, each scaled to the variance of the mean, and its size."""
    by_seed, by_image = [fmean(row) for row in table], average(table)
    seeds, images, mean = len(by_seed), len(by_image), fmean(by_seed)
    gaps = [v - s - i + mean for row, s in zip(table, by_seed, strict=True) for v, i in zip(row, by_image, strict=True)]
    rest = fmean(gap * gap for gap in gaps) / ((seeds - 1) * (images - 1))
    return stdev(by_image) ** 2 / images, stdev(by_seed) ** 2 / seeds, rest, images, seeds


def two_way(mean: float, squares: Sequence[float]) -> float:
    """Return the generalized p-value of "the true mean is 0", images and seeds both random (rs.statistics.two_way).

    The integral is over chi-squares of images and of rest, each the cube of a normal variable, and over the seeds' chi.
    """
    freedom, total = squares[4] - 1, 0.0
    images, seeds, rest = (max(square / mean**2, 1e-200) if mean else math.inf for square in squares[:3])
    for (node, weight), side in itertools.product(HERMITE if mean else [], (-1.0, 1.0)):
        by_images = images * inverse_chi_square(squares[3] - 1, node)
        by_rest = rest * inverse_chi_square(freedom * (squares[3] - 1), side)
        end = min(math.sqrt(freedom * seeds / by_rest), math.sqrt(freedom) + 9.0)
        scale = max(math.sqrt(freedom * seeds / (1.0 + by_images)), 1e-6)
        width, part = math.asinh(end / scale) / 2, 0.0
        for point, share in LEGENDRE:
            chi = scale * math.sinh(width * (point + 1.0))
            variance = max(by_images, by_images - by_rest + freedom * seeds / max(chi, 1e-12) ** 2)
            density = chi ** (freedom - 1) * math.exp(-chi * chi / 2) * math.hypot(scale, chi)
            part += share * density * math.erfc(math.sqrt(0.5 / variance))
        part *= width * 2 ** (-freedom / 2) / math.gamma(freedom / 2)
        last = chi_square_above(freedom * seeds / by_rest, freedom) * math.erfc(math.sqrt(0.5 / by_images)) / 2
        total += weight * (part + last)
    return min(total, 1.0) if mean else 1.0


def inverse_chi_square(freedom: float, node: float) -> float:
    """Return freedom / chi2 at a quantile of a standard normal variable (Wilson & Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return 1 / max(1 - spread + node * math.sqrt(spread), 0.05) ** 3


def chi_square_above(x: float, freedom: float) -> float:
    """Return the chance that a chi-square variable exceeds x, by recursion over its degrees of freedom."""
    start = int(freedom) % 2
    terms = (math.exp(j / 2 * math.log(x / 2) - x / 2 - math.lgamma(j / 2 + 1)) for j in range(start, int(freedom), 2))
    return sum(terms, math.erfc(math.sqrt(x / 2)) * start)


def interval_half_width(p_value: Callable[[float], float], start: float) -> float:
    """Return half the width of the 95 % interval: the mean whose p-value is 5 %, by secants from two of them."""
    low, high = start, 2 * start
    gaps = [math.log(p_value(mean) / LEVEL) for mean in (low, high)]
    while gaps[1] and abs(high - low) > 1e-10 * high:
        low, high = high, high * (high / low) ** (gaps[1] / (gaps[0] - gaps[1]))
        gaps = [gaps[1], math.log(max(p_value(high), 1e-200) / LEVEL)]
    return high


def student(value: float, error: float, freedom: float) -> float:
    """Return the two-sided p-value of a mean by Student's t."""
    square = (value / error) ** 2 if error else math.inf
    whole = freedom + square
    return beta(freedom / 2, 0.5, freedom / whole, square / whole) if error else float(not value)


@cache
def student_quantile(images: int) -> float:
    """Return the number of standard errors over images in half a 95 % interval."""
    return interval_half_width(lambda t: student(t, 1.0, images - 1), 2.0)


def beta(a: float, b: float, x: float, y: float) -> float:
    """Return the incomplete beta function I_x(a, b) by its series (DLMF 8.17.8); y is 1 - x, to all digits."""
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, y, x)
    total, term, m = 1.0, 1.0, 0
    while term > 1e-17 * total:
        term *= (a + b + m) / (a + 1 + m) * x
        total, m = total + term, m + 1
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + b * math.log(y)
    return total * math.exp(log + a * math.log(x)) / a if x > 0 else 0.0


# ------------------------------------------------------------------------------------------------- tables


def share_certified(group: Group, radius: float) -> float:
    """Return the share of images that are right with at least this radius, mean over results."""
    return fmean(sum(reach >= radius for reach in result.reach) / len(result.reach) for result in group)


def difference_cells(estimate: Difference, prefix: str = "") -> Values:
    """Return the numbers of a difference, by their names in tables."""
    names = ("difference", "error_images", "error", "p_value", "images", "seeds", "tie")
    return {prefix + name: value for name, value in zip(names, (*estimate, estimate.tie), strict=True)}


def acr_cells(group: Group) -> Values:
    """Return ACR, errors and clean accuracy, by their names in tables and in metrics.json."""
    acr = estimate_of(group)
    values = {"acr": acr.value, "standard_error": acr.error_images, "clean_accuracy": share_certified(group, 0.0)}
    both = {} if acr.error is None else {"standard_error_with_seeds": acr.error}
    return values | {"images": acr.images, "seeds": acr.seeds} | both


def best_labels(methods: dict[str, Group]) -> set[str]:
    """Return the labels of the group of largest ACR of the sound ones, and of those that tie with it."""
    acrs = {label: estimate_of(group).value for label, group in methods.items() if group[0].scope != UNSOUND}
    first = max(acrs, key=lambda label: acrs[label], default="")
    return {label for label in acrs if label == first or estimate_of(methods[first], methods[label]).tie}


def of_members(group: Group, methods: dict[str, Group]) -> tuple[Group, Group]:
    """Return the members' means, and the best members, of ensembles, as results of the ensembles' seeds."""
    singles = {result.members: result.scores for other in methods.values() for result in other if result.key is None}
    teams = [(result, [singles[member,] for member in result.members]) for result in group]
    means = tuple(result._replace(scores=average(team)) for result, team in teams)
    return means, tuple(result._replace(scores=max(team, key=fmean)) for result, team in teams)


def ensemble_line(group: Group, methods: dict[str, Group], default: str) -> Values:
    """Return the numbers of an ensemble, and its differences to its members and to the default combination."""
    line = acr_cells(group) | {"scope": group[0].scope, "sound": group[0].scope != UNSOUND}
    for prefix, other in zip(("members_", "best_member_"), of_members(group, methods), strict=True):
        line |= difference_cells(estimate_of(group, other), prefix)
    plain = {result.members: result for other in methods.values() for result in other if result.key == default}
    if group[0].key != default and all(result.members in plain for result in group):
        line |= difference_cells(estimate_of(group, tuple(plain[result.members] for result in group)), "reference_")
    return line


def tables(groups: Groups, study: Values) -> dict[str, list[Values]]:
    """Return the lines of every table that follows from the rows, by its name."""
    lines, default = {name: list[Values]() for name in table_names(study)}, study["combination"]
    for sigma, methods in groups.items():
        shown = {label: group for label, group in methods.items() if group[0].key in (None, default)}
        bests = best_labels(shown)
        for label, group in shown.items():
            names = {"sigma": sigma, "method": label}
            marks = {"sound": group[0].scope != UNSOUND, "best": label in bests}
            lines["main"].append(names | acr_cells(group) | marks)
            shares = {radius: share_certified(group, radius) for radius in study["radii"]}
            lines[f"certified-{sigma}"] += [names | {"radius": r, "accuracy": share} for r, share in shares.items()]
        for name in dict.fromkeys([study["reference"], "advmacer"]):
            for label in [label for label in shown if label != name and name in shown]:
                names = {"sigma": sigma, "reference": name, "method": label}
                lines["differences"].append(names | difference_cells(estimate_of(shown[label], shown[name])))
        ensembles = {label: group for label, group in methods.items() if group[0].key}
        bests = best_labels(ensembles)
        for label, group in ensembles.items():
            names = {"sigma": sigma, "ensemble": group[0].name, "combination": group[0].key, "best": label in bests}
            lines[f"ensembles-{sigma}"].append(names | ensemble_line(group, methods, default))
    return lines


def agree(text: str, value: Any) -> bool:
    """Return whether the text of a cell says a value."""
    if isinstance(value, float):
        return text == repr(float(text)) and math.isclose(float(text), value, rel_tol=CLOSE, abs_tol=1e-13)
    fraction = [f"{value}.0"] * (type(value) is int)  # pandas makes numbers with gaps between them fractions
    return text in ["" if value is None else str(value), *fraction]


def check_lines(path: str, said: list[dict[str, str]], expected: list[Values]) -> str:
    """Compare the lines of a table with those that follow; return what was derived."""
    derived, table = {name for line in expected for name in line}, Path(path).stem.split("-")[0]
    scopes = {line.get("scope") for line in expected}
    stated = STATED.get(table, set()) - (TWO_SIDED if scopes == {"set"} else set())
    demand(len(said) == len(expected), f"{path} must have {len(expected)} lines, not {len(said)}")
    for number, (line, values) in enumerate(zip(said, expected, strict=True), 2):
        demand(line.keys() == derived | stated, f"{path} must have the columns {', '.join(sorted(derived | stated))}")
        for name, cell in line.items():
            where = f"{path}, line {number}: {name} must be"
            value = values.get(name)
            demand(name in stated or agree(cell, value), f"{where} {value}, not {cell}")
            demand(name in derived or re.fullmatch("|-?[0-9][0-9.e+-]*", cell), f"{where} a number, not {cell}")
    return f"{path}: {len(derived) * len(said)} cells derived; not derived: {', '.join(sorted(stated)) or 'none'}"


def parse_table(path: str, text: str) -> list[dict[str, str]]:
    """Return the lines of a table by column; its cells have neither quotes nor commas."""
    header, *lines = [line.split(",") for line in text.removesuffix("\n").split("\n")]
    demand(text.endswith("\n") and len({*header}) == len(header), f"{path} must have each column once")
    return [dict(zip(header, line, strict=True)) for line in lines]


# ------------------------------------------------------------------------------------------------- claims


def comparisons(groups: Groups, study: Values) -> Iterator[tuple[str, str, str, Group | None, Group | None]]:
    """Return claim, noise level, subject and the two groups to compare, where both are there, of every claim."""
    names = dict.fromkeys((c["name"], len(c["members"])) for c in study["classifiers"] if c["key"])
    for sigma, methods in zip(study["sigmas"], groups.values(), strict=True):
        yield "AdvMacer beats SmoothAdv", sigma, "means over seeds", methods.get("advmacer"), methods.get("smoothadv")
        yield EQUAL_TIME, sigma, "", None, None
        for name, size in names:
            plain, optimal = (methods.get(label_of(name, key, study["combination"])) for key in ("average", "optimal"))
            kinds = sorted({method for method, _ in plain[0].members}) if plain else []
            if plain:
                yield "EsbRS beats the mean of its members", sigma, name, plain, of_members(plain, methods)[0]
            for single in [f"{kind} x{size}" for kind in kinds if len(kinds) > 1]:
                other = methods.get(label_of(single, "average", study["combination"]))
                yield "mixed beats single-method", sigma, f"{name} against {single}", plain, other
            if optimal:
                yield "optimal weights beat equal ones", sigma, name, optimal, plain


def printed(difference: Difference) -> str:
    """Return a difference with its errors, with the fewest decimals, from four on, that show a tie where it is one."""
    for places in itertools.count(4):
        both = None if difference.error is None else round(difference.error, places)
        value, by_images = round(difference.value, places), round(difference.error_images, places)
        if difference._replace(value=value, error_images=by_images, error=both).tie == difference.tie:
            break
    text = f"{value:+.{places}f}" if value else f"{0:.{places}f}"
    return f"{text} ± {by_images:.{places}f}" + ("" if both is None else f" [{both:.{places}f}]")


def judged_lines(claim: str, pairs: list[tuple[str, str, Difference | None]]) -> Iterator[str]:
    """Return the lines of a claim, with p-values corrected for their number (Holm 1979)."""
    every = sorted(difference.p_value for _, _, difference in pairs if difference)
    corrected = {p: max((len(every) - rank) * q for rank, q in enumerate(every) if q <= p) for p in every}
    for sigma, subject, difference in pairs:
        text, verdict = "", "not tested"
        if difference:
            verdict = "held" if difference.value > 0 else "not held"
            text, verdict = printed(difference), "tie" if corrected[difference.p_value] > LEVEL else verdict
            verdict += ", images only" * (difference.error is None)
        yield f"| {claim} | {sigma} | {subject} | {text} | {verdict} |"


def stated_lines(page: list[str], claim: str, sigmas: Sequence[str]) -> list[str]:
    """Return the lines of a claim that does not follow from the rows, if there are some of every noise level, in order.

    They can hold no mark-up, so that what a reader sees is what stands there.
    """
    verdict = f"(?:{'|'.join(VERDICTS)})(?:, images only)?"
    form = rf"\| {claim} \| ([0-9.]+) \| [\w .,%+-]* \| [\w .,±+\[\]-]* \| {verdict} \|"
    matches = [match for line in page if (match := re.fullmatch(form, line))]
    of_all = list(dict.fromkeys(match[1] for match in matches)) == [*sigmas]
    demand(of_all, f"claims.md must say at every noise level what became of {claim}")
    return [match[0] for match in matches]


def counted(verdicts: Counter[str], verdict: str) -> str:
    """Return how often there is a verdict, and how often by images only."""
    by_images = verdicts[f"{verdict}, images only"]
    return f"{verdicts[verdict] + by_images}" + f" ({by_images} images only)" * bool(by_images)


def claims_page(page: list[str], groups: Groups, study: Values, alike: Values) -> list[str]:
    """Return the page of claims as it must be; of ``page`` come its prose and what does not follow from the rows."""
    pairs: dict[str, list[tuple[str, str, Difference | None]]] = {}
    for claim, sigma, subject, *sides in comparisons(groups, study):
        difference = estimate_of(*sides) if all(sides) else None
        pairs.setdefault(claim, []).append((sigma, subject, difference))
    lines = {claim: list(judged_lines(claim, of_claim)) for claim, of_claim in pairs.items()}
    for claim in [EQUAL_TIME] + [ATTACKED] * any(c["scope"] == UNSOUND for c in study["classifiers"]):
        lines[claim] = stated_lines(page, claim, study["sigmas"])
    about = f"{len(alike['labels']):,} images (subset {alike['subset']}), n₀ = {alike['n0']:,.0f}, "
    network = f" Network: {study['network']}." if study["network"] else ""
    about += f"n = {alike['n']:,.0f}, α = {alike['alpha']:g}.{network}"
    prose, title = page[: page.index("## What there is")], f"# The claims of the paper on {study['dataset']}"
    plain = not any(re.search("[<|`~]|^ *#", line) for line in prose[1:] if line not in study["remarks"])
    demand(prose[0] == title and plain, "claims.md must begin with its title and plain text, without mark-up")
    demand({about, *study["remarks"]} <= {*prose}, f"claims.md must say {about!r}, and the remarks of the report")
    kinds = Counter(classifier["key"] is None for classifier in study["classifiers"])
    there = " | ".join(f"{kinds[single]} of {kinds[single]}" for single in (True, False))
    text = [*prose, "## What there is", ""]
    text += ["| σ | models | ensembles |", "|---:|---:|---:|", *(f"| {sigma} | {there} |" for sigma in study["sigmas"])]
    text += ["", "## Claims", "", f"| claim | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * len(VERDICTS)]
    for claim, of_claim in lines.items():
        verdicts = Counter(line.split(" | ")[-1].removesuffix(" |") for line in of_claim)
        text.append(f"| {claim} | {' | '.join(counted(verdicts, verdict) for verdict in VERDICTS)} |")
    text += ["", "| claim | σ | of | difference | verdict |", "|---|---:|---|---:|---|"]
    return [*text, *itertools.chain(*lines.values()), ""]


def check_bundle(bundle: bytes) -> list[str]:
    """Check a bundle; return, line by line, what was derived and what was not, and in the end that all agrees."""
    study = parse_strict_json(files := unpack(bundle), STUDY)
    wrong = ", ".join(sorted(files.keys() ^ file_names(study))[:3])
    demand(not wrong, f"the files must be those that {STUDY} implies, each once, unlike {wrong}")
    (groups, alike), folder = read_results(files, study), f"reports/{study['dataset']}"
    lines = [f"results: all rows of {len(study['classifiers'])} classifiers a noise level derived from their votes"]
    for name, expected in sorted(tables(groups, study).items()):
        path = f"{folder}/{name}.csv"
        lines.append(check_lines(path, parse_table(path, files[path].decode()), expected))
    path = f"{folder}/claims.md"
    page = files[path].decode().split("\n")
    derived = claims_page(page, groups, study, alike)
    for number, (line, wanted) in enumerate(itertools.zip_longest(page, derived), 1):
        demand(line == wanted, f"{path}, line {number} must be {wanted!r}, not {line!r}")
    lines.append(f"{path}: {len(derived)} lines derived; not derived: its prose, {EQUAL_TIME}, {ATTACKED}")
    return [*lines, "nothing contradicts the votes"]


if __name__ == "__main__":
    try:
        print(*check_bundle(Path(sys.argv[1]).read_bytes()), sep="\n")
    except (BundleError, *FAULTS) as error:
        sys.exit(f"refused: {error or type(error).__name__}")
