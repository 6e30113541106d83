"""Check a bundle of a study of certified robustness, with Python 3.11 or later and nothing but its standard library.

    python check.py BUNDLE

A bundle is a tar archive, compressed by xz: rows (votes and certificates, a line an image), sidecars (what made them),
cards of models, ensembles, the protocol, the report's tables and claims, and the SHA-256 of each. This file believes no
number that follows from others: from the votes it derives every class, bound, radius and correctness, from these the
tables, and from those the claims. It writes nothing, and says what it could not derive. It cannot know whether the
votes were cast so: ``rs verify BUNDLE --image I`` casts those of an image again.
"""

import csv
import hashlib
import io
import itertools
import json
import lzma
import math
import sys
import tarfile
from collections import Counter, namedtuple
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

MANIFEST, STUDY, LARGEST = "manifest.json", "study.json", 2**31  # bytes of a bundle, unpacked
STATED = Decimal("1e-12")  # bounds and radii are proved to this part of them; float64 carries little more
CLOSE, TIE = 1e-9, 0.05  # averages of float64 in another order; the level of ties
ROW = "idx label predict radius correct p_lower n0 n alpha sigma counts0 counts mode scope".split()  # noqa: SIM905
ALIKE = "dataset images classes subset n0 n alpha seed noise precision shortcut".split()  # noqa: SIM905
ESTIMATE = "difference error_images error p_value tie images seeds".split()  # noqa: SIM905
Result = namedtuple("Result", "key scope members seeds scores reach")
UNSOUND, VERDICTS = "per-image", ("held", "not held", "tie", "not tested")
DERIVED = ("main", "certified-", "curves", "differences", "ensembles-", "acr-vs-members", "mixed")
KEYS = {"sigma", "method", "reference", "ensemble", "combination", "radius", "kind", "mixed", "single"}
BROKEN = (EOFError, lzma.LZMAError, tarfile.TarError)
FAULTS = (*BROKEN, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class BundleError(Exception):
    """A bundle contradicts itself; says where."""


def demand(holds, what):
    """Refuse the bundle unless ``holds``."""
    if not holds:
        raise BundleError(what)


def pack(files):
    """Return files by name as a bundle: the manifest is made, and the same files make the same archive."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items()) if name != MANIFEST}
    files, tar = files | {MANIFEST: (json.dumps(hashes, indent=2) + "\n").encode()}, io.BytesIO()
    form = tarfile.PAX_FORMAT if max(map(len, "/".join(files).split("/"))) > 100 else tarfile.USTAR_FORMAT  # long names
    with tarfile.open(fileobj=tar, mode="w", format=form) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # without times and owners
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return tar.getvalue()


def unpack(bundle):
    """Return the files of a bundle, if their archive is the one that they make."""
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    tar = xz.decompress(bundle, LARGEST)
    demand(xz.eof and not xz.unused_data, "the archive must end where its compressed data end")
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive.getmembers() if entry.isreg()}
    demand(pack(files) == tar, f"the archive must hold files alone, and {MANIFEST} the SHA-256 of each, in order")
    return files


@cache
def proved_bound(k, n, alpha, stated):
    """Prove a Clopper-Pearson bound, P(Bin(n, bound) >= k) = alpha, to STATED of it.

    The probability grows with p: let it be below alpha at a p just below the bound, and above it just above. It is the
    sum of C(n, j) p^j (1 - p)^(n - j) over j >= k, each term made from the one before. The terms left out are fewer
    than n, none above the last, so below 1e-20 of the sum together; at 50 digits, roundings of so many positive numbers
    add less than 1e-40 to that.
    """
    slack, chances = Decimal("1e-19"), []
    with localcontext(prec=50, Emin=-(10**9)):
        for p in (Decimal(stated) * (1 - STATED), min(Decimal(stated) * (1 + STATED), 1 - STATED**2)):
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
def proved_radius(p_lower, sigma, stated):
    """Prove R = sigma Phi^-1(p_lower) to STATED (R + sigma): Phi is at most p_lower just below, at least just above."""
    with localcontext(prec=50):
        z = Decimal(stated) / Decimal(sigma)
        return phi(z - STATED * (z + 1)) <= Decimal(p_lower) <= phi(z + STATED * (z + 1))


def phi(z):
    """Return the normal distribution function: 1/2 + density (z + z^3 / 3 + z^5 / 15 + ...), terms of one sign."""
    total, term, j = z, z, 1
    while abs(term) > abs(total) * Decimal("1e-45"):
        j += 2
        term *= z * z / j
        total += term
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937511")
    return Decimal("0.5") + total * (-z * z / 2).exp() / two_pi.sqrt()


def check_row(row, side, members):
    """Derive a row from its votes, and demand that it is so."""
    undecided, votes = side["classes"] if side["scope"] == "set" else None, {}  # the number of votes for no class
    for name in ("counts0", "counts"):
        pairs = [pair.split(":") for pair in row[name].split(",")] if row[name] != "-" else []
        own = votes[name] = {int(k): int(number) for k, number in pairs}
        text = ",".join(f"{k}:{own[k]}" for k in sorted(own)) or "-"
        demand(row[name] == text and min(own.values(), default=1) > 0, f"{name} must be votes, class by class")
        known = all(0 <= k < side["classes"] or k == undecided for k in [*own, int(row["label"])])
        demand(known, f"{name} and label must be of the sidecar's classes")
    n0, n, label, predict = (int(row[name]) for name in ("n0", "n", "label", "predict"))
    demand((n0, n) == tuple(sum(own.values()) for own in votes.values()), "n0 and n must be the numbers of votes")
    same = all(float(row[name]) == side[name] for name in ("n0", "alpha", "sigma")) and row["scope"] == side["scope"]
    demand(same, "n0, alpha, sigma and scope must be the sidecar's")
    chosen = max(sorted(votes["counts0"]), key=votes["counts0"].get)  # the lowest of equals
    if row["mode"] == "shortcut":  # the n draws were skipped
        demand(side["shortcut"] and n == 0 and chosen != label, "a shortcut must be of a wrong class")
        demand(row["p_lower"] == row["radius"] == "0.0", "a shortcut must have no bound and no radius")
        derived = -1 if chosen == undecided else chosen
    else:
        k = 0 if chosen == undecided else votes["counts"].get(chosen, 0)
        proved = proved_bound(k, n, row["alpha"], row["p_lower"]) if k else row["p_lower"] == "0.0"
        demand(row["mode"] == "certify" and n == side["n"], "mode must be certify or shortcut, n the sidecar's")
        demand(proved, "p_lower must be the Clopper-Pearson bound of the votes")
        sure = float(row["p_lower"]) >= 0.5
        proved = proved_radius(row["p_lower"], row["sigma"], row["radius"]) if sure else row["radius"] == "0.0"
        demand(proved, "radius must be sigma Phi^-1(p_lower), or 0 below one half")
        derived = chosen if sure else -1
    demand(predict == derived, "predict must be the class of the n0 votes, or -1 where the bound is below one half")
    demand(row["correct"] == str(int(predict == label)), "correct must say whether predict is label")
    demand(n0 + n <= int(row.get("evaluations", n0 + n)) <= members * (n0 + n), "evaluations must be 1 to all a draw")


def check_rows(path, text, side, members):
    """Check the rows of a classifier; return images with labels, scores, and radii of right images."""
    first, *lines, end = text.split("\n")
    names = first.split("\t")
    whole = names in (ROW, [*ROW, "evaluations"]) and len(lines) == side["rows"] and not end
    demand(whole, f"{path} must have the columns of rows, and as many rows as its sidecar says")
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines]
    for number, row in enumerate(rows, 2):
        try:
            check_row(row, side, members)
        except BundleError as error:
            raise BundleError(f"{path}, line {number}: {error}") from None
    reach = [float(row["radius"]) if row["correct"] == "1" else -1.0 for row in rows]  # wrong: certified at no radius
    return [(int(row["idx"]), row["label"]) for row in rows], [max(radius, 0.0) for radius in reach], reach


def place(study, sigma, one):
    """Return where the rows of a classifier are, by the methods and seeds of its members."""
    seeds = {method: [str(seed) for other, seed in one["members"] if other == method] for method, _ in one["members"]}
    slug = "+".join("-".join([method, *own]) for method, own in seeds.items()) + f".{one['key']}" * bool(one["key"])
    return f"{study['dataset']}/{sigma}/{one['folder']}{slug}"


def label_of(name, key, default):
    """Return the name of a classifier in tables."""
    return name if key in (None, default) else f"{name} ({key})"


def read_results(files, study):
    """Check rows, sidecars, cards and ensembles of every classifier; return results by noise level and label."""
    groups, alike, prints = {}, dict(study["certify"]), {}
    for sigma, one in itertools.product(study["sigmas"], study["classifiers"]):
        name, key, scope, members = one["name"], one["key"], one["scope"], tuple(map(tuple, one["members"]))
        path = f"results/{place(study, sigma, one)}"
        model = f"{study['dataset']}/{sigma}/" + (f"{Path(path).name}.json" if key else f"{name}/{members[0][1]}")
        side = json.loads(files[f"{path}.json"])
        demand(f"/{side['model']}".endswith(f"/{model}"), f"{path}.json must be of {model}")
        demand((side["scope"], side["sigma"]) == (scope, float(sigma)), f"{path}.json: scope or sigma is another's")
        for field in ALIKE:
            common = alike.setdefault(field, side.get(field))
            demand(side.get(field) == common, f"{path}.json: {field} must be {common}, as in all of the study")
        if key is None:
            prints[sigma, members[0]] = {"method": name, "seed": members[0][1], "classifier": side.get("classifier")}
        if card := json.loads(files.get(side["model"] + "/model.json" * (key is None), "{}")):
            demand((card["dataset"], card["sigma"]) == (side["dataset"], side["sigma"]), f"{model}: another study's")
            theirs = card["members"] if key else [card | {"classifier": side["classifier"]}]
            wanted = [prints[sigma, member] for member in members]
            demand([{field: own[field] for field in wanted[0]} for own in theirs] == wanted, f"{model}: other members")
        images, scores, reach = check_rows(f"{path}.tsv", files[f"{path}.tsv"].decode(), side, len(members))
        demand(images == alike.setdefault("each", [*dict(images).items()]), f"{path}.tsv: other images, or one twice")
        result = Result(key, scope, members, {seed for _, seed in members}, scores, reach)
        groups.setdefault(float(sigma), {}).setdefault(label_of(name, key, study["combination"]), []).append(result)
    return groups


def average(columns):
    """Return the means of equally long lists, place by place."""
    return [sum(column) / len(columns) for column in zip(*columns, strict=True)]


def estimate(*groups, prefix=""):
    """Return the mean score of results, or the difference of two, with its two errors (docs/method.md)."""

    def gaps(without=None):
        kept = [[one.scores for one in group if without not in one.seeds] for group in groups]
        means = [average(scores) for scores in kept if scores]
        return None if len(means) < len(groups) else [v[0] - sum(v[1:]) for v in zip(*means, strict=True)]

    seeds = sorted({seed for group in groups for one in group for seed in one.seeds})
    whole, parts, size = gaps(), [gaps(seed) for seed in seeds], len(seeds)
    value, by_images, both = fmean(whole), stdev(whole) / math.sqrt(len(whole)), None
    p_value = student(value, by_images, len(whole) - 1)
    if None not in parts:  # pseudo-values of the jackknife over seeds
        table = [[size * a - (size - 1) * b for a, b in zip(whole, part, strict=True)] for part in parts]
        both, freedom = two_way(table)
        p_value = max(p_value, student(value, both, freedom))
    numbers = (value, by_images, both, p_value, p_value > TIE, len(whole), size)
    return {prefix + name: number for name, number in zip(ESTIMATE, numbers, strict=True)}


def two_way(table):
    """Return the error of the mean of a table of seeds by images, both random, and its degrees of freedom."""
    by_seed, by_image = [fmean(row) for row in table], average(table)
    seeds, images, mean = len(by_seed), len(by_image), fmean(by_seed)
    gaps = [v - s - i + mean for row, s in zip(table, by_seed, strict=True) for v, i in zip(row, by_image, strict=True)]
    rest = (fmean(gap * gap for gap in gaps) / ((seeds - 1) * (images - 1)), (seeds - 1) * (images - 1))
    parts = [(stdev(by_image) ** 2 / images, images - 1), (stdev(by_seed) ** 2 / seeds, seeds - 1)]
    positive = [part for part in parts if part[0] > rest[0]]
    if len(positive) < 2:  # of what is left, the variance and its degrees of freedom
        variance, freedom = (positive or [rest])[0]
        return math.sqrt(variance), freedom
    total = parts[0][0] + parts[1][0] - rest[0]
    return math.sqrt(total), total**2 / sum(variance**2 / freedom for variance, freedom in [*parts, rest])


def student(value, error, freedom):
    """Return the two-sided p-value of a mean by Student's t."""
    square = (value / error) ** 2 if error else math.inf
    whole = freedom + square
    return beta(freedom / 2, 0.5, freedom / whole, square / whole) if error else float(not value)


def beta(a, b, x, y):
    """Return the incomplete beta function I_x(a, b) by its series (DLMF 8.17.8); y is 1 - x, to all digits."""
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, y, x)
    total, term, m = 1.0, 1.0, 0
    while term > 1e-17 * total:
        term *= (a + b + m) / (a + 1 + m) * x
        total, m = total + term, m + 1
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + b * math.log(y)
    return total * math.exp(log + a * math.log(x)) / a if x > 0 else 0.0


