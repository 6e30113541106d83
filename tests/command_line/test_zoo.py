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


def table_of(text):
    """The cells of a table by the name of the network and the head of the column; there must be no
    empty cells.
    """
    head, *lines = text.splitlines()
    assert head.split() == HEADER
    cells = [dict(zip(HEADER, line.split(), strict=True)) for line in lines]
    return {line["name"]: line for line in cells}


def test_the_table_has_the_numbers_of_the_rows_beside_each_network(tmp_path):
    rows = {}
    for seed, sigma in enumerate((0.25, 0.5)):
        name = f"small-{sigma}"
        save_model(tmp_path / name, sigma=sigma)
        rows[name] = cell_rows("advmacer", sigma, seed)
        write_rows(rows[name], tmp_path / name / ROWS)
    table = table_of(zoo_table(tmp_path))
    assert [*table] == [*rows]
    for name, frame in rows.items():
        line = table[name]
        stated = {"sigma": frame["sigma"][0], "images": len(frame), "n": frame["n"][0]}
        assert {key: line[key] for key in stated} == {key: f"{x:g}" for key, x in stated.items()}
        assert line["ACR"] == f"{metrics.acr(frame):.3f}"
        accuracies = metrics.certified_accuracy(frame, RADII)
        assert [line[f"r={radius:g}"] for radius in RADII] == [f"{x:.1%}" for x in accuracies]
    assert table["small-0.25"]["ACR"] != table["small-0.5"]["ACR"]


def test_no_command_writes_into_the_package(capfd, own_folder):
    Path("photos").mkdir()
    Image.new("RGB", (32, 32)).save("photos/0.png")
    before = sorted(FOLDER.rglob("*"))
    for model in (f"zoo:{NAME}", FOLDER / NAME):
        assert "copy the folder" in refusal(capfd, quantize, model, "--images", "photos")
    assert sorted(FOLDER.rglob("*")) == before
