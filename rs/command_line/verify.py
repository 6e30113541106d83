"""Check a bundle of a study: derive all numbers from the votes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Device

EXAMPLE = """\
rs verify digits.tar.xz
rs verify digits.tar.xz --models models --data data/digits --image 7"""


def main(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", exists=True, dir_okay=False, help="Made by rs bundle.")],
    models: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the models, to draw noise and count votes again.")
    ] = None,
    data: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of the prepared data set.")] = None,
    image: Annotated[
        int | None, typer.Option(min=0, help="Number of the image whose votes are counted again; default: 0.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Derive each bound, radius, table and claim of BUNDLE from its votes; list what does not follow from them."""
    from rs.errors import InputError, printable
    from rs.reporting.bundle import opened, verify
    from rs.reporting.check import FAULTS, MAX_BYTES
    from rs.runtime import arithmetic
    from rs.storage.files import read_bytes

    if (models is None) != (data is None):
        raise InputError("--models and --data must be given together, or neither; votes need models and images")
    if image is not None and models is None:
        raise InputError("--image is for --models and --data, whose votes are counted; give them, or leave it out")
    content = read_bytes(bundle, MAX_BYTES)
    study, values, files = opened(content, str(bundle))
    recounted: Iterable[str] = ()
    if models is not None and data is not None:
        try:
            arithmetic.set_arithmetic(values, study["dataset"])
            from rs.certification.recount import recount
            from rs.runtime.device import device_named

            recounted = recount(study, files, models, data, image or 0, device_named(device))
        except InputError:
            raise
        except FAULTS:  # of a bundle that is damaged: the checker says where
            verify(content, str(bundle))
            raise
    *derived, verdict = verify(content, str(bundle))
    print(*map(printable, derived), sep="\n")
    for line in recounted:
        print(line)
    print(verdict)
