"""``rs zoo``, and commands whose model is ``zoo:NAME``."""

from pathlib import Path

from PIL import Image

from rs.command_line.quantize import main as quantize
from rs.command_line.zoo import HEADER, RADII, ROWS, zoo_table
from rs.models.zoo import FOLDER, zoo_names
from rs.statistics import metrics
from tests.support.helpers import refusal
from tests.support.tiny_study import cell_rows, write_rows
from tests.support.untrained import save_model

NAME = zoo_names()[0]


def lines_by_name(table):
    """The cells of a table by the name of the network and the head of the column; there must be no
    empty cells.
    """
    head, *lines = table.splitlines()
    assert head.split() == HEADER
    by_name = {}
    for line in lines:
        cells = dict(zip(HEADER, line.split(), strict=True))
        by_name[cells["name"]] = cells
    return by_name


def test_the_table_has_the_numbers_of_the_rows_next_to_each_network(tmp_path):
    rows = {}
    for seed, sigma in enumerate((0.25, 0.5)):
        name = f"small-{sigma}"
        save_model(tmp_path / name, sigma=sigma)
        rows[name] = cell_rows("advmacer", sigma, seed)
        write_rows(rows[name], tmp_path / name / ROWS)

    lines = lines_by_name(zoo_table(tmp_path))

    assert list(lines) == list(rows)
    for name, frame in rows.items():
        cells = lines[name]
        assert cells["sigma"] == f"{frame['sigma'][0]:g}"
        assert cells["images"] == f"{len(frame):g}"
        assert cells["n"] == f"{frame['n'][0]:g}"
        assert cells["ACR"] == f"{metrics.acr(frame):.3f}"
        accuracies = metrics.certified_accuracy(frame, RADII)
        for radius, accuracy in zip(RADII, accuracies, strict=True):
            assert cells[f"r={radius:g}"] == f"{accuracy:.1%}"
    assert lines["small-0.25"]["ACR"] != lines["small-0.5"]["ACR"]


def test_no_command_writes_into_the_package(capfd, own_folder):
    Path("photos").mkdir()
    Image.new("RGB", (32, 32)).save("photos/0.png")
    before = sorted(FOLDER.rglob("*"))
    for model in (f"zoo:{NAME}", FOLDER / NAME):
        assert "copy the folder" in refusal(capfd, quantize, model, "--images", "photos")
    assert sorted(FOLDER.rglob("*")) == before