def accuracy(group, radius):
    """Return the share of images that are right with at least this radius, mean over results."""
    return fmean(fmean(own >= radius for own in one.reach) for one in group)


def headline(group):
    """Return ACR, errors and clean accuracy, under the names that tables have for them."""
    found = estimate(group)
    names = {"acr": "difference", "standard_error": "error_images", "standard_error_with_seeds": "error"}
    return found | {name: found[other] for name, other in names.items()} | {"clean_accuracy": accuracy(group, 0.0)}


def of_members(group, methods):
    """Return the members' means, and the best members, of ensembles, as results of the ensembles' seeds."""
    singles = {one.members: one.scores for own in methods.values() for one in own if one.key is None}
    teams = [(one, [singles[member,] for member in one.members]) for one in group]
    means = [one._replace(scores=average(team)) for one, team in teams]
    return means, [one._replace(scores=max(team, key=fmean)) for one, team in teams]


def is_best(label, methods):
    """Whether a group has the largest ACR of the sound ones, or ties with it."""
    acrs = {name: fmean(fmean(one.scores) for one in own) for name, own in methods.items() if own[0].scope != UNSOUND}
    first = max(acrs, key=acrs.get)
    return label in acrs and (label == first or estimate(methods[first], methods[label])["tie"])


def cells(table, said, groups, default):
    """Return what must stand in a line of a table, by what the line is about."""
    methods = groups[float(said["sigma"])]
    if table == "mixed":
        found = estimate(methods[said["mixed"]], methods[said["single"]], prefix="acr_")
        return found | {"verdict": "tie" if found["acr_tie"] else "helped" if found["acr_difference"] > 0 else "hurt"}
    if table == "acr-vs-members":
        group = methods[said["kind" if said["members"] == "1" else "ensemble"]]
        return headline(group) | {"members": len(group[0].members)}
    own = {label: group for label, group in methods.items() if group[0].key}
    beside = {label: group for label, group in methods.items() if group[0].key in (None, default)}
    if "method" in said:
        group = methods[said["method"]]
        if table == "differences":
            return estimate(group, methods[said["reference"]])
        if "accuracy" in said:
            return {"accuracy": accuracy(group, float(said["radius"]))}
        found = headline(group) | {"best": is_best(said["method"], beside)}
    else:
        label = label_of(said["ensemble"], said["combination"], default)
        group, plain = methods[label], {one.members: one for other in beside.values() for one in other}
        found = headline(group) | {"best": is_best(label, own), "scope": group[0].scope}
        against = dict(zip(("members_", "best_member_"), of_members(group, methods), strict=True))
        if said["combination"] != default and plain.keys() >= {one.members for one in group}:
            against["reference_"] = [plain[one.members] for one in group]
        for prefix, other in against.items():
            found |= estimate(group, other, prefix=prefix)
    return found | {"sound": group[0].scope != UNSOUND}


