"""The pipeline as it is, with stages that take no time, for tests of what DVC and git make of it.

``dvc.yaml``, ``params.yaml`` and the stage ``fingerprint`` are those of the project, so which cells
run, and when they run again, is the project's. The other stages write, where their arguments say, a
line that changes with what they read.
"""

import hashlib
import json
import shutil
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

PLACES = ("--out", "--log", "--seconds", "--times")


def stand_in_project(root):
    """Make a repository with a first commit, in which all stages but one are stand-ins."""
    from tests.support.small_project import ROOT, copy_project, run

    copy_project(root)
    for path in (root / "stages").glob("*.py"):
        if path.stem not in ("__init__", "fingerprint"):
            shutil.copy(__file__, path)
    shutil.copy(ROOT / ".dvc" / "config", root / ".dvc")
    shutil.copy(ROOT / ".gitignore", root)
    run(root, "git", "config", "user.name", "Someone")
    run(root, "git", "config", "user.email", "someone@example.org")
    run(root, "git", "add", "--all")
    run(root, "git", "commit", "--quiet", "--message", "Begin")
    return root


def digest(*paths):
    """A hash of the contents of files and folders."""
    files = []
    for path in paths:
        files += [path, *path.rglob("*")]
    content = [file.read_bytes() for file in sorted(files) if file.is_file()]
    return hashlib.sha256(b"".join(content)).hexdigest()


def write(path, text):
    """Write a file, or a file in a folder: a name without an ending is a folder's."""
    file = path if path.suffix in (".tsv", ".json", ".csv") else path / "made.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def report(results, out):
    """Write a made-up ACR of every method of the results."""
    acrs = defaultdict(dict)
    for path in sorted(results.glob("*/*.tsv")):
        method, _, _ = path.stem.rpartition("-")
        sigma = path.parent.name
        acrs[method][sigma] = int(path.read_text()[:4], 16) / 0xFFFF
    write(out / "metrics.json", json.dumps({"acr": acrs}, indent=2))


def main():
    stage = Path(sys.argv[0]).stem
    words = sys.argv[1:]
    options = {key: Path(value) for key, value in pairwise(words) if key.startswith("--")}
    if "--log" in options:
        options["--log"] /= "history.csv"
    places = [options[name] for name in PLACES if name in options]
    if stage == "tables":
        report(options["--results"], *places)
        return
    inputs = [Path(word) for word in words if Path(word).exists() and Path(word) not in places]
    if stage == "train":
        card = f"{words[0]}-{options['--sigma']}.json"
        inputs.append(Path("fingerprints/parameters") / options["--dataset"] / "train" / card)
    for place in places:
        write(place, digest(*inputs))
        if stage == "certify":
            write(place.with_suffix(".json"), "{}")


if __name__ == "__main__":
    main()
