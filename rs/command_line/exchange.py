"""Import checkpoints, export logs, merge rows of several machines, bundle and verify studies."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import (
    DataFolder,
    Force,
    ParamsFile,
    check_ending,
    file_argument,
    file_option,
    folder_option,
    sigma_option,
)
from rs.errors import InputError
from rs.models import Architecture, FirstLayer
from rs.runtime.progress import say


def import_model(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Weights that torch.save or safetensors wrote."),
    ],
    architecture: Annotated[Architecture, typer.Option(help="Architecture of the network.")],
    sigma: Annotated[
        float,
        typer.Option(callback=sigma_option, help="Noise std in its training, in pixels of [0, 1]."),
    ],
    normalization: Annotated[
        FirstLayer,
        typer.Option(
            "--normalization",
            "--normalisation",
            help="First layer: mean-std (Cohen, Jeong), centre (Salman) or none (MACER).",
        ),
    ],
    data: DataFolder,
    out: Annotated[Path, folder_option("Model folder to write.")],
    key: Annotated[
        str | None, typer.Option(help="Entry with the weights, such as state_dict_ema.")
    ] = None,
    force: Force = False,
) -> None:
    """Turn a published checkpoint into a model folder, which every command takes.

    Nothing in the checkpoint is executed.

    Example:
        rs import checkpoint.pth.tar --architecture resnet110 --sigma 0.5 \\
            --normalization mean-std --data data/cifar10 --out models/cohen
    """
    from rs.data.meta import read_meta
    from rs.models.published_checkpoints import import_checkpoint

    meta = read_meta(data)
    weights = import_checkpoint(
        checkpoint, meta, architecture, normalization, sigma, out, force, key
    )
    say(f"{checkpoint}: {weights}")
    say(
        f"{architecture} for {meta.name}, sigma = {sigma:g}, normalization {normalization}; model "
        f"in {out}"
    )


def export_rows(
    rows: Annotated[Path, file_argument("ROWS", "Certificate rows, *.tsv.")],
    out: Annotated[Path, file_option("Log to write: idx label predict radius correct time (0).")],
    force: Force = False,
) -> None:
    """Write certificate rows in Cohen's six-column log format, which analysis scripts read.

    Example:
        rs export rows.tsv --out log.tsv
    """
    from rs.reporting.logs import read_alone
    from rs.statistics.certificate import PER_IMAGE_SCOPE
    from rs.statistics.metrics import check_labels, check_radii
    from rs.storage import files
    from rs.storage.certificate_rows import is_field_log, write_field_log

    if is_field_log(rows):
        raise InputError(
            f"ROWS must be certificate rows, but {rows} is a six-column log already; use it as is"
        )
    files.check_output(out, "a file", inputs=[rows], force=force)
    table = read_alone(rows).rows
    check_radii(table, str(rows))
    check_labels(table, str(rows))
    if (table["scope"] == PER_IMAGE_SCOPE).any():
        fact = "the weights are frozen, chosen image by image"
        say(f"warning: {rows}: {fact}; the six-column format cannot record this", sys.stderr)
    write_field_log(table, out)
    say(f"{len(table):,} images; log in {out}")


def merge_rows(
    shares: Annotated[list[Path], file_argument("SHARES", "Rows of all shares, *.tsv.")],
    out: Annotated[Path, file_option("Row file to write, *.tsv.")],
) -> None:
    """Combine the parts that rs certify --share wrote into one row file.

    Example:
        rs merge share-1.tsv share-2.tsv --out rows.tsv
    """
    from rs.storage.row_writer import merge_shares

    images = merge_shares(shares, out)
    say(f"{images:,} images of {len(shares)} shares; rows in {out}")


def bundle_study(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Name of the recipe, such as digits.")
    ],
    out: Annotated[Path, file_option("Archive to write, *.tar.xz.")],
    root: Annotated[Path, folder_option("Folder with results and reports.")] = Path("."),
    params: ParamsFile = Path("params.yaml"),
    force: Force = False,
) -> None:
    """Bundle a study for others to check: its rows, sidecars, parameters and tables.

    Nothing is written if the study contradicts itself. For row files outside a study, send each
    *.tsv with its *.json: every command that reads them recomputes the radii from the votes.

    Example:
        rs bundle digits --out digits.tar.xz
    """
    from rs.reporting.bundle import make_bundle
    from rs.storage import files

    check_ending(out, ".tar.xz")  # so that it replaces no file of the study
    files.check_output(out, "a file", force=force)
    content, lines = make_bundle(root, params, dataset)
    files.write_bytes(out, content)
    for line in [*lines, f"bundle in {out}"]:
        say(line)


def verify_bundle(
    bundle: Annotated[Path, file_argument("BUNDLE", "Archive to check.")],
) -> None:
    """Check the bundle of a study: its rows, and the means in its tables.

    Bounds, radii and classes of BUNDLE must follow from its votes, and the average certified radii
    and certified accuracies in its tables from its rows.

    Example:
        rs verify digits.tar.xz
    """
    from rs.reporting.bundle import verify
    from rs.reporting.check import MAX_BYTES
    from rs.storage import files

    for line in verify(files.read_bytes(bundle, MAX_BYTES), str(bundle)):
        say(line)