def comparisons(groups, study):
    """Return claim, noise level, subject and the two groups to compare, where both are there, of every claim."""
    names = dict.fromkeys((one["name"], len(one["members"])) for one in study["classifiers"] if one["key"])
    for sigma, methods in zip(study["sigmas"], groups.values(), strict=True):
        yield "AdvMacer beats SmoothAdv", sigma, "means over seeds", methods.get("advmacer"), methods.get("smoothadv")
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


def claims(groups, study):
    """Return the lines of the tables of claims, with p-values corrected for their number (Holm 1979)."""
    every, counts, lines = list(comparisons(groups, study)), [], []
    for claim in dict.fromkeys(one[0] for one in every):
        pairs = [(one[1:3], estimate(*one[3:]) if all(one[3:]) else None) for one in every if one[0] == claim]
        p_values, largest, verdicts = sorted(found["p_value"] for _, found in pairs if found), 0.0, {None: "not tested"}
        for rank, p_value in enumerate(p_values):
            largest = max(largest, p_value * (len(p_values) - rank))
            verdicts[p_value] = "tie" if min(largest, 1.0) > TIE else "held"
        own = Counter()
        for (sigma, subject), found in pairs:
            verdict = verdicts[found and found["p_value"]]
            verdict, text = "not held" if verdict == "held" and found["difference"] < 0 else verdict, ""
            own[verdict] += 1
            if found:
                value, both = found["difference"], found["error"]
                text = (f"{value:+.4f}" if abs(value) >= 0.00005 else "0.0000") + f" ± {found['error_images']:.4f}"
                text, verdict = (text, f"{verdict}, images only") if both is None else (f"{text} [{both:.4f}]", verdict)
            lines.append(f"| {claim} | {sigma} | {subject} | {text} | {verdict} |")
        counts.append(" | ".join([f"| {claim}", *(str(own[verdict]) for verdict in VERDICTS)]) + " |")
    return counts + lines


