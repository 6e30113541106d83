"""Share models and studies: the page of a model, the bundle of a study, and its check."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Force, Network, ParamsFile
from rs.errors import InputError, printable


def write_card(
    model: Annotated[Path, typer.Argument(metavar="MODEL", file_okay=False, help="Model folder.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Markdown file to write.")],
    rows: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="Certificate rows of MODEL; repeatable.")
    ] = None,
    network: Network = None,
    force: Force = False,
) -> None:
    """Write the page of a model to share: README.md, as the Hugging Face hub reads it.

    It says what MODEL is, how it was trained and, given its rows, what it certifies.

    Example:
        rs card models/digits/0.25/advmacer/0 --out shared/README.md \\
            --rows rows.tsv
    """
    from rs.certification.load import check_has_folder
    from rs.models import checkpoint, model_card
    from rs.models.fingerprint import model_fingerprint
    from rs.reporting.summaries import summarize_rows
    from rs.smoothing.user_networks import register_network
    from rs.storage import files
    from rs.storage.certificate_rows import sidecar_of

    row_files = rows or []
    check_has_folder(model, "a model folder")
    files.check_output(out, "a file", inputs=row_files, force=force)
    if network is not None:
        register_network(network)
    module, card = checkpoint.load_model(model)
    model_sha256 = model_fingerprint(module)
    summaries = [summarize_rows(path) for path in row_files]
    for path, summary in zip(row_files, summaries, strict=True):
        if not summary["certified_accuracy"]:
            raise InputError(f"{path} must have labels, but its images have none; put images into one folder a class")
        if files.json_values(sidecar_of(path)).get("classifier") != model_sha256:
            raise InputError(f"{path} must be rows of {model}, but its sidecar names another model; certify this one")
    files.write_text(out, model_card.model_page(card, summaries))
    print(f"page of {model}, with the certificates of {len(summaries)} row file(s), in {out}")


def bundle_study(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Name of the recipe, as in the paths.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Archive to write, *.tar.xz.")],
    root: Annotated[Path, typer.Option(file_okay=False, help="Folder with results, reports, models.")] = Path("."),
    params: ParamsFile = Path("params.yaml"),
    force: Force = False,
) -> None:
    """Bundle a study for others to check: rows, tables, claims and the checker.

    Nothing is written if the study contradicts itself.

    Example:
        rs bundle digits --out digits.tar.xz
    """
    from rs.reporting.bundle import make_bundle
    from rs.storage import files

    files.check_output(out, "a file", force=force)
    content, lines = make_bundle(root, params, dataset)
    files.write_bytes(out, content)
    print(*lines, f"bundle in {out}", sep="\n")


def verify_bundle(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", exists=True, dir_okay=False, help="Archive to check.")],
) -> None:
    """Check the bundle of a study: derive all numbers from the votes.

    Each bound, radius, table and claim of BUNDLE is derived again. What does not follow from the votes is listed.

    Example:
        rs verify digits.tar.xz
    """
    from rs.reporting.bundle import verify
    from rs.reporting.check import MAX_BYTES
    from rs.storage.files import read_bytes

    print(*map(printable, verify(read_bytes(bundle, MAX_BYTES), str(bundle))), sep="\n")
