"""The theory of ensembles in tables: variances, and bounds next to what was measured.

``spreads`` and ``bounds`` hold the numbers of ``rs.statistics.ensemble_variance``, means over
images; they may be empty:

- ``spreads``: ``sigma ensemble members source images alpha beta variance within across``, means
  over the wrong classes too. ``members`` are those that were measured, of all ensembles of that
  kind. ``source`` says whose margins these are: ``perturbed`` copies of the members, or members
  ``trained`` independently; ``within`` and ``across`` are NaN where there is no such pair.
- ``bounds``: ``sigma ensemble members combination images bound bound_minimum measured
  other_class``.
"""

from __future__ import annotations

import re
from math import comb

import pandas as pd

from rs.reporting.results import Groups, Result, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import Row, Table, build_table, plain
from rs.statistics.certificate import parse_counts
from rs.statistics.ensemble_variance import average_variance_bound
from rs.study.ensembles import members_text

FIRST = (
    "Variances, covariances and bounds are those of the first ensemble with this number of members "
    "of the same methods."
)


def theory_table(spreads: pd.DataFrame) -> Table:
    """Return how members vary, alone and together, and the paper's bound for their average."""
    rows = [row | _average(row) for row in spreads.to_dict("records")]
    columns = {
        "Ensemble": plain("members"),
        "σ": plain("sigma"),
        "Source": plain("source"),
        "Images": plain("images"),
        "Alpha": plain("alpha", ".4f"),
        "Beta": plain("beta", ".4f"),
        "Variance": plain("variance", ".4f"),
        "Within": plain("within", ".4f"),
        "Across": plain("across", ".4f"),
        "Average": plain("average", ".4f"),
        "Bound": plain("average_bound", ".4f"),
    }
    caption = (
        "How the margins of members (probability of the label minus that of a wrong class) vary "
        "with the noise; means over images and wrong classes. Source: perturbed copies of the "
        "members, or members trained independently. Alpha: largest variance of a member. Beta: "
        "largest covariance of two members. Variance: mean over members. Within, Across: mean "
        "covariance of two members of one method, and of two methods. Average: variance of the "
        "mean margin of all L members. Bound: the paper's bound on it, beta + (alpha - beta) / L."
    )
    return build_table(caption, columns, rows, [FIRST])


def bounds_table(bounds: pd.DataFrame, groups: Groups) -> Table:
    """Return Chebyshev's lower bounds on the label's probability, and its shares as measured."""
    by_members = {}
    for result in results_of(groups):
        if result.members:
            by_members[result.sigma, members_text(result.members), result.combination] = result
    rows = []
    shown = []
    for record in bounds.to_dict("records"):
        key = (record["sigma"], record["members"], record["combination"])
        if key in by_members:  # skip combinations that the parameters no longer declare
            shown.append(by_members[key])
            rows.append(record | _votes(by_members[key]))
    columns = {
        "Ensemble": plain("members"),
        "Combination": plain("combination"),
        "σ": plain("sigma"),
        "Images": plain("images"),
        "Lower bound": plain("bound", ".3f"),
        "Lower bound, paper's form": plain("bound_minimum", ".3f"),
        "Share of samples": plain("measured", ".3f"),
        "Share of votes": plain("votes", ".3f"),
        "Images with votes": plain("voted"),
        "Other class": plain("other_class", ".1%"),
    }
    caption = (
        "Probability that the ensemble gives a noisy image its label; means over images. Lower "
        "bound: Chebyshev's, from the mean margin of the ensemble. Paper's form: from the smallest "
        "mean margin of a member. Share of samples: how often the label wins in the samples that "
        "the bound is computed from, so it is never below the bound; other samples chose the "
        "weights. Share of votes: the label's part of the n votes in certification, over the "
        "images that have such votes (images that the first n₀ samples get wrong may skip them). "
        "Other class: share of the images whose weights come from the margins of another class "
        "than the label."
    )
    text = [FIRST, *notes.provenance_notes(shown)]
    return build_table(caption, columns, rows, text)


def _average(spread: Row) -> Row:
    """Return the variance of the members' average, and the paper's bound on it.

    >>> spread = {"ensemble": "a x1 + b x2", "alpha": 0.3, "beta": 0.1, "variance": 0.3}
    >>> spread |= {"within": 0.1, "across": 0.0}
    >>> {name: round(value, 4) for name, value in _average(spread).items()}
    {'average': 0.1222, 'average_bound': 0.1667}
    """
    counts = [int(count) for count in re.findall(r" x(\d+)", spread["ensemble"])]
    members = sum(counts)
    pairs = comb(members, 2)
    pairs_within = sum(comb(count, 2) for count in counts)
    total = 0.0
    if pairs_within:
        total += spread["within"] * pairs_within
    if pairs > pairs_within:
        total += spread["across"] * (pairs - pairs_within)
    covariance = total / max(1, pairs)
    average = (spread["variance"] + (members - 1) * covariance) / members
    bound = average_variance_bound(spread["alpha"], spread["beta"], members)
    return {"average": average, "average_bound": float(bound)}


def _votes(result: Result) -> Row:
    """Return the label's mean share of the n votes, and the number of images with votes."""
    voted = result.rows[result.rows["mode"] != "shortcut"]
    shares = []
    for text, label, n in zip(voted["counts"], voted["label"], voted["n"], strict=True):
        shares.append(parse_counts(text).get(label, 0) / n)
    return {"votes": sum(shares) / len(shares) if shares else None, "voted": len(shares)}
