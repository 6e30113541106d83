"""The made-up study with everything that a bundle holds: sidecars in full, and its report."""

import hashlib
import lzma
from unittest.mock import patch

from rs.reporting import check, report
from rs.reporting.tables.formatting import csv
from rs.storage import files
from tests.support.tiny_study import (
    ALPHA,
    CLASSES,
    IMAGES,
    N0,
    N,
    add_family,
    make_study,
    read_study,
)

CERTIFY = f"""\
defaults:
  certify: {{n0: {N0}, n: {N}, alpha: {ALPHA}, seed: 0, subset: {{first: {IMAGES}}},
    noise: grid, precision: float32, shortcut: false}}
"""


def fingerprint(name):
    """A made-up fingerprint of a classifier."""
    return hashlib.sha256(name.encode()).hexdigest()


def undrawn(name, data, draw):
    """In the place of pictures, which take most of the time of a report and are the same in most
    tests: their names.
    """
    return {f"{name}.csv": csv(data)} | (
        {} if data.empty else {f"{name}.png": b"", f"{name}.svg": b""}
    )


def make_bundled_study(root):
    """Write the study with families into ``root``, as a project has it but without pictures; return
    ``root``.
    """
    add_family(make_study(root))
    (root / "params.yaml").write_text((root / "params.yaml").read_text() + CERTIFY)
    for name in ("results", "weights"):
        (root / name).rename(root / "moved")
        (root / name).mkdir()
        (root / "moved").rename(root / name / "tiny")
    for path in sorted((root / "results").rglob("*.json")):
        _complete(root, path)
    folders = {name: root / name / "tiny" for name in ("results", "weights")}
    with patch("rs.reporting.report._picture", undrawn):
        made = report.make_report(read_study(root, **folders))
        report.write_report(root / "reports" / "tiny", made)
    return root


def _complete(root, path):
    """Give a sidecar what the stages write."""
    side = files.read_json(path)
    budget = {
        "dataset": "tiny",
        "images": fingerprint("images"),
        "seed": 0,
        "noise": "grid",
        "precision": "float32",
    }
    side |= budget | {
        "classifier": fingerprint(side["model"]),
        "shortcut": False,
        "rows": IMAGES,
        "classes": CLASSES,
    }
    files.write_json(path, side | {"device": "cpu", "split_size": IMAGES})


def packed(content):
    """The bundle of files, as a forger would pass it on."""
    return lzma.compress(check.pack(content), check=lzma.CHECK_SHA256, preset=0)
