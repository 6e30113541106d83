"""Attack certified images: bound from above what a certificate bounds from below."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.command_line.pictures import PictureOptions
from rs.runtime.progress import say, say_next


def main(
    rows: Annotated[
        Path,
        shell.file_argument("ROWS", "Rows of rs certify."),
    ],
    model: shell.ModelOption,
    out: Annotated[Path, shell.file_option("Attack rows to write, *.tsv.")],
    *,
    data: shell.PreparedData = None,
    samples: Annotated[int, typer.Option(help="Noise samples per gradient.")] = 100,
    restarts: Annotated[int, typer.Option(help="Searches per image, each from a new start.")] = 2,
    n: Annotated[
        int, typer.Option("--n", help="Fresh noise samples that confirm a perturbation.")
    ] = 20_000,
    alpha: Annotated[float, typer.Option(help="Failure probability of each confirmation.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Attack at most this many certified images, from the first on."),
    ] = None,
    share: shell.Share = None,
    network: shell.Network = None,
    device: shell.Device = "auto",
    batch: shell.Batch = None,
    pictures: PictureOptions,
) -> None:
    """Search for the smallest perturbation that changes each certified, correct prediction.

    The search uses gradients under noise and then votes alone. Fresh samples confirm what it
    finds, so it is an upper bound on the robust radius with probability 1 - alpha. A perturbation
    inside a certified radius falsifies the certificate.

    An interrupted attack continues where it stopped.

    Example:
        rs attack rows.tsv --model models/digits/0.25/advmacer/0 \\
            --data data/digits --out attacks.tsv
    """
    pictures.check_sources(data, required=True)
    from rs.certification.attack_certificates import AttackSettings, attack_certificates
    from rs.certification.load import load
    from rs.runtime.device import resolve_device
    from rs.runtime.processes import is_first_process
    from rs.smoothing.settings import SmoothingOptions

    settings = AttackSettings(
        samples=samples, restarts=restarts, n=n, alpha=alpha, seed=seed, limit=limit
    )
    base, images = pictures.load(load(model, network=network), data)
    options = SmoothingOptions(device=resolve_device(device), batch=batch, calibration=data)
    attack_certificates(rows, base, images, settings, options, out=out, share=share)
    if is_first_process():
        say(f"attacks in {out}")
        say_next(f"rs show {out}", f"rs report {rows} {out} --out report.html")
