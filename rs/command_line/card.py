"""Write the page of a model that is shared: README.md, as the Hugging Face hub reads it."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Force

EXAMPLE = """\
rs card models/digits/0.25/advmacer/0 --out shared/README.md \\
    --rows rows.tsv"""


def main(
    model: Annotated[Path, typer.Argument(metavar="MODEL", file_okay=False, help="Model folder.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Markdown file to write.")],
    rows: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="Certificate rows of this model, *.tsv; repeatable."),
    ] = None,
    force: Force = False,
) -> None:
    """Write what MODEL is, how it was trained and, from its rows, what it certifies."""
    from rs.certification.load import check_has_folder
    from rs.errors import InputError
    from rs.models import checkpoint, model_card
    from rs.models.fingerprint import model_fingerprint
    from rs.reporting.summaries import summarize_rows
    from rs.storage import files
    from rs.storage.certificate_rows import is_field_log, sidecar_of

    check_has_folder(model, "a model folder")
    files.check_output(out, "the page of a model", files.begins_with(model_card.BEGINNING), force=force)
    network, card = checkpoint.load_model(model)
    classifier = model_fingerprint(network)
    for path in rows or ():
        if is_field_log(path):
            raise InputError(f"{path} must be certificate rows, but is a log in six columns, which names no model")
    results = [summarize_rows(path) for path in rows or ()]
    for path, about in zip(rows or (), results, strict=True):
        if not about["certified_accuracy"]:
            raise InputError(f"{path} must have labels, but its images have none; put images into one folder a class")
        if files.value_in(sidecar_of(path), "classifier") != classifier:
            raise InputError(f"{path} must be rows of {model}, but its sidecar names another model; certify this one")
    files.write_text(out, model_card.model_page(card, results))
    print(f"page of {model}, with the certificates of {len(results)} row file(s), in {out}")
