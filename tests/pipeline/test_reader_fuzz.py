"""Every reader of files from outside reads a damaged file, or says what is wrong with it."""

import json
import resource
import shutil
import signal
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rs import params, recipes
from rs.certification.certify_model import certification_settings
from rs.command_line.fingerprints import check_recipe
from rs.data import images, parquet, pictures, sources
from rs.ensemble import declare, spec
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.published_checkpoints import read_network
from rs.reporting.attacks import attacks_text, summarize_attacks
from rs.reporting.settings import check_study
from rs.reporting.summaries import compare_rows, summarize_rows
from rs.reporting.summary_texts import comparison_text, summary_text
from rs.runtime import arithmetic
from rs.storage import attack_rows, certificate_rows, tsv
from rs.study.ensembles import declared_ensembles
from rs.study.grid import stage_parameters
from tests.support import tiny_study
from tests.support.helpers import update_json
from tests.support.raw_images import image_bytes, pixels, write_parquet

EXAMPLES = 1500
"""Damaged files of each kind."""
MEMORY, SECONDS = 4 * 2**30, 60
"""What one reader may take beyond what the process has, and how long."""


def read_parameters(path):
    values = params.read_params(path)
    certification_settings(values, "tiny")
    arithmetic.recipe_arithmetic(values, "tiny")
    declared_ensembles(values)
    check_study(values, "tiny")
    stage_parameters(values, "tiny")
    check_recipe(values, "tiny")
    recipes.base_dataset(values, "tiny")
    sources.settings(params.section(values, "datasets.tiny"), "datasets.tiny")


def read_log(path):
    return certificate_rows.read_any(
        path, sigma=0.25, n0=10, n=tiny_study.N, alpha=tiny_study.ALPHA
    )


def read_sidecar(path):
    summary_text(summarize_rows(path.with_suffix(".tsv")))
    comparison_text(compare_rows(path.with_suffix(".tsv"), path.with_name("rows.tsv")))


READERS = {
    "parameters": ("ensembles.yaml", read_parameters),
    "card": ("models/macer/0/model.json", lambda path: checkpoint.load_model(path.parent)),
    "weights": (
        "models/macer/0/model.safetensors",
        lambda path: checkpoint.load_model(path.parent),
    ),
    "checkpoint": ("c.pth", lambda path: read_network(path, {"fc.bias"})),
    "ensemble": ("ensembles/macer-0-1.average.json", spec.read),
    "pool": ("ensembles/pool.json", lambda path: declare.read_pool(path.parent)),
    "data set": ("data/meta.json", lambda path: images.load_images(path.parent, "test")),
    "images": ("data/test.npz", lambda path: images.load_images(path.parent, "test")),
    "rows": ("rows.tsv", summarize_rows),
    "attacks": ("attacks.tsv", lambda path: attacks_text(summarize_attacks(path))),
    "sidecar": ("changed.json", read_sidecar),
    "log": ("log.tsv", read_log),
    "table": ("table.csv", lambda path: tsv.read_csv(path, ["classifier", "seconds"], "run make")),
    "image weights": ("weights/macer-0-1.label.tsv", lambda path: declare.read_weights(path, 2)),
    "parquet": ("hub/test.parquet", lambda path: parquet.read_parquet(path.parent, None)),
    "PNG": ("a.png", pictures.picture),
    "JPEG": ("a.jpg", pictures.picture),
    "TIFF": ("a.tif", pictures.picture),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, solved_pool):
    """A folder with a file of each kind."""
    root = shutil.copytree(solved_pool, tmp_path_factory.mktemp("fuzz") / "pool")
    with chdir(root):
        update_json(Path("ensembles.yaml"), datasets={"tiny": {"source": "folder", "root": "raw"}})
        network = checkpoint.load_model(Path("models/macer/0"))[0].network
        torch.save({"state_dict": network.state_dict()}, "c.pth")
        rows = tiny_study.make_rows(0.25, 0)
        tiny_study.write_rows(rows, Path("rows.tsv"))
        run = {"precision": "float32", "versions": {"torch": "2.9.1"}, "device": "cpu", "seed": 0}
        update_json(Path("rows.json"), images="0" * 64, **run)
        for end in ("tsv", "json"):
            shutil.copy(f"rows.{end}", f"changed.{end}")
        certificate_rows.write_field_log(rows, Path("log.tsv"))
        votes = {"counts": [600, 400, 0], "n": 1_000, "alpha": 1e-3, "classes": 3}
        found = {"idx": 0, "predict": 1, "radius": 0.3, "found": 0.4, "attack": "votes"}
        attack = votes | found | {"samples": 100, "seed": 0}
        Path("attacks.tsv").write_text(attack_rows.attack_rows_text([attack]))
        Path("table.csv").write_text("classifier,seconds\nmacer-0,1.5\n")
        for split in ("train", "test"):
            cells_of = [image_bytes(image) for image in pixels(2)]
            write_parquet(Path("hub", f"{split}.parquet"), cells_of, [0, 1], names=["x", "y"])
        for name, kind in (("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.tif", "TIFF")):
            Path(name).write_bytes(image_bytes(pixels(1)[0], kind))
    return root