def agree(path, said, found):
    """Demand that what is said is what was found; return the names of both."""
    for name in said.keys() & found.keys():
        text, value = said[name], found[name]
        same = str(text) == ("" if value is None else str(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            part, floor = (3e-8, 0) if name.endswith("p_value") else (CLOSE, 1e-13)  # SciPy rounds p-values near 1
            same = abs(float(text) - value) <= part * abs(value) + floor
        demand(same, f"{path}: {name} must be {value}, not {text}")
    return said.keys() & found.keys()


def check(bundle):
    """Check a bundle; return, line by line, what was derived and what was not, and in the end that all agrees."""
    study = json.loads((files := unpack(bundle))[STUDY])
    groups, folder = read_results(files, study), f"reports/{study['dataset']}/"
    lines = [f"results: all rows of {len(study['classifiers'])} classifiers a noise level derived from their votes"]
    for path in [name for name in sorted(files) if name.startswith(folder) and name.endswith(".csv")]:
        table, done, left = path.removeprefix(folder).removesuffix(".csv"), 0, set()
        for number, said in enumerate(csv.DictReader(io.StringIO(files[path].decode())), 2):
            found = cells(table, said, groups, study["combination"]) if table.startswith(DERIVED) else {}
            names = agree(f"{path}, line {number}", said, found)
            done, left = done + len(names), left | {name for name in said.keys() - names - KEYS if said[name]}
        rest = ", ".join(sorted(left)) or "none"
        lines += [f"{path}: {done} cells derived; not derived: {rest}"] * bool(done or left)  # not of an empty table
    for method, levels in json.loads(files[f"{folder}metrics.json"]).items():
        for sigma, said in levels.items():
            agree(f"{folder}metrics.json, {method}", said, headline(groups[float(sigma)][method]))
    claimed, found = files[f"{folder}claims.md"].decode().split("\n"), claims(groups, study)
    claimed = [line for line in claimed if line.startswith(tuple(line[: line.index("|", 2)] for line in found))]
    demand(claimed == found, f"{folder}claims.md must say what follows from the rows")
    last = f"{folder}claims.md: {len(found)} lines derived; not derived: equal training time, text"
    return [*lines, last, "nothing contradicts the votes"]


if __name__ == "__main__":
    try:
        print(*check(Path(sys.argv[1]).read_bytes()), sep="\n")
    except (BundleError, *FAULTS) as error:
        sys.exit(f"refused: {error or type(error).__name__}")