STRANGE = [
    None, True, 0, -1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308,
    float("nan"), float("inf"), "", "x" * 10**4, "\ud800", "../../x", "\0", "0.25",
    [], {}, [[]], [None] * 300, {"": 0}, {"a": {"b": [1]}},
]  # fmt: skip


def places_in(value):
    """The places of all values in JSON: the list or dict that holds each, and its key there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield value, key
        if isinstance(one, dict | list):
            yield from places_in(one)


@st.composite
def other_values(draw, content):
    """JSON with another value in one place, which may be all of it."""
    whole = [json.loads(content)]
    holder, key = draw(st.sampled_from([*places_in(whole)]))
    holder[key] = draw(st.sampled_from(STRANGE))
    return json.dumps(*whole).encode()


WORDS = [
    "", "nan", "inf", "-1", "9" * 30, "9" * 5000, "1e400", "0x1", "1_0", "\u00b2", "x", "0:1,0:2",
    "0:-1", "-", f"{2**62}:{2**62}", "\0", '"',
]  # fmt: skip


@st.composite
def other_fields(draw, content):
    """A table with another field, or with a line left out, twice or cut."""
    lines = content.decode().split("\n")
    number = draw(st.integers(0, len(lines) - 1))
    separator = "\t" if "\t" in lines[0] else ","
    fields = lines[number].split(separator)
    column = draw(st.integers(0, len(fields) - 1))
    fields[column] = draw(st.sampled_from([*WORDS, fields[column] * 2]))
    changes = ([separator.join(fields)], [], [lines[number]] * 2)
    lines[number : number + 1] = draw(st.sampled_from(changes))
    return "\n".join(lines).encode()


@st.composite
def other_bytes(draw, content):
    """A file with some bytes changed, left out or twice."""
    made = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(made)))
        length = draw(st.integers(0, 40))
        twice = bytes(made[start : start + length]) * 2
        new = draw(st.binary(max_size=8) | st.just(twice))
        made[start : start + draw(st.sampled_from([0, 1, length, len(made)]))] = new
    return bytes(made)


def damaged(name, content):
    if name.endswith((".json", ".yaml")):
        return other_values(content) | other_values(content) | other_bytes(content)
    if name.endswith((".tsv", ".csv")):
        return other_fields(content) | other_fields(content) | other_bytes(content)
    return other_bytes(content)


@contextmanager
def bounded():
    """Let more memory than :data:`MEMORY` be an error, and more time than :data:`SECONDS`."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))

    def too_long(*_):
        raise TimeoutError(f"a reader took more than {SECONDS} seconds")

    handler = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.trust_only("damaged files, fuzzed")
@pytest.mark.filterwarnings("ignore")  # of pandas and Pillow about what they read
@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_is_read_or_refused(kind, place):
    name, read = READERS[kind]
    path = place / name
    content = path.read_bytes()
    read(path)  # whole, it is read

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(damaged(name, content))
    def never_ends_otherwise(damaged_content):
        path.write_bytes(damaged_content)
        try:
            with bounded():
                read(path)
        except InputError as error:
            assert kind != "parameters" or "\n" not in str(error)  # noqa: PT017

    try:
        with chdir(place):
            never_ends_otherwise()
    finally:
        path.write_bytes(content)
